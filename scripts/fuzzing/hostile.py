"""Changes valid requests to hostile ones: they can be decoded, but one to three fields have harmful values."""

import random
from typing import Any

from kwire.wire import types
from kwire.wire.schema import ArrayKind, Field, Kind, Struct, message_of, struct_of

CHANGES_MAX = 3
REPEATS = (0, 2, 3, 50)
# The maximum length of an array. Nested arrays multiply, and the creation of a case must not take longer than its run.
ELEMENTS_MAX = 100

NAMES = [
    *("", "t", "compacted", "g", "nothing", ".", "..", "a/b", "\x00", "ü", "__consumer_offsets", "__transaction_state"),
    *("x" * 249, "x" * 250, "x" * 32767, "ß" * 16000, "1", "-1", "retention.ms", "cleanup.policy", "compression.type"),
    *("min.insync.replicas", "consumer", "range", "99999999999999999999", "1e3", "compact,delete", "true", "null"),
]
NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    -2,
    127,
    -128,
    255,
    32767,
    -32768,
    65535,
    1_000_000,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
]
_BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}


def spoil(message: Any, version: int, chance: random.Random, batches: list[bytes], ids: list[bytes]) -> None:
    """Change the message in place. `ids` has topic ids, some of which exist."""
    kind = message_of(type(message)).struct
    for _ in range(chance.randint(1, CHANGES_MAX)):
        _change(message, kind, version, chance, batches, ids)


def _change(
    message: Any, kind: Struct, version: int, chance: random.Random, batches: list[bytes], ids: list[bytes]
) -> None:
    fields = [f for f in kind.fields if version in f.versions]
    if not fields:
        return
    f = chance.choice(fields)
    value = getattr(message, f.name)
    inner = _inside(f, value, chance)
    if inner is not None and chance.random() < 0.75:
        _change(inner, struct_of(type(inner)), version, chance, batches, ids)
    elif version in f.nullable and chance.random() < 0.2:
        setattr(message, f.name, None)
    elif isinstance(f.kind, ArrayKind):
        setattr(message, f.name, _array(f.kind, value or [], chance, batches, ids))
    elif not isinstance(f.kind, Struct):
        setattr(message, f.name, _scalar(f.kind, chance, batches, ids))


def _inside(f: Field, value: Any, chance: random.Random) -> Any:
    """Return a struct in this field, or None if the field contains no struct."""
    if isinstance(f.kind, Struct):
        return value
    if isinstance(f.kind, ArrayKind) and isinstance(f.kind.element, Struct) and value:
        return chance.choice(value)
    return None


def _array(
    kind: ArrayKind, value: list[Any], chance: random.Random, batches: list[bytes], ids: list[bytes]
) -> list[Any]:
    repeated = (value * chance.choice(REPEATS))[:ELEMENTS_MAX]
    element = kind.element
    if isinstance(element, Struct):
        return repeated
    return [*repeated, _scalar(element, chance, batches, ids)]


def _scalar(kind: Kind, chance: random.Random, batches: list[bytes], ids: list[bytes]) -> Any:
    if kind is types.STRING:
        return chance.choice(NAMES)
    if kind is types.RECORDS:
        return chance.choice([*batches, b"", b"\x00" * 61, batches[0] + batches[1], batches[0][:-1]])
    if kind is types.BYTES:
        return chance.choice([b"", b"\x00\x01", b"\x00\x03\x7f\xff\xff\xff", b"x" * 5000])
    if kind is types.UUID:
        return chance.choice(ids)
    if kind is types.BOOL:
        return chance.random() < 0.5
    if kind is types.FLOAT64:
        return chance.choice([0.0, -1.0, float("inf"), float("nan"), 1e308])
    assert isinstance(kind, types.Fixed)
    bits = _BITS[kind.format]
    lowest, highest = (0, (1 << bits) - 1) if kind.format.isupper() else (-1 << bits - 1, (1 << bits - 1) - 1)
    return min(max(chance.choice(NUMBERS), lowest), highest)
