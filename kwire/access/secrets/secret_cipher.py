"""Encryption of stored secrets with AES-256-GCM.

An encrypted text is `1:KEY-ID:BASE64`: the version of the format, the id of the key, and the nonce and the ciphertext
with its tag. The context (the entry and the field to which the secret belongs) is authenticated but not stored, so a
text that is moved to another entry or field cannot be decrypted.
"""

import base64
import binascii
import os
from collections.abc import Sequence

from kwire.access.secrets.key_file import SecretKey

VERSION = "1"
PURPOSE = "stored secrets"
# RFC 5116's size of nonces. They are random, so one key may encrypt 2^32 texts (NIST SP 800-38D).
NONCE_BYTES = 12


class SecretUnreadable(Exception):
    """An encrypted text cannot be decrypted. The message gives the reason."""


class SecretCipher:
    """Encrypts texts with the first key, and decrypts texts of any of the keys."""

    def __init__(self, keys: Sequence[SecretKey]) -> None:
        # Imported here, because most servers store no secrets. The caller runs in a thread.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._ciphers: dict[str, AESGCM] = {key.key_id: AESGCM(key.derived(PURPOSE)) for key in reversed(keys)}
        self.key_id = keys[0].key_id

    def encrypt(self, text: str, context: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        encrypted = self._ciphers[self.key_id].encrypt(nonce, text.encode(), context.encode())
        return f"{VERSION}:{self.key_id}:{base64.b64encode(nonce + encrypted).decode()}"

    def decrypt(self, encrypted: str, context: str) -> str:
        """Return the text. Raises SecretUnreadable."""
        from cryptography.exceptions import InvalidTag

        version, key_id, encoded = _parts(encrypted)
        if version != VERSION:
            raise SecretUnreadable(f"version {version} of the format is not known")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise SecretUnreadable(f"the key {key_id} is not in the key file")
        try:
            raw = base64.b64decode(encoded, validate=True)
            return cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], context.encode()).decode()
        except (InvalidTag, ValueError, binascii.Error):
            raise SecretUnreadable("the encrypted value is damaged, or belongs to another entry") from None

    def is_current(self, encrypted: str) -> bool:
        """Whether a text was encrypted with the first key."""
        return _parts(encrypted)[:2] == (VERSION, self.key_id)


def _parts(encrypted: str) -> tuple[str, str, str]:
    version, _, rest = encrypted.partition(":")
    key_id, _, encoded = rest.partition(":")
    return version[:20], key_id[:64], encoded
