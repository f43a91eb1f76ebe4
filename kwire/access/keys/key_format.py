"""The texts of a key: its id, its secret, and the token that has both.

- id: `kwk_` and 22 characters. It is not secret: it is in the audit log, and clients send it as the user name.
- secret: `kws_` and 49 characters: 32 random bytes in base 62, then their CRC-32. The checksum lets the server and
  scanners of source code refuse texts that only resemble a secret.
- token: the id, a dot and the secret. HTTP clients send it as `Authorization: Bearer TOKEN`.
"""

import re
import secrets
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

ID_PREFIX = "kwk_"
SECRET_PREFIX = "kws_"
SECRET_BYTES = 32

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# 22 characters have 131 bits, more than a UUID. 43 have the 256 bits of the secret, 6 the 32 bits of its checksum.
_ID_LENGTH, _SECRET_LENGTH, _CHECKSUM_LENGTH = 22, 43, 6
_ID = re.compile(rf"{ID_PREFIX}[0-9A-Za-z]{{{_ID_LENGTH}}}")
_SECRET = re.compile(rf"{SECRET_PREFIX}[0-9A-Za-z]{{{_SECRET_LENGTH + _CHECKSUM_LENGTH}}}")
TOKEN_LENGTH = len(ID_PREFIX) + _ID_LENGTH + 1 + len(SECRET_PREFIX) + _SECRET_LENGTH + _CHECKSUM_LENGTH


class Credentials(NamedTuple):
    """The id and the secret of a key."""

    id: str
    secret: str

    @property
    def token(self) -> str:
        return f"{self.id}.{self.secret}"

    def __repr__(self) -> str:
        return f"Credentials({self.id}, [hidden])"


def new_key_id() -> str:
    return ID_PREFIX + "".join(secrets.choice(_DIGITS) for _ in range(_ID_LENGTH))


def new_secret() -> str:
    body = _base_62(int.from_bytes(secrets.token_bytes(SECRET_BYTES), "big"), _SECRET_LENGTH)
    return SECRET_PREFIX + body + _checksum(body)


def is_key_id(text: str) -> bool:
    """Return whether the text has the form of an id, whether the key exists or not."""
    return text.startswith(ID_PREFIX) and _ID.fullmatch(text) is not None


def is_secret(text: str) -> bool:
    """Return whether the text has the form and the checksum of a secret."""
    if _SECRET.fullmatch(text) is None:
        return False
    body = text[len(SECRET_PREFIX) : -_CHECKSUM_LENGTH]
    return _checksum(body) == text[-_CHECKSUM_LENGTH:]


def parse_token(text: str) -> Credentials | None:
    """Return the id and the secret in a token; None if it does not have the form of a token."""
    if len(text) != TOKEN_LENGTH:
        return None
    key_id, _, secret = text.partition(".")
    return Credentials(key_id, secret) if is_key_id(key_id) and is_secret(secret) else None


def hash_of(secret: str) -> bytes:
    """Return the SHA-256 of a secret. A secret has 256 random bits, so a slow hash would not protect it better."""
    return sha256(secret.encode(errors="surrogatepass")).digest()


def _checksum(body: str) -> str:
    return _base_62(crc32(body.encode()), _CHECKSUM_LENGTH)


def _base_62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
