"""A key as administrators see it, over HTTP and in the output of commands. It has nothing secret."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from kwire.access.keys.key import Key
from kwire.access.keys.keys import Keys


class ShownKey(msgspec.Struct, kw_only=True):
    id: str
    scope: Annotated[str | None, msgspec.Meta(description="The name of the data scope.")]
    root: Annotated[bool, msgspec.Meta(description="Whether the key may do everything, with full names.")]
    alias_of: Annotated[str | None, msgspec.Meta(description="The key whose scope, limits and usage this key shares.")]
    description: str
    max_events: int | None
    max_subscriptions: int | None
    publish_rate: Annotated[int | None, msgspec.Meta(description="Events per second.")]
    status: Literal["valid", "expired"]
    created_at: str
    expires_at: str | None
    previous_secret_expires_at: Annotated[
        str | None, msgspec.Meta(description="Until then, the secret before the last rotation is valid, too.")
    ]
    last_used_at: Annotated[
        str | None, msgspec.Meta(description="After a crash of the server it may be an hour too early.")
    ]


def facts_of(keys: Keys, key: Key, now_ms: int) -> dict[str, Any]:
    """Return the values of all fields of a ShownKey."""
    return {
        "id": key.id,
        "scope": None if key.scope is None else key.scope.name,
        "root": key.is_root,
        "alias_of": key.alias_of,
        "description": key.description,
        **key.limits._asdict(),
        "status": "expired" if keys.valid(key.id) is None else "valid",
        "created_at": _time(key.created_ms),
        "expires_at": _time(key.expires_ms),
        "previous_secret_expires_at": _time(key.previous_until_ms if key.has_previous_secret(now_ms) else 0),
        "last_used_at": _time(keys.last_used_ms(key)),
    }


def _time(timestamp_ms: int) -> str | None:
    if not timestamp_ms:
        return None
    return datetime.fromtimestamp(timestamp_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
