"""Any instance of a declared class: nulls, empty and long values, the ends of every range, nested structs.

Scalars are chosen from lists that lean to where encodings change (127 and 128 are the border between one and two bytes
of a compact length; large records leave the encoder as parts of their own): there are hundreds of messages to try, and
choosing is much faster than inventing. `invented` is for the tests that can take their time.
"""

from functools import cache
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kwire.wire import types
from kwire.wire.codec import SMALL_RECORDS_BYTES
from kwire.wire.schema import ArrayKind, Field, Kind, Struct, message_of
from kwire.wire.types import Fixed, Varlen

M = TypeVar("M")

# There are some six hundred cases, so each one gets few examples; a slow machine is no failure.
FEW = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
DRAWN_COUNT = 3
LIST_LENGTH_MAX = 3
# The bits of an integer by its format character; capitals are unsigned.
INTEGER_BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}
CHOICES: dict[Fixed | Varlen, list[Any]] = {
    types.BOOL: [False, True],
    types.FLOAT64: [0.0, -0.5, 1e308, float("inf"), 5e-324],
    types.UUID: [types.ZERO_UUID, b"\xff" * 16, bytes(range(16))],
    types.STRING: [
        "",
        "a",
        "topic-1",
        "Grüße, 世界 \U0001f30d",
        "\x00",
        "\ufeff",
        "é" * 63,
        "a" * 126,
        "b" * 127,
        "ß" * 64,
    ],
    types.BYTES: [b"", b"\x00", b"\xff\xfe", b"k" * 126, b"l" * 127, b"m" * 128],
    types.RECORDS: [b"", bytes(range(256)), b"t" * (SMALL_RECORDS_BYTES - 1), memoryview(b"s" * SMALL_RECORDS_BYTES)],
}


def instances(cls: type[M], version: int) -> st.SearchStrategy[M]:
    """Any object that `cls` can be in this version; fields that the version does not carry keep their default."""
    made: st.SearchStrategy[M] = _structs(message_of(cls).struct, version)
    return made


def drawn(cls: type[M], version: int) -> list[M]:
    """A few such objects, the same ones all through a run, for tests that do much with each of them."""
    if (cls, version) not in _drawn:
        kept = _drawn[cls, version] = []

        @settings(FEW, max_examples=DRAWN_COUNT, database=None)
        @given(instances(cls, version))
        def keep(message: M) -> None:
            kept.append(message)

        keep()
    return _drawn[cls, version]


_drawn: dict[tuple[type[Any], int], list[Any]] = {}


def invented(kind: Kind) -> st.SearchStrategy[Any]:
    """Any scalar of this kind whatsoever."""
    if kind is types.STRING:
        return st.text()
    if kind is types.BYTES or kind is types.RECORDS:
        return st.binary()
    if kind is types.BOOL:
        return st.booleans()
    if kind is types.FLOAT64:
        return st.floats(allow_nan=False)
    if kind is types.UUID:
        return st.binary(min_size=16, max_size=16)
    assert isinstance(kind, Fixed)
    lowest, highest = _limits(kind)
    return st.integers(lowest, highest)


@cache
def _structs(kind: Struct, version: int) -> st.SearchStrategy[Any]:
    return st.builds(kind.make, **{f.name: _fields(f, version) for f in kind.fields if version in f.versions})


def _fields(f: Field, version: int) -> st.SearchStrategy[Any]:
    # A tagged field at its default takes another way through the encoder.
    further = [None] * (version in f.nullable) + [f.default] * (f.tag is not None and f.default is not list)
    if isinstance(f.kind, Struct):
        return st.one_of(*map(st.just, further), _structs(f.kind, version))
    if isinstance(f.kind, ArrayKind):
        return st.one_of(*map(st.just, further), _arrays(f.kind, version))
    return st.sampled_from([*further, *_scalars(f.kind)])


@cache
def _arrays(kind: ArrayKind, version: int) -> st.SearchStrategy[list[Any]]:
    element = kind.element
    values = _structs(element, version) if isinstance(element, Struct) else st.sampled_from(_scalars(element))
    return st.lists(values, max_size=LIST_LENGTH_MAX)


def _scalars(kind: Fixed | Varlen) -> list[Any]:
    if kind in CHOICES:
        return CHOICES[kind]
    assert isinstance(kind, Fixed)
    lowest, highest = _limits(kind)
    return sorted({lowest, lowest + 1, max(lowest, -1), 0, 1, 0x1234 & highest, 0x123456789ABCDEF & highest, highest})


def _limits(kind: Fixed) -> tuple[int, int]:
    bits = INTEGER_BITS[kind.format]
    return (0, (1 << bits) - 1) if kind.format.isupper() else (-1 << bits - 1, (1 << bits - 1) - 1)
