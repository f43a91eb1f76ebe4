"""Encrypted texts: they are bound to their context and key, and changes are detected."""

import base64

import pytest

from kwire.access.secrets.key_file import KEY_BYTES, SecretKey
from kwire.access.secrets.secret_cipher import SecretCipher, SecretUnreadable

OLD, NEW = SecretKey(b"o" * KEY_BYTES), SecretKey(b"n" * KEY_BYTES)


def test_an_encrypted_text_is_decrypted_with_its_context_only() -> None:
    cipher = SecretCipher([OLD])
    encrypted = cipher.encrypt("whsec_secret ü", "webhooks/1/url")
    assert "secret" not in encrypted
    assert cipher.decrypt(encrypted, "webhooks/1/url") == "whsec_secret ü"
    for other in ("webhooks/2/url", "webhooks/1/headers", ""):
        with pytest.raises(SecretUnreadable, match="damaged, or belongs to another entry"):
            cipher.decrypt(encrypted, other)


def test_equal_texts_have_different_encrypted_texts() -> None:
    cipher = SecretCipher([OLD])
    assert len({cipher.encrypt("same", "context") for _ in range(100)}) == 100


def test_any_key_of_the_file_decrypts_and_the_first_encrypts() -> None:
    encrypted = SecretCipher([OLD]).encrypt("text", "c")
    both = SecretCipher([NEW, OLD])
    assert both.decrypt(encrypted, "c") == "text"
    assert not both.is_current(encrypted)
    again = both.encrypt("text", "c")
    assert both.is_current(again)
    assert SecretCipher([NEW]).decrypt(again, "c") == "text"
    with pytest.raises(SecretUnreadable, match=f"the key {OLD.key_id} is not in the key file"):
        SecretCipher([NEW]).decrypt(encrypted, "c")


def test_a_key_that_is_twice_in_the_file_is_one_key() -> None:
    cipher = SecretCipher([OLD, NEW, OLD])
    assert cipher.key_id == OLD.key_id
    assert cipher.decrypt(cipher.encrypt("text", "c"), "c") == "text"


@pytest.mark.parametrize(
    "encrypted", ["", "1", "1:", f"1:{OLD.key_id}:", f"1:{OLD.key_id}:AAAA", f"1:{OLD.key_id}:no base64", "2:x:AAAA"]
)
def test_malformed_texts_are_unreadable(encrypted: str) -> None:
    with pytest.raises(SecretUnreadable):
        SecretCipher([OLD]).decrypt(encrypted, "c")


def test_a_change_of_any_bit_is_detected() -> None:
    cipher = SecretCipher([OLD])
    head, _, encoded = cipher.encrypt("a text of some length", "c").rpartition(":")
    raw = base64.b64decode(encoded)
    for bit in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SecretUnreadable):
            cipher.decrypt(f"{head}:{base64.b64encode(changed).decode()}", "c")
