"""Signatures, checked by the library that receivers use."""

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from kwire.streams.webhooks.delivery.signing import (
    SECRET_PREFIX,
    SECRETS_MAX,
    InvalidSecret,
    SigningSecrets,
    TooManySecrets,
    key_of,
    message_id,
    new_secret,
)

HOUR_MS = 3_600_000
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _verifies(secret: str, body: bytes, headers: dict[str, str]) -> bool:
    try:
        Webhook(secret).verify(body, headers, json_parse=False)
    except WebhookVerificationError:
        return False
    return True


@given(TEXTS, TOPICS, st.binary(min_size=24, max_size=64))
def test_receivers_verify_what_is_signed(text: str, topic: str, key: bytes) -> None:
    secret = SECRET_PREFIX + base64.b64encode(key).decode()
    body = text.encode()
    headers = SigningSecrets.first(secret).headers(f"{topic}-7", body, _now_ms())
    assert _verifies(secret, body, headers)
    assert not _verifies(secret, body + b" ", headers)
    assert not _verifies(secret, body, {**headers, "webhook-id": "other-1"})
    assert not _verifies(new_secret(), body, headers)


def test_old_and_new_secrets_both_verify_until_the_old_one_expires() -> None:
    now_ms, body = _now_ms(), b'{"a":1}'
    first = SigningSecrets.first()
    both = first.rotated(now_ms, HOUR_MS)
    headers = both.headers("orders-1", body, now_ms)
    assert headers["webhook-signature"].count("v1,") == 2
    assert _verifies(first.current, body, headers)
    assert _verifies(both.current, body, headers)
    assert first.current != both.current
    later = both.at(now_ms + HOUR_MS)
    headers = later.headers("orders-1", body, now_ms)
    assert headers["webhook-signature"].count("v1,") == 1
    assert not _verifies(first.current, body, headers)
    assert _verifies(both.current, body, headers)


def test_a_secret_that_leaked_is_replaced_at_once() -> None:
    first = SigningSecrets.first()
    assert len(first.rotated(0, HOUR_MS).rotated(0, 0).secrets) == 1


def test_rotations_are_bounded_and_begin_again_when_old_ones_expire() -> None:
    held = SigningSecrets.first()
    for _ in range(SECRETS_MAX - 1):
        held = held.rotated(0, HOUR_MS)
    with pytest.raises(TooManySecrets):
        held.rotated(0, HOUR_MS)
    assert len(held.rotated(HOUR_MS, HOUR_MS).secrets) == 2


def test_a_given_secret_is_kept_and_the_same_one_again_signs_once() -> None:
    secret = new_secret()
    held = SigningSecrets.first(secret)
    assert held.current == secret
    assert held.rotated(0, HOUR_MS, secret).secrets == held.secrets


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "whsec_",
        "secret",
        "whsec_!!!!",
        "whsec_" + "AAAA" * 5,
        "whsec_" + "AAAA" * 30,
        "whsec_ä",
        "WHSEC_" + "A" * 32,
    ],
)
def test_what_is_no_secret_is_refused(bad: str) -> None:
    with pytest.raises(InvalidSecret):
        key_of(bad)


def test_padding_may_be_left_out() -> None:
    secret = new_secret()
    assert key_of(secret) == key_of(secret.rstrip("="))


@given(TOPICS)
def test_no_part_of_an_id_can_pass_for_the_time(topic: str) -> None:
    identity = message_id(f"{topic}-1")
    assert "." not in identity
    assert identity.replace("~", ".") == f"{topic}-1"
