"""A parser for Java's properties syntax, the syntax of Kafka's ``server.properties``.

A logical line is ``key=value``, ``key: value`` or ``key value``. A line that starts with ``#`` or ``!`` is a comment. A
backslash at the end of a line continues the line. The escapes are ``\\t \\n \\r \\f`` and ``\\u`` with four hex digits.
A backslash before any other character is dropped.
"""

import re

# str.splitlines() would also split at form feeds and Unicode separators, which are ordinary characters in this syntax.
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class InvalidProperties(ValueError):
    """The text is not in properties syntax. The message names the line."""


def decode_properties(text: str) -> dict[str, str]:
    """Return the key-value pairs in the text. If a key is repeated, its last value applies."""
    pairs: dict[str, str] = {}
    logical, logical_number = "", 0
    is_continued = False
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip(_BLANKS)
        if not is_continued:
            if not line or line[0] in "#!":
                continue
            logical, logical_number = "", number
        # With an odd number of trailing backslashes the last backslash is not escaped, so it continues the line.
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        logical += line[:-1] if is_continued else line
        if not is_continued:
            _add(pairs, logical, logical_number)
    if is_continued:
        _add(pairs, logical, logical_number)
    return pairs


def _add(pairs: dict[str, str], line: str, number: int) -> None:
    end = _key_end(line)
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    pairs[_unescape(line[:end], number)] = _unescape(rest, number)


def _key_end(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    characters: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            character = text[position]
            position += 1
            if character == "u":
                digits = text[position : position + 4]
                if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                    raise InvalidProperties(f"line {number}: \\u needs four hexadecimal digits, got {digits!r}")
                character = chr(int(digits, 16))
                position += 4
            else:
                character = _ESCAPES.get(character, character)
        elif character == "\\":
            break
        characters.append(character)
    return "".join(characters)
