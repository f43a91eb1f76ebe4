"""The protocol as an executable specification: a `construct` description of any message in any version.

Written straight from the rules of the protocol and independent of `codec.py`; a property test keeps the two equal.
It is slow and meant for reading, for tests and for tools (`kwire log dump`, frame inspection). This module and
`record_batch_spec.py` are the only ones here that import `construct`, and nothing on the server's path imports them.

                 before flexible versions       flexible versions (KIP-482)
    string       int16 length, utf-8            uvarint length + 1, utf-8
    bytes        int32 length, bytes            uvarint length + 1, bytes
    records      as bytes                       as bytes
    array        int32 count, elements          uvarint count + 1, elements
    null         length or count -1             length or count 0
    struct       fields in order                fields in order, then its tagged fields
    null struct  int8 -1; present: int8 1       the same, in front of the struct (KIP-893); a tagged one: uvarint 0, 1

Tagged fields are a uvarint count and then, in ascending order, a uvarint tag, a uvarint size and the value in so many
bytes. A value equal to its default is not written; a tag nobody knows is stepped over. A string has at most 32767
bytes in either encoding.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from construct import (
    Array,
    Byte,
    Bytes,
    Check,
    Computed,
    Construct,
    Container,
    ExprAdapter,
    ExprValidator,
    Flag,
    Float64b,
    FocusedSeq,
    GreedyBytes,
    If,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int32ub,
    Int64sb,
    Prefixed,
    PrefixedArray,
    Rebuild,
    RepeatUntil,
    StringEncoded,
    Switch,
    Terminated,
    this,
)
from construct import Struct as Fields

from kwire.wire import types
from kwire.wire.errors import WireError
from kwire.wire.schema import ArrayKind, Field, Kind, Struct, message_of, struct_of

M = TypeVar("M")

FIXED: dict[Kind, Construct] = {
    types.BOOL: Flag,
    types.INT8: Int8sb,
    types.INT16: Int16sb,
    types.UINT16: Int16ub,
    types.INT32: Int32sb,
    types.UINT32: Int32ub,
    types.INT64: Int64sb,
    types.FLOAT64: Float64b,
    types.UUID: Bytes(16),
}

STRING_BYTES_MAX = 0x7FFF
UVARINT_BYTES_MAX = 5
# Under this name a parsed struct has the bytes of tags that its declaration does not know; only if there are any.
UNKNOWN_TAGS = "_unknown_tags"


def uvarint_spec(bytes_max: int) -> Construct:
    """An unsigned varint: seven bits a byte, lowest first. construct's own one reads on as long as top bits are set."""
    groups = RepeatUntil(lambda byte, read, _: byte < 128 or len(read) == bytes_max, Byte)
    ended = ExprValidator(groups, lambda read, _: read[-1] < 128)
    return ExprAdapter(
        ended,
        lambda read, _: sum((byte & 127) << 7 * place for place, byte in enumerate(read)),
        lambda number, _: [*_groups_of_seven(number)],
    )


def _groups_of_seven(number: int) -> Iterator[int]:
    while number > 127:
        yield number & 127 | 128
        number >>= 7
    yield number


UVarint = uvarint_spec(UVARINT_BYTES_MAX)

# Zero stands for null, so every other length is one more than it says.
CompactLength = ExprAdapter(UVarint, lambda coded, _: coded - 1, lambda length, _: length + 1)

# The 61 bytes in front of the records of a batch, format 2. `batch_length` counts from `partition_leader_epoch` on,
# the checksum covers everything from `attributes` on.
BatchHeaderSpec = "record_batch_header" / Fields(
    "base_offset" / Int64sb,
    "batch_length" / Int32sb,
    "partition_leader_epoch" / Int32sb,
    "magic" / Int8sb,
    "crc" / Int32ub,
    "attributes" / Int16sb,
    "compression" / Computed(this.attributes & 7),
    "timestamp_type" / Computed(this.attributes >> 3 & 1),
    "is_transactional" / Computed(lambda header: bool(header.attributes & 1 << 4)),
    "is_control" / Computed(lambda header: bool(header.attributes & 1 << 5)),
    "has_delete_horizon" / Computed(lambda header: bool(header.attributes & 1 << 6)),
    "last_offset_delta" / Int32sb,
    "base_timestamp" / Int64sb,
    "max_timestamp" / Int64sb,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "base_sequence" / Int32sb,
    "record_count" / Int32sb,
)


def spec(cls: type[Any], version: int) -> Construct:
    """Describe one message class in one version: parse gives Containers, build takes them or what `to_plain` gives."""
    message = message_of(cls)
    if version not in message.versions:
        raise WireError(f"{message.name} has no version {version}")
    return _struct(message.struct, version, version in message.flexible)


