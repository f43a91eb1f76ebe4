"""The form of a key in the metadata store: one entry, `key/<id>`. Absent fields have their defaults."""

from collections.abc import Callable
from typing import Any

from kwire.access.keys.key import NO_LIMITS, Key, KeyLimits
from kwire.access.scope import Scope

KEY_PREFIX = "key/"


def value_of(key: Key) -> dict[str, Any]:
    value: dict[str, Any] = {"sha256": key.secret_hash.hex(), "number": key.secret_number, "created_ms": key.created_ms}
    if key.alias_of is not None:
        value["alias_of"] = key.alias_of
    else:
        # An alias has these of its key.
        if key.scope is not None:
            value["scope"] = key.scope.id
        if key.is_root:
            value["root"] = True
        limits = {name: limit for name, limit in key.limits._asdict().items() if limit is not None}
        if limits:
            value["limits"] = limits
    if key.previous_hash:
        value["previous"] = {"sha256": key.previous_hash.hex(), "until_ms": key.previous_until_ms}
    for name in ("expires_ms", "used_ms", "description"):
        if getattr(key, name):
            value[name] = getattr(key, name)
    return value


def key_of(key_id: str, value: Any, scope_with_id: Callable[[str], Scope | None], main: Key | None) -> Key:
    """Return the key of an entry. `main` is the key that it is an alias of. Raises ValueError if it cannot be read."""
    try:
        if main is None:
            scope = scope_with_id(value["scope"]) if "scope" in value else None
            is_root = bool(value.get("root", False))
            limits = KeyLimits(**value["limits"]) if "limits" in value else NO_LIMITS
            if scope is None and not is_root:
                raise ValueError("its scope does not exist")
        else:
            scope, is_root, limits = main.scope, main.is_root, main.limits
        previous = value.get("previous")
        return Key(
            id=key_id,
            scope=scope,
            is_root=is_root,
            limits=limits,
            alias_of=None if main is None else main.id,
            description=value.get("description", ""),
            secret_hash=bytes.fromhex(value["sha256"]),
            secret_number=value["number"],
            previous_hash=bytes.fromhex(previous["sha256"]) if previous else b"",
            previous_until_ms=previous["until_ms"] if previous else 0,
            created_ms=value["created_ms"],
            expires_ms=value.get("expires_ms", 0),
            used_ms=value.get("used_ms", 0),
        )
    except (KeyError, TypeError, ValueError) as error:
        # The value is not shown: it has hashes of secrets.
        raise ValueError(f"the key {key_id} in the metadata store cannot be read: {error!r}") from error
