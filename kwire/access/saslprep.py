"""SASLprep (RFC 4013): the normal form in which user names and passwords are compared."""


def prepare(text: str) -> str:
    """Return the normal form of a user name or password. Raises ValueError if a character is not allowed.

    The message of the error does not contain the text.
    """
    if text.isascii() and text.isprintable():
        return text
    # Imported here, because the import takes a tenth of a second and few servers need it.
    from scramp.utils import ScramException, saslprep

    try:
        prepared: str = saslprep(text)
    except ScramException:
        raise ValueError("it has characters that SASLprep (RFC 4013) does not allow") from None
    return prepared
