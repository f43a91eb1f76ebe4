"""The language in which messages are declared. Encoding and decoding are in `codec.py` and `spec.py`.

    @message(key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest:
        group_id: String = field("0+")
        group_instance_id: String | None = field("3+", default=None)

The first argument of `field` is the range of versions that have the field. `| None` makes the field nullable in all its
versions. If it is nullable only in some versions, the argument `nullable` gives their range. `tag` makes the field a
tagged field of flexible versions. Names of resources have types of their own (`TopicName`, `GroupId`), and so do error
messages; the codec translates them for clients with a scope.

A field without a default is a required argument of the constructor. A field that only some versions have must have a
default, so that a handler need not check the version. Types must be declared before they are used, so inner structs
are declared before their message.
"""

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union, dataclass_transform, get_args, get_origin, overload

from kwire.wire.types import ArrayOf, Entity, Fixed, Varlen

T = TypeVar("T")
Class = TypeVar("Class", bound=type[Any])
REQUIRED: Any = object()
LAST_VERSION = 32767


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions, written `4-18`, `12+` or `3`. `none` is the empty range."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), LAST_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Any:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Declared:
    """The arguments of `field(...)`. The class decorator combines them with the name and the annotation."""

    versions: Versions
    nullable: Versions | None
    tag: int | None
    default: Any


@dataclass(frozen=True, slots=True)
class Field:
    """A field, as the codec and the spec use it. `kind` is a primitive, a Struct, or an ArrayKind of either.

    `entity` is the entity of a string, or of the strings of an array.
    """

    name: str
    kind: "Kind"
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    entity: Entity | None = None


@dataclass(frozen=True, slots=True)
class ArrayKind:
    """An array of `element`."""

    element: "Fixed | Varlen | Struct"


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """A declared class and its fields, in encoding order."""

    name: str
    make: type[Any]
    fields: tuple[Field, ...]

    def at(self, version: int) -> list[Field]:
        """Return the untagged fields of this version."""
        return [f for f in self.fields if version in f.versions and f.tag is None]

    def tagged_at(self, version: int) -> list[Field]:
        return sorted((f for f in self.fields if version in f.versions and f.tag is not None), key=lambda f: f.tag or 0)


