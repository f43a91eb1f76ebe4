"""Signatures according to Standard Webhooks: HMAC-SHA256 of id, timestamp and body, keyed with a secret `whsec_…`.

While a secret is being replaced, messages are signed with both the new and the old one, so the receiver can switch at
any time. Receivers refuse a message whose timestamp differs from the current time by more than five minutes. Therefore
each attempt gets a new timestamp and a new signature.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Self

SECRET_PREFIX = "whsec_"
# The limits that the specification of Standard Webhooks sets.
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
SECRET_BYTES_MADE = 32
# Secrets of one webhook: the current one, and older ones that are still used until they expire.
SECRETS_MAX = 4
# Number of decoded keys that are cached. Decoding a secret takes longer than signing with its key.
KEYS_KEPT = 2000

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
SIGNING_HEADERS = frozenset({ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER})


class InvalidSecret(ValueError):
    """A secret is malformed. The message gives the reason without quoting the secret."""


class TooManySecrets(ValueError):
    """A webhook has SECRETS_MAX secrets that have not expired, so it cannot get another one."""


class SigningSecret(NamedTuple):
    """A secret. `until_ms` is the time at which it expires. The current secret has None."""

    secret: str
    until_ms: int | None = None


class SigningSecrets(NamedTuple):
    """The secrets of one webhook, newest first. The object is immutable."""

    secrets: tuple[SigningSecret, ...]

    @classmethod
    def first(cls, secret: str | None = None) -> Self:
        """Return the secrets of a new webhook. A secret is generated if `secret` is None. Raises InvalidSecret."""
        return cls((SigningSecret(_checked(secret)),))

    @property
    def current(self) -> str:
        return self.secrets[0].secret

    def rotated(self, now_ms: int, overlap_ms: int, secret: str | None = None) -> Self:
        """Return secrets with a new current secret. The previous one expires after `overlap_ms`.

        Raises InvalidSecret or TooManySecrets.
        """
        newest = SigningSecret(_checked(secret))
        kept = [one for one in self.at(now_ms).secrets if one.secret != newest.secret]
        if overlap_ms <= 0:
            # The old secret may have leaked, so all old secrets are dropped immediately.
            return type(self)((newest,))
        kept = [one._replace(until_ms=now_ms + overlap_ms) if one.until_ms is None else one for one in kept]
        if len(kept) >= SECRETS_MAX:
            raise TooManySecrets(f"{len(kept)} secrets are still in use: wait until one of them has expired")
        return type(self)((newest, *kept))

    def at(self, now_ms: int) -> Self:
        """Return the secrets without those that have expired."""
        left = tuple(one for one in self.secrets if one.until_ms is None or one.until_ms > now_ms)
        return type(self)(left)

    def headers(self, event_id: str, body: bytes, now_ms: int) -> dict[str, str]:
        """Return the three signature headers of an attempt at `now_ms`."""
        timestamp = now_ms // 1000
        identity = message_id(event_id)
        return {
            ID_HEADER: identity,
            TIMESTAMP_HEADER: str(timestamp),
            SIGNATURE_HEADER: signatures([one.secret for one in self.at(now_ms).secrets], identity, timestamp, body),
        }


def message_id(event_id: str) -> str:
    """Return the message id of an event. It is the same for every attempt.

    The signed content is `<id>.<timestamp>.<body>`. If ids could contain full stops, two different messages could have
    the same signed content. Topic names may contain full stops but not `~`, so each full stop is replaced by `~`.
    """
    return event_id.replace(".", "~")


def signatures(secrets_: Sequence[str], identity: str, timestamp: int, body: bytes) -> str:
    """Return the value of the signature header: one signature for each secret."""
    signed = b"%b.%d.%b" % (identity.encode(), timestamp, body)
    return " ".join(f"v1,{_encoded(hmac.digest(key_of(one), signed, hashlib.sha256))}" for one in secrets_)


def new_secret() -> str:
    return SECRET_PREFIX + _encoded(secrets.token_bytes(SECRET_BYTES_MADE))


@lru_cache(KEYS_KEPT)
def key_of(secret: str) -> bytes:
    """Decode a secret to its key; raises InvalidSecret."""
    if not secret.startswith(SECRET_PREFIX):
        raise InvalidSecret(f"a secret must start with {SECRET_PREFIX}")
    text = secret.removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSecret(f"the secret is not base64 after {SECRET_PREFIX}") from None
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise InvalidSecret(f"a secret must have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, got {len(key)}")
    return key


def _checked(secret: str | None) -> str:
    if secret is None:
        return new_secret()
    key_of(secret)
    return secret


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
