"""Text that is safe to print: names and values come from other programs, and terminals obey control characters."""


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that they cannot change the terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