Kind = Fixed | Varlen | Struct | ArrayKind


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A request, response or stored record: a struct with a version range."""

    name: str
    key: int
    versions: Versions
    flexible: Versions
    struct: Struct


class Api:
    """An API: its key, its versions, and the classes of its request and response."""

    __slots__ = ("first_flexible", "first_version", "key", "last_version", "name", "request", "response", "versions")

    def __init__(self, request: type[Any], response: type[Any]) -> None:
        declared = message_of(request)
        assert message_of(response).versions == declared.versions
        self.key = declared.key
        self.name = declared.name.removesuffix("Request")
        self.versions = declared.versions
        self.first_version = declared.versions.first
        self.last_version = declared.versions.last
        self.first_flexible = declared.flexible.first if declared.flexible.last >= 0 else LAST_VERSION
        self.request = request
        self.response = response

    def __repr__(self) -> str:
        return f"Api({self.name}, key {self.key}, versions {self.versions})"


@overload
def field(versions: str, *, nullable: str | None = None, tag: int | None = None) -> Any: ...
@overload
def field(versions: str, *, nullable: str | None = None, tag: int | None = None, default: Any) -> Any: ...
def field(versions: str, *, nullable: str | None = None, tag: int | None = None, default: Any = REQUIRED) -> Any:
    """Declare the versions that have a field, and the default of the field in other versions."""
    return Declared(Versions.parse(versions), Versions.parse(nullable) if nullable else None, tag, default)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct() -> Callable[[Class], Class]:
    """Declare a nested struct of a message."""
    return lambda cls: _slotted(cls, None)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(*, versions: str, flexible: str, key: int = -1) -> Callable[[Class], Class]:
    """Declare a message. `key` is the API key; records of internal topics have no API key."""
    return lambda cls: _slotted(cls, (key, Versions.parse(versions), Versions.parse(flexible)))


def struct_of(cls: type[Any]) -> Struct:
    found: Struct = cls.__struct__
    return found


def message_of(cls: type[Any]) -> Message:
    found: Message = cls.__message__
    return found


def _slotted(cls: type[Any], head: tuple[int, Versions, Versions] | None) -> Any:
    """Convert a declaration to a class with slots, whose constructor has a keyword argument for every field."""
    fields = tuple(_field(name, hint, cls.__dict__[name]) for name, hint in cls.__annotations__.items())
    body: dict[str, Any] = {
        "__slots__": tuple(f.name for f in fields),
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__init__": _constructor_on_first_use(fields),
        "__eq__": _equal,
        "__hash__": None,
        "__repr__": _show,
    }
    made: Any = type(cls.__name__, (), body)
    made.__struct__ = Struct(cls.__name__, made, fields)
    if head is not None:
        key, versions, flexible = head
        made.__message__ = Message(cls.__name__, key, versions, flexible, made.__struct__)
    return made


def _field(name: str, hint: Any, declared: Declared) -> Field:
    kind, optional = _kind(hint)
    nullable = Versions(0, -1) if not optional else declared.nullable or declared.versions
    default = declared.default
    if isinstance(default, type) and default is not list:
        default = default()
    return Field(name, kind, declared.versions, nullable, declared.tag, default, _entity(hint))


def _kind(hint: Any) -> tuple[Kind, bool]:
    """Return the kind of an annotation (`Array[X]`, `X | None`, a primitive, a class) and whether it is nullable."""
    if get_origin(hint) in (Union, types.UnionType):
        inner = [arg for arg in get_args(hint) if arg is not type(None)]
        return _kind(inner[0])[0], True
    if get_origin(hint) is Annotated:
        base, primitive = get_args(hint)[:2]
        if isinstance(primitive, ArrayOf):
            element, _ = _kind(get_args(base)[0])
            assert not isinstance(element, ArrayKind)
            return ArrayKind(element), False
        assert isinstance(primitive, Fixed | Varlen)
        return primitive, False
    return struct_of(hint), False


def _entity(hint: Any) -> Entity | None:
    """Return the entity of an annotation, or of the elements of an array."""
    if get_origin(hint) in (Union, types.UnionType):
        return next((found for arg in get_args(hint) if (found := _entity(arg)) is not None), None)
    if get_origin(hint) is Annotated:
        base, primitive, *entities = get_args(hint)
        if isinstance(primitive, ArrayOf):
            return _entity(get_args(base)[0])
        return entities[0] if entities else None
    return None


def _constructor_on_first_use(fields: tuple[Field, ...]) -> Any:
    """Return a constructor that replaces itself with the generated one when the first object is created.

    Hundreds of classes are declared, and a server uses only some of them. If all constructors were generated at import,
    the import would take nearly twice as long.
    """

    def make_and_call(self: Any, *args: Any, **values: Any) -> None:
        made = type(self).__init__ = _constructor(fields)
        made(self, *args, **values)

    return make_and_call


def _constructor(fields: tuple[Field, ...]) -> Any:
    """Generate a keyword constructor with one `exec`. It is as fast as a hand-written one.

    Each object gets its own list for a list default. A struct default is one shared object, which is never modified.
    """
    if not fields:
        return lambda self: None
    names: dict[str, Any] = {}
    parameters, body = [], []
    for f in fields:
        if f.default is REQUIRED:
            parameters.append(f.name)
            body.append(f" self.{f.name} = {f.name}")
        elif f.default is list:
            # REQUIRED marks an argument that was not passed. None cannot: a nullable array may be set to None.
            names["_absent"] = REQUIRED
            parameters.append(f"{f.name}=_absent")
            body.append(f" self.{f.name} = [] if {f.name} is _absent else {f.name}")
        else:
            names[f"_default_{f.name}"] = f.default
            parameters.append(f"{f.name}=_default_{f.name}")
            body.append(f" self.{f.name} = {f.name}")
    exec(f"def __init__(self, *, {', '.join(parameters)}):\n" + "\n".join(body), names)
    return names["__init__"]


def _equal(self: Any, other: Any) -> bool:
    return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _show(self: Any) -> str:
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__name__}({inside})"
