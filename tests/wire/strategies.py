"""Any instance of a declared class: nulls, empty and long values, the ends of every range, nested structs.

Values lean to where encodings change: 127 and 128 are the border between one and two bytes of a compact length, and
large records leave the encoder as parts of their own.
"""

from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from kwire.wire import types
from kwire.wire.codec import SMALL_RECORDS_BYTES
from kwire.wire.schema import ArrayKind, Field, Kind, Struct, message_of
from kwire.wire.types import Fixed, Varlen

M = TypeVar("M")

LIST_LENGTH_MAX = 3
INTEGERS: dict[str, tuple[int, int]] = {
    code: ((-1 << bits - 1, (1 << bits - 1) - 1) if code.islower() else (0, (1 << bits) - 1))
    for code, bits in {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}.items()
}
BORDER_TEXT = ["", "a", "Grüße, 世界 \U0001f30d", "\x00", "a" * 126, "b" * 127, "ß" * 64]
BORDER_BYTES = [b"", b"\x00", b"\xff" * 126, b"k" * 127, b"w" * 128]
BORDER_RECORDS = [b"", b"r" * (SMALL_RECORDS_BYTES - 1), memoryview(b"s" * SMALL_RECORDS_BYTES), bytes(2000)]


def instances(cls: type[M], version: int) -> st.SearchStrategy[M]:
    """Any object that `cls` can be in this version; fields that the version does not carry keep their default."""
    made: st.SearchStrategy[M] = _structs(message_of(cls).struct, version)
    return made


@cache
def _structs(kind: Struct, version: int) -> st.SearchStrategy[Any]:
    return st.builds(kind.make, **{f.name: _fields(f, version) for f in kind.fields if version in f.versions})


def _fields(f: Field, version: int) -> st.SearchStrategy[Any]:
    value = _values(f.kind, version)
    if version in f.nullable:
        value = st.none() | value
    if f.tag is not None and f.default is not list:
        # A tagged field at its default takes another way through the encoder.
        value = st.just(f.default) | value
    return value


def _values(kind: Kind, version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, Struct):
        return _structs(kind, version)
    if isinstance(kind, ArrayKind):
        return st.lists(_values(kind.element, version), max_size=LIST_LENGTH_MAX)
    return _scalars(kind)


@cache
def _scalars(kind: Fixed | Varlen) -> st.SearchStrategy[Any]:
    if kind is types.STRING:
        return st.sampled_from(BORDER_TEXT) | st.text(max_size=8)
    if kind is types.BYTES:
        return st.sampled_from(BORDER_BYTES) | st.binary(max_size=8)
    if kind is types.RECORDS:
        return st.sampled_from(BORDER_RECORDS) | st.binary(max_size=8)
    if kind is types.BOOL:
        return st.booleans()
    if kind is types.FLOAT64:
        return st.floats(allow_nan=False)
    if kind is types.UUID:
        return st.sampled_from([types.ZERO_UUID, b"\xff" * 16]) | st.binary(min_size=16, max_size=16)
    assert isinstance(kind, Fixed)
    lowest, highest = INTEGERS[kind.format]
    return st.sampled_from([lowest, 0, highest]) | st.integers(lowest, highest)
