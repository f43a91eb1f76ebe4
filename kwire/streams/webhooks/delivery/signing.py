"""Signatures as Standard Webhooks has them: HMAC-SHA256 over id, time and body, keyed with a secret `whsec_…`.

While a secret is being replaced, messages are signed with the new one and the old one, so a receiver may change over
whenever it likes. Receivers refuse messages whose time is more than five minutes off, so each attempt is signed anew.
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
# What the specification allows.
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
SECRET_BYTES_MADE = 32
# Of one webhook at a time: the newest, and those that still sign until they expire.
SECRETS_MAX = 4
# Keys of secrets that were used last: to decode one takes longer than to sign with it.
KEYS_KEPT = 2000

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
SIGNING_HEADERS = frozenset({ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER})


class InvalidSecret(ValueError):
    """What was given is no secret; the text says why and does not quote it."""


class TooManySecrets(ValueError):
    """So many rotations are under way that one more cannot begin."""


class SigningSecret(NamedTuple):
    """`until_ms` is when it stops signing; None: it is the one in force."""

    secret: str
    until_ms: int | None = None


class SigningSecrets(NamedTuple):
    """All secrets of one webhook, the newest first; it never changes."""

    secrets: tuple[SigningSecret, ...]

    @classmethod
    def first(cls, secret: str | None = None) -> Self:
        """With one that is made, or is given; raises InvalidSecret."""
        return cls((SigningSecret(_checked(secret)),))

    @property
    def current(self) -> str:
        return self.secrets[0].secret

    def rotated(self, now_ms: int, overlap_ms: int, secret: str | None = None) -> Self:
        """The new one in front; the one before it signs for `overlap_ms` more. Raises InvalidSecret, TooManySecrets."""
        newest = SigningSecret(_checked(secret))
        kept = [one for one in self.at(now_ms).secrets if one.secret != newest.secret]
        if overlap_ms <= 0:
            # The old one is known to somebody who should not know it: nothing is signed with it, or with older ones.
            return type(self)((newest,))
        kept = [one._replace(until_ms=now_ms + overlap_ms) if one.until_ms is None else one for one in kept]
        if len(kept) >= SECRETS_MAX:
            raise TooManySecrets(f"{len(kept)} secrets still sign: wait until one of them has expired")
        return type(self)((newest, *kept))

    def at(self, now_ms: int) -> Self:
        """Without those that have expired."""
        left = tuple(one for one in self.secrets if one.until_ms is None or one.until_ms > now_ms)
        return type(self)(left)

    def headers(self, event_id: str, body: bytes, now_ms: int) -> dict[str, str]:
        """The three headers of one attempt at `now_ms`."""
        timestamp = now_ms // 1000
        identity = message_id(event_id)
        return {
            ID_HEADER: identity,
            TIMESTAMP_HEADER: str(timestamp),
            SIGNATURE_HEADER: signatures([one.secret for one in self.at(now_ms).secrets], identity, timestamp, body),
        }


def message_id(event_id: str) -> str:
    """The event's id, the same for every attempt. A full stop would end the id in what is signed, and one signature
    would stand for two messages; topics may have them in their names, so `~`, which no name has, stands for it."""
    return event_id.replace(".", "~")


def signatures(secrets_: Sequence[str], identity: str, timestamp: int, body: bytes) -> str:
    """The value of the header: one signature for each secret."""
    signed = b"%b.%d.%b" % (identity.encode(), timestamp, body)
    return " ".join(f"v1,{_encoded(hmac.digest(key_of(one), signed, hashlib.sha256))}" for one in secrets_)


def new_secret() -> str:
    return SECRET_PREFIX + _encoded(secrets.token_bytes(SECRET_BYTES_MADE))


@lru_cache(KEYS_KEPT)
def key_of(secret: str) -> bytes:
    """The bytes that a secret stands for; raises InvalidSecret."""
    if not secret.startswith(SECRET_PREFIX):
        raise InvalidSecret(f"a secret begins with {SECRET_PREFIX}")
    text = secret.removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSecret(f"what follows {SECRET_PREFIX} is not base64") from None
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise InvalidSecret(f"a secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, this one has {len(key)}")
    return key


def _checked(secret: str | None) -> str:
    if secret is None:
        return new_secret()
    key_of(secret)
    return secret


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