def to_plain(message: Any) -> Any:
    """A message, or any value in one, as dictionaries, lists and scalars."""
    if hasattr(message, "__struct__"):
        return {f.name: to_plain(getattr(message, f.name)) for f in struct_of(type(message)).fields}
    if isinstance(message, list):
        return [to_plain(element) for element in message]
    return bytes(message) if isinstance(message, bytearray | memoryview) else message


def from_plain(cls: type[M], container: Mapping[str, Any]) -> M:
    """The message behind a parsed Container; fields that its version does not carry keep their default."""
    carried = (f for f in struct_of(cls).fields if f.name in container)
    return cls(**{f.name: _made(f.kind, container[f.name]) for f in carried})


def _made(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        return [_made(kind.element, element) for element in value]
    return from_plain(kind.make, value) if isinstance(kind, Struct) else value


def _struct(kind: Struct, version: int, flexible: bool) -> Construct:
    fields = [f.name / _field(f, version, flexible) for f in kind.at(version)]
    if not flexible:
        return Fields(*fields)
    tagged = kind.tagged_at(version)
    absent = {f.name: to_plain([] if f.default is list else f.default) for f in tagged}

    def spread(parsed: Container, _: Container) -> Container:
        """Tagged values join the others; one that did not come is its default."""
        come = {entry.tag: entry.value for entry in parsed.pop("_tagged")}
        parsed.update({f.name: come.pop(f.tag, absent[f.name]) for f in tagged})
        if come:
            parsed[UNKNOWN_TAGS] = come
        return parsed

    def gather(plain: Mapping[str, Any], _: Container) -> dict[str, Any]:
        going = [f for f in tagged if plain.get(f.name, absent[f.name]) != absent[f.name]]
        return {**plain, "_tagged": [{"tag": f.tag, "value": plain[f.name]} for f in going]}

    return ExprAdapter(Fields(*fields, "_tagged" / _tag_section(tagged, version)), spread, gather)


def _tag_section(tagged: list[Field], version: int) -> Construct:
    known = {f.tag: FocusedSeq("value", "value" / _field(f, version, True), Terminated) for f in tagged}
    entry = Fields("tag" / UVarint, "value" / Prefixed(UVarint, Switch(this.tag, known, default=GreedyBytes)))
    return ExprValidator(PrefixedArray(UVarint, entry), lambda entries, _: _ascend([entry["tag"] for entry in entries]))


def _ascend(tags: list[int]) -> bool:
    return tags == sorted(set(tags))


def _field(f: Field, version: int, flexible: bool) -> Construct:
    return _value(f.kind, version, flexible, nullable=version in f.nullable, is_tagged=f.tag is not None)


def _value(kind: Kind, version: int, flexible: bool, *, nullable: bool = False, is_tagged: bool = False) -> Construct:
    if isinstance(kind, Struct):
        body = _struct(kind, version, flexible)
        return _marked(body, is_tagged) if nullable else body
    if isinstance(kind, ArrayKind):
        length = CompactLength if flexible else Int32sb
        return _behind(length, len, Array(this.length, _value(kind.element, version, flexible)), nullable)
    if kind is types.STRING:
        length = CompactLength if flexible else Int16sb
        text = StringEncoded(Bytes(this.length), "utf-8")
        return _behind(length, _utf8_size, text, nullable, most=STRING_BYTES_MAX)
    if kind is types.BYTES or kind is types.RECORDS:
        length = CompactLength if flexible else Int32sb
        return _behind(length, len, Bytes(this.length), nullable)
    return FIXED[kind]


def _behind(
    length: Construct, measure: Callable[[Any], int], body: Construct, nullable: bool, most: int | None = None
) -> Construct:
    """A value behind its length or count, which is -1 for null and, where null is not allowed, never negative."""
    return FocusedSeq(
        "value",
        "length" / Rebuild(length, lambda context: -1 if context["value"] is None else measure(context["value"])),
        Check(this.length >= (-1 if nullable else 0)),
        Check(lambda context: most is None or context["length"] <= most),
        "value" / If(this.length >= 0, body),
    )


def _marked(body: Construct, is_tagged: bool) -> Construct:
    """A struct that may be null, behind a mark that says so."""
    mark, null = (UVarint, 0) if is_tagged else (Int8sb, -1)
    return FocusedSeq(
        "value",
        "mark" / Rebuild(mark, lambda context: null if context["value"] is None else 1),
        "value" / If(this.mark > null, body),
    )


def _utf8_size(text: str) -> int:
    return len(text.encode())
