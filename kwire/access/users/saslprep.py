"""SASLprep (RFC 4013): the normal form in which user names and passwords are compared."""

import unicodedata

# The maximum number of characters of a text, before and in its normal form. A character can become eighteen, and each
# of them is compared with a dozen tables, which takes some microseconds.
PREPARED_LENGTH_MAX = 1_024


def prepare(text: str, length_max: int = PREPARED_LENGTH_MAX) -> str:
    """Return the normal form of a user name or password. Raises ValueError if a character is not allowed.

    A text that is longer than `length_max` is refused before it is compared with the tables. Clients that are not
    logged in choose it. The message of the error does not contain the text.
    """
    if text.isascii() and text.isprintable():
        return text
    check_length(text, length_max)
    # Imported here, because the import takes a tenth of a second and few servers need it.
    from scramp.utils import ScramException, saslprep

    try:
        prepared: str = saslprep(text)
    except ScramException:
        raise ValueError("it has characters that SASLprep (RFC 4013) does not allow") from None
    return prepared


def check_length(text: str, length_max: int) -> None:
    """Raise ValueError if a text, or its normal form, has too many characters. It takes some microseconds."""
    if len(text) > length_max or len(unicodedata.normalize("NFKC", text)) > length_max:
        raise ValueError(f"it has more than {length_max} characters in the normal form of SASLprep (RFC 4013)")
