"""The key file: one key per line, 32 random bytes in base64. The first key encrypts; all of them decrypt.

Empty lines, and lines that begin with `#`, are ignored. Messages about a file never quote its content.
"""

import base64
import binascii
import hmac
import os
import secrets
from contextlib import suppress
from typing import NamedTuple

from storage.disk.files import Files

KEY_BYTES = 32
KEYS_MAX = 100
FILE_BYTES_MAX = 64 * 1024
# The suffix of a key file that is not complete yet.
NEW_SUFFIX = ".new"
_HEAD = (
    "# Keys of kwire for secrets in the metadata store. Keep a copy: without the key, the secrets are lost.\n"
    "# The first key encrypts. To rotate, insert a new key (32 random bytes in base64) above the old one and restart.\n"
)


class InvalidKeyFile(Exception):
    """The content of a key file is not valid. The message does not quote it."""


class SecretKey(NamedTuple):
    """A key of the node. It is used only to derive other keys."""

    raw: bytes

    def __repr__(self) -> str:
        return f"SecretKey({self.key_id})"

    def derived(self, purpose: str) -> bytes:
        """Return the key for one purpose: HKDF-Expand (RFC 5869) with SHA-256, for one block of output."""
        return hmac.digest(self.raw, b"kwire " + purpose.encode() + b"\x01", "sha256")

    @property
    def key_id(self) -> str:
        """A short name of the key, from which the key cannot be computed."""
        return self.derived("key id")[:8].hex()


def parse_keys(data: bytes) -> tuple[SecretKey, ...]:
    """Return the keys of a key file. Raises InvalidKeyFile."""
    if len(data) > FILE_BYTES_MAX:
        raise InvalidKeyFile(f"it has more than {FILE_BYTES_MAX} bytes")
    keys: list[SecretKey] = []
    for number, line in enumerate(data.splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        try:
            raw = base64.b64decode(text, validate=True)
        except binascii.Error:
            raise InvalidKeyFile(f"line {number} is not base64") from None
        if len(raw) != KEY_BYTES:
            raise InvalidKeyFile(f"line {number} has {len(raw)} bytes in base64, expected {KEY_BYTES}")
        keys.append(SecretKey(raw))
    if not keys:
        raise InvalidKeyFile("it has no key")
    if len(keys) > KEYS_MAX:
        raise InvalidKeyFile(f"it has {len(keys)} keys, at most {KEYS_MAX} are allowed")
    return tuple(keys)


def read_key_file(path: str) -> tuple[SecretKey, ...]:
    """Return the keys of a file. Raises FileNotFoundError, OSError or InvalidKeyFile."""
    with open(path, "rb") as file:
        return parse_keys(file.read(FILE_BYTES_MAX + 1))


def is_readable_by_others(path: str) -> bool:
    return bool(os.stat(path).st_mode & 0o077)


def create_key_file(path: str, files: Files) -> tuple[SecretKey, ...]:
    """Create a file with a new key, which is durable when this returns. Raises OSError; FileExistsError if it exists.

    The file gets its name when its content is durable, so it is never incomplete. The name is never replaced, even if
    another server creates the same file at the same time.
    """
    folder, temporary = os.path.dirname(path), path + NEW_SUFFIX
    with suppress(FileNotFoundError):
        # A crash has left it. The key in it was never used.
        files.unlink(temporary)
    folder_fd = files.open_dir(folder)
    try:
        fd = files.create_private(temporary)
        try:
            key = secrets.token_bytes(KEY_BYTES)
            files.write_all(fd, _HEAD.encode() + base64.b64encode(key) + b"\n", 0)
            files.fsync(fd)
        finally:
            files.close(fd)
        try:
            files.link(temporary, path)
        finally:
            files.unlink(temporary)
        files.fsync_dir(folder, folder_fd)
    finally:
        files.close(folder_fd)
    return (SecretKey(key),)
