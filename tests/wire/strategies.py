"""Any instance of a declared class: nulls, empty and long values, the ends of every range, nested structs.

Scalars are chosen from lists that lean to where encodings change (127 and 128 are the border between one and two bytes
of a compact length; large records leave the encoder as parts of their own): there are hundreds of messages to try, and
choosing is much faster than inventing. `invented` is for the tests that can take their time.

`drawn` chooses without hypothesis, whose start takes longer than checking a message in one version.
"""

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kwire.wire import types
from kwire.wire.codec import SMALL_RECORDS_BYTES
from kwire.wire.schema import ArrayKind, Field, Kind, Struct, message_of
from kwire.wire.types import Fixed, Varlen
from tests.wire.cases import run_seed

M = TypeVar("M")

# There are about two hundred messages, so each one gets few examples. Slow drawing is not a failure.
FEW = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
DRAWN_COUNT = 3
AGREEMENT_COUNT = 6
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

# As many as the longest list of choices has.
CORNER_ROUNDS = max(map(len, CHOICES.values()))
LONG_COUNT = 200
LONG: dict[Kind, Any] = {types.STRING: "w" * 0x7FFF, types.BYTES: b"v" * 40_000, types.RECORDS: b"u" * 70_000}


def instances(cls: type[M], version: int) -> st.SearchStrategy[M]:
    """Any object that `cls` can be in this version; fields that the version does not carry keep their default."""
    made: st.SearchStrategy[M] = _structs(message_of(cls).struct, version)
    return made


def instances_of_any(cls: type[M], versions: Sequence[int]) -> st.SearchStrategy[tuple[int, M]]:
    """One of the versions, and any object that `cls` can be in it."""
    return st.sampled_from(versions).flatmap(lambda version: st.tuples(st.just(version), instances(cls, version)))


def drawn(cls: type[M], version: int, count: int = DRAWN_COUNT) -> list[M]:
    """The smallest such object and random ones; `run_seed` decides which."""
    kind, chance = message_of(cls).struct, Random(f"{cls.__name__} {version} {run_seed()}")
    smallest: M = _drawn_struct(kind, version, None)
    return [smallest, *(_drawn_struct(kind, version, chance) for _ in range(count - 1))]


def _drawn_struct(kind: Struct, version: int, chance: Random | None) -> Any:
    """An object of random values, or of the first choice of each field."""
    return kind.make(**{f.name: _drawn_field(f, version, chance) for f in kind.fields if version in f.versions})


def _drawn_field(f: Field, version: int, chance: Random | None) -> Any:
    further = _further(f, version)
    if isinstance(f.kind, Fixed | Varlen):
        return _chosen([*further, *_scalars(f.kind)], chance)
    position = 0 if chance is None else chance.randrange(len(further) + 1)
    if position < len(further):
        return further[position]
    if isinstance(f.kind, Struct):
        return _drawn_struct(f.kind, version, chance)
    element = f.kind.element
    length = 0 if chance is None else chance.randint(0, LIST_LENGTH_MAX)
    if isinstance(element, Struct):
        return [_drawn_struct(element, version, chance) for _ in range(length)]
    return [_chosen(_scalars(element), chance) for _ in range(length)]


def _chosen(choices: list[Any], chance: Random | None) -> Any:
    return choices[0] if chance is None else chance.choice(choices)


def _further(f: Field, version: int) -> list[Any]:
    """What a field can be besides any value of its kind: null, and the default of a tagged field.

    A tagged field at its default takes another way through the encoder.
    """
    return [None] * (version in f.nullable) + [f.default] * (f.tag is not None and f.default is not list)


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
    further = _further(f, version)
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


@cache
def _scalars(kind: Fixed | Varlen) -> list[Any]:
    if kind in CHOICES:
        return CHOICES[kind]
    assert isinstance(kind, Fixed)
    lowest, highest = _limits(kind)
    return sorted({lowest, lowest + 1, max(lowest, -1), 0, 1, 0x1234 & highest, 0x123456789ABCDEF & highest, highest})


def _limits(kind: Fixed) -> tuple[int, int]:
    bits = INTEGER_BITS[kind.format]
    return (0, (1 << bits) - 1) if kind.format.isupper() else (-1 << bits - 1, (1 << bits - 1) - 1)


def corners(cls: type[M], version: int) -> list[M]:
    """The same few objects every time: each field takes each of its choices once, is null, empty, very long, default.

    Neighbours never agree all the time, so that two of one type cannot stand in for each other unnoticed.
    """
    kind, carried = message_of(cls).struct, version in message_of(cls).flexible
    made = [_Corner(version, shift=shift).struct(kind) for shift in range(CORNER_ROUNDS)]
    made += [_Corner(version, null_scalars=True, count=2).struct(kind)]
    # A null array hides what is inside it, so these are null one at a time.
    made += [_Corner(version, nulled=f).struct(kind) for f in _nullable_compounds(kind, version)]
    made += [_Corner(version, count=0).struct(kind)]
    made += [_Corner(version, tagged=False).struct(kind)] * carried
    measure = _Corner(version)
    measure.struct(kind)
    if measure.stretchable:
        made += [_Corner(version, stretched=version % measure.stretchable).struct(kind)]
    return made


class _Corner:
    """Builds one object; `stretched` is the place, counted from the front, of the one value that is very long."""

    def __init__(
        self,
        version: int,
        *,
        shift: int = 0,
        count: int = 1,
        null_scalars: bool = False,
        nulled: Field | None = None,
        tagged: bool = True,
        stretched: int = -1,
    ) -> None:
        self.version = version
        self.count = count
        self.null_scalars = null_scalars
        self.nulled = nulled
        self.tagged = tagged
        self.stretched = stretched
        self.stretchable = 0
        self.serial = shift

    def struct(self, kind: Struct) -> Any:
        carried = [f for f in kind.fields if self.version in f.versions and (self.tagged or f.tag is None)]
        return kind.make(**{f.name: self.field(f) for f in carried})

    def field(self, f: Field) -> Any:
        is_scalar = isinstance(f.kind, Fixed | Varlen)
        if f is self.nulled or (is_scalar and self.null_scalars and self.version in f.nullable):
            return None
        return self.value(f.kind)

    def value(self, kind: Kind) -> Any:
        if isinstance(kind, Struct):
            return self.struct(kind)
        is_long = isinstance(kind, ArrayKind | Varlen) and self.stretchable == self.stretched
        self.stretchable += isinstance(kind, ArrayKind | Varlen)
        if isinstance(kind, ArrayKind):
            return [self.value(kind.element) for _ in range(LONG_COUNT if is_long else self.count)]
        choices = [LONG[kind]] if is_long else _scalars(kind)
        self.serial += 1
        return choices[self.serial % len(choices)]


def _nullable_compounds(kind: Struct, version: int) -> list[Field]:
    """Every array and struct, however deep, that can be null in this version."""
    found = []
    for f in kind.fields:
        if version in f.versions and isinstance(f.kind, Struct | ArrayKind):
            inner = f.kind.element if isinstance(f.kind, ArrayKind) else f.kind
            found += [f] * (version in f.nullable)
            found += _nullable_compounds(inner, version) if isinstance(inner, Struct) else []
    return found
