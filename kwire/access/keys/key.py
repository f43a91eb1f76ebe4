"""A key: what it may use, how much of it, and until when."""

import re
from typing import NamedTuple

from msgspec import Struct

from kwire.access.keys.key_format import Credentials
from kwire.access.principal import KEY, Principal
from kwire.access.scope import Scope

# The largest number that every JSON parser reads exactly.
LIMIT_MAX = 2**53 - 1
DESCRIPTION_LENGTH_MAX = 200
SCOPE_NAME_LENGTH_MAX = 100

_SCOPE_NAME = re.compile(r"[A-Za-z0-9._:-]+")
# Without control characters.
DESCRIPTION_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*$"


class KeyNotFound(Exception):
    """The key does not exist, or was revoked."""


class IsAlias(Exception):
    """The key is an alias, so it has no aliases and no limits of its own."""


class TooManyKeys(Exception):
    """There are as many keys, scopes or aliases as are allowed."""


class KeyLimits(NamedTuple):
    """The limits of a key and its aliases together. None means that there is no limit."""

    # Events that may be published until the limit is reached. 24 hours after that, the count starts again.
    max_events: int | None = None
    # Subscriptions that may be open at the same time.
    max_subscriptions: int | None = None
    # Events per second.
    publish_rate: int | None = None


NO_LIMITS = KeyLimits()


class NewKey(NamedTuple):
    """What a key is created from. An alias has the scope and the limits of the key that it is an alias of."""

    # The name of the scope. A key that is neither an alias nor a root key must have one.
    scope: str | None = None
    limits: KeyLimits = NO_LIMITS
    is_root: bool = False
    alias_of: str | None = None
    expires_ms: int | None = None
    description: str = ""


class Key(Struct, frozen=True, gc=False):
    """A key. It is replaced when it is changed. Of its secrets it has only hashes.

    A root key is an administrator: its clients use full names and may do everything. It may have a scope, too, for
    endpoints that need one.
    """

    id: str
    scope: Scope | None
    is_root: bool
    # The limits of an alias are those of the key that it is an alias of.
    limits: KeyLimits
    alias_of: str | None
    description: str
    secret_hash: bytes
    # The number of the current secret: 1, and one more after each rotation.
    secret_number: int
    # The hash of the secret before the last rotation, and the time until which it is valid. Empty and 0 if none is.
    previous_hash: bytes
    previous_until_ms: int
    created_ms: int
    # 0 if the key does not expire.
    expires_ms: int
    # The time of the last use that was stored. `Keys.last_used_ms` has later ones. 0 if the key was never used.
    used_ms: int

    @property
    def principal(self) -> Principal:
        return Principal(KEY, self.id)

    @property
    def usage_id(self) -> str:
        """The id under which usage is counted. It is the same for a key and its aliases."""
        return self.alias_of or self.id

    def is_expired(self, now_ms: int) -> bool:
        return 0 < self.expires_ms <= now_ms

    def has_previous_secret(self, now_ms: int) -> bool:
        return now_ms < self.previous_until_ms


class IssuedKey(NamedTuple):
    """A key and its new secret. This is the only time that the secret is known."""

    key: Key
    credentials: Credentials


def check_new_key(new: NewKey, now_ms: int) -> None:
    """Raise ValueError if a key cannot be created from this."""
    if new.alias_of is not None:
        if new.scope is not None or new.is_root or new.limits != NO_LIMITS:
            raise ValueError("an alias has the scope, the limits and the rights of its key: give none for it")
    elif new.scope is None and not new.is_root:
        raise ValueError("a key needs a scope, unless it is a root key or an alias")
    if new.scope is not None:
        check_scope_name(new.scope)
    check_limits(new.limits)
    if new.expires_ms is not None and new.expires_ms <= now_ms:
        raise ValueError("the key must expire in the future")
    if len(new.description) > DESCRIPTION_LENGTH_MAX or not re.fullmatch(DESCRIPTION_PATTERN, new.description):
        raise ValueError(
            f"the description must have at most {DESCRIPTION_LENGTH_MAX} characters, and no control characters"
        )


def check_limits(limits: KeyLimits) -> None:
    for name, value in limits._asdict().items():
        least = 1 if name == "publish_rate" else 0
        if value is not None and not least <= value <= LIMIT_MAX:
            raise ValueError(f"{name} must be {least} or more, got {value}")


def check_scope_name(name: str) -> None:
    if not _SCOPE_NAME.fullmatch(name) or len(name) > SCOPE_NAME_LENGTH_MAX:
        raise ValueError(
            f"the name of a scope must have 1 to {SCOPE_NAME_LENGTH_MAX} letters, digits, dots, colons, hyphens and "
            f"underscores, got {name[:SCOPE_NAME_LENGTH_MAX]!r}"
        )
