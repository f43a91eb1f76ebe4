"""Sealed texts: they are bound to their context and key, and changes are detected."""

import base64

import pytest

from kwire.access.secrets.key_file import KEY_BYTES, SecretKey
from kwire.access.secrets.secret_box import SecretBox, SecretUnreadable

OLD, NEW = SecretKey(b"o" * KEY_BYTES), SecretKey(b"n" * KEY_BYTES)


def test_a_sealed_text_is_opened_with_its_context_only() -> None:
    box = SecretBox([OLD])
    sealed = box.seal("whsec_secret ü", "webhooks/1/url")
    assert "secret" not in sealed
    assert box.open(sealed, "webhooks/1/url") == "whsec_secret ü"
    for other in ("webhooks/2/url", "webhooks/1/headers", ""):
        with pytest.raises(SecretUnreadable, match="damaged, or belongs to another entry"):
            box.open(sealed, other)


def test_equal_texts_have_different_sealed_texts() -> None:
    box = SecretBox([OLD])
    assert len({box.seal("same", "context") for _ in range(100)}) == 100


def test_any_key_of_the_file_opens_and_the_first_seals() -> None:
    sealed = SecretBox([OLD]).seal("text", "c")
    both = SecretBox([NEW, OLD])
    assert both.open(sealed, "c") == "text"
    assert not both.is_current(sealed)
    again = both.seal("text", "c")
    assert both.is_current(again)
    assert SecretBox([NEW]).open(again, "c") == "text"
    with pytest.raises(SecretUnreadable, match=f"the key {OLD.key_id} is not in the key file"):
        SecretBox([NEW]).open(sealed, "c")


def test_a_key_that_is_twice_in_the_file_is_one_key() -> None:
    box = SecretBox([OLD, NEW, OLD])
    assert box.key_id == OLD.key_id
    assert box.open(box.seal("text", "c"), "c") == "text"


@pytest.mark.parametrize(
    "sealed", ["", "1", "1:", f"1:{OLD.key_id}:", f"1:{OLD.key_id}:AAAA", f"1:{OLD.key_id}:no base64", "2:x:AAAA"]
)
def test_malformed_texts_are_unreadable(sealed: str) -> None:
    with pytest.raises(SecretUnreadable):
        SecretBox([OLD]).open(sealed, "c")


def test_a_change_of_any_bit_is_detected() -> None:
    box = SecretBox([OLD])
    head, _, encoded = box.seal("a text of some length", "c").rpartition(":")
    raw = base64.b64decode(encoded)
    for bit in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SecretUnreadable):
            box.open(f"{head}:{base64.b64encode(changed).decode()}", "c")
