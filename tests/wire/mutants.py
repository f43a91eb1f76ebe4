"""Declarations broken in one place, to see that the oracles notice.

A mutant is a message declared anew through the same decorators, with one field or one range changed. Changes that
cannot be seen in any version are not made: a bound outside the message's own range, a field of a struct that does not
travel there, a tagged field in a version that has no tags.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NamedTuple

from kwire.wire import schema, types
from kwire.wire.schema import REQUIRED, ArrayKind, Declared, Field, Kind, Message, Struct, Versions, message_of
from kwire.wire.spec import from_plain, to_plain
from kwire.wire.types import Fixed, Varlen

SORTS = ("type", "order", "first version", "last version", "nullability", "tag", "default", "flexibility")
# A type that is easily taken for the other: of the same size, where there is one.
MISTAKEN: dict[Kind, Fixed | Varlen] = {
    types.BOOL: types.INT8,
    types.INT8: types.BOOL,
    types.INT16: types.UINT16,
    types.UINT16: types.INT16,
    types.INT32: types.UINT32,
    types.UINT32: types.INT32,
    types.INT64: types.FLOAT64,
    types.FLOAT64: types.INT64,
    types.UUID: types.BYTES,
    types.STRING: types.BYTES,
    types.BYTES: types.STRING,
    types.RECORDS: types.BYTES,
}
NEVER = Versions(0, -1)


class Mutant(NamedTuple):
    """`sort` is the kind of mistake, `versions` are those in which it can be seen; `declare` makes the class."""

    sort: str
    what: str
    original: type[Any]
    versions: list[int]
    declare: Callable[[], type[Any]]


def mutants_of(cls: type[Any]) -> Iterator[Mutant]:
    """Every mutant of this message that there is."""
    message = message_of(cls)
    for kind, reached in _reached(message).items():
        for position, f in enumerate(kind.fields):
            carried = [version for version in reached if version in f.versions and _travels(message, f, version)]
            if carried:
                for sort, fields, seen in _broken_fields(message, kind, position, reached, carried):
                    what = f"{message.name}: {sort} of {kind.name}.{f.name}"
                    yield Mutant(sort, what, cls, seen, partial(_declared, message, {kind: fields}))
    first = message.flexible.first if message.flexible.last >= 0 else message.versions.last + 1
    for seen_in, moved in ((first, first + 1), (first - 1, first - 1)):
        if seen_in in message.versions:
            broken = replace(message, flexible=Versions(moved, message.versions.last))
            what = f"{message.name}: flexible from {moved}"
            yield Mutant("flexibility", what, cls, [seen_in], partial(_declared, broken, {}))


def unbroken(cls: type[Any]) -> type[Any]:
    """The message declared anew and otherwise unchanged: what no oracle may mind."""
    return _declared(message_of(cls), {})


def _travels(message: Message, f: Field, version: int) -> bool:
    """Whether it would, were it declared for this version: tags need one that is flexible, and something to say."""
    if f.tag is None:
        return True
    is_empty = isinstance(f.kind, Struct) and not f.kind.at(version) and not f.kind.tagged_at(version)
    return version in message.flexible and not is_empty


def _reached(message: Message) -> dict[Struct, list[int]]:
    """The structs of a message, and the versions in which each is part of it."""
    reached: dict[Struct, set[int]] = {message.struct: set(message.versions)}
    waiting = deque([message.struct])
    while waiting:
        kind = waiting.popleft()
        for f in kind.fields:
            inner = f.kind.element if isinstance(f.kind, ArrayKind) else f.kind
            if isinstance(inner, Struct):
                carried = {version for version in reached[kind] if version in f.versions}
                reached[inner] = reached.get(inner, set()) | {v for v in carried if _travels(message, f, v)}
                waiting.append(inner)
    return {kind: sorted(versions) for kind, versions in reached.items() if versions}


def _broken_fields(
    message: Message, kind: Struct, position: int, reached: list[int], carried: list[int]
) -> Iterator[tuple[str, tuple[Field, ...], list[int]]]:
    """(sort of mistake, the struct's fields with it, the versions in which it can be seen)"""
    f = kind.fields[position]

    def changed(**changes: Any) -> tuple[Field, ...]:
        return (*kind.fields[:position], replace(f, **changes), *kind.fields[position + 1 :])

    element = f.kind.element if isinstance(f.kind, ArrayKind) else f.kind
    if not isinstance(element, Struct):
        other = MISTAKEN[element]
        mistaken = ArrayKind(other) if isinstance(f.kind, ArrayKind) else other
        # What cannot be null on the wire cannot be declared so either.
        nullable = NEVER if isinstance(mistaken, Fixed) else f.nullable
        yield "type", changed(kind=mistaken, nullable=nullable, default=_zero(mistaken)), carried
    for later, g in enumerate(kind.fields[position + 1 :], position + 1):
        both = [version for version in carried if version in g.versions]
        if f.tag is None and g.tag is None and both:
            fields = list(kind.fields)
            fields[position], fields[later] = g, f
            yield "order", tuple(fields), both
            break
    yield from _broken_bounds(message, f, changed, reached, carried)
    if not isinstance(f.kind, Fixed):
        nullable_in = [version for version in carried if version in f.nullable]
        if nullable_in:
            yield "nullability", changed(nullable=NEVER, default=_zero(f.kind)), nullable_in
        else:
            yield "nullability", changed(nullable=f.versions), carried
    if f.tag is not None:
        used = {g.tag for g in kind.fields}
        yield "tag", changed(tag=min(tag for tag in range(len(used) + 1) if tag not in used)), carried
        yield "tag", changed(tag=None), carried
        if isinstance(f.kind, Fixed) and f.default != 7:
            yield "default", changed(default=_seven(f.kind)), carried


def _broken_bounds(
    message: Message, f: Field, changed: Callable[..., tuple[Field, ...]], reached: list[int], carried: list[int]
) -> Iterator[tuple[str, tuple[Field, ...], list[int]]]:
    def shifted(versions: Versions) -> tuple[Field, ...]:
        return changed(versions=versions, default=_zero(f.kind) if f.default is REQUIRED else f.default)

    first, last = carried[0], carried[-1]
    if first - 1 in reached and _travels(message, f, first - 1):
        yield "first version", shifted(Versions(first - 1, f.versions.last)), [first - 1]
    if last + 1 in reached and _travels(message, f, last + 1):
        yield "last version", shifted(Versions(f.versions.first, last + 1)), [last + 1]
    if first < last:
        yield "first version", shifted(Versions(first + 1, f.versions.last)), [first]
        yield "last version", shifted(Versions(f.versions.first, last - 1)), [last]


def _zero(kind: Kind) -> Any:
    if isinstance(kind, ArrayKind):
        return list
    if isinstance(kind, Struct):
        has_all = all(f.default is not REQUIRED for f in kind.fields)
        return to_plain(kind.make()) if has_all else None
    return kind.zero


def _seven(kind: Fixed) -> Any:
    """Any value that no default has."""
    return {types.BOOL: True, types.UUID: bytes(15) + b"\7"}.get(kind, 7)


def _declared(message: Message, changed: dict[Struct, tuple[Field, ...]]) -> type[Any]:
    body = _body(message.struct, changed)
    declare: Any = schema.message(key=message.key, versions=_text(message.versions), flexible=_text(message.flexible))
    made: type[Any] = declare(body)
    return made


def _body(kind: Struct, changed: dict[Struct, tuple[Field, ...]]) -> type[Any]:
    """A class as a person would write it, before its decorator."""
    fields = changed.get(kind, kind.fields)
    annotations = {f.name: _annotation(f, changed) for f in fields}
    declared = {f.name: _said(f, annotations[f.name]) for f in fields}
    return type(kind.name, (), {"__annotations__": annotations, **declared})


def _annotation(f: Field, changed: dict[Struct, tuple[Field, ...]]) -> Any:
    hint: Any = _hint(f.kind.element if isinstance(f.kind, ArrayKind) else f.kind, changed)
    if isinstance(f.kind, ArrayKind):
        hint = types.Array[hint]
    return hint if f.nullable.last < f.nullable.first else hint | None


def _hint(kind: Fixed | Varlen | Struct, changed: dict[Struct, tuple[Field, ...]]) -> Any:
    if isinstance(kind, Struct):
        declare: Any = schema.struct()
        return declare(_body(kind, changed))
    return Annotated[type(kind.zero), kind]


def _said(f: Field, annotation: Any) -> Declared:
    default = f.default
    if isinstance(f.kind, Struct) and default is not REQUIRED and default is not None:
        # The default is an object of the class as it was; here it becomes one of the class as it is now.
        made = annotation if hasattr(annotation, "__struct__") else annotation.__args__[0]
        default = from_plain(made, default if isinstance(default, dict) else to_plain(default))
    return Declared(f.versions, f.nullable, f.tag, default)


def _text(versions: Versions) -> str:
    return "none" if versions.last < versions.first else f"{versions.first}-{versions.last}"
