"""The executable specification of the protocol: a `construct` description of any message in any version.

This module implements the rules of the protocol independently of `codec.py`, and a property test compares the two. It
is slow, and is meant for readers, tests and tools (`kwire log dump`, frame inspection). Only this module and
`record_batch_spec.py` import `construct`, and the server imports neither of them.

                 before flexible versions       flexible versions (KIP-482)
    string       int16 length, utf-8            uvarint length + 1, utf-8
    bytes        int32 length, bytes            uvarint length + 1, bytes
    records      the same as bytes              the same as bytes
    array        int32 count, elements          uvarint count + 1, elements
    null         length or count -1             length or count 0
    struct       fields in order                fields in order, then its tagged fields
    nullable     int8 -1 for null, or           as before flexible versions (KIP-893);
      struct     int8 1 and the struct          in a tagged field: uvarint 0 for null, or uvarint 1 and the struct

A section of tagged fields is a uvarint count, and then for each field, in ascending order of tags, a uvarint tag, a
uvarint size and the value. A value that equals its default is not written. An unknown tag is skipped. A string has at
most 32767 bytes in both encodings.
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
# The key, in a parsed struct, of the values of unknown tags. It is missing if there are none.
UNKNOWN_TAGS = "_unknown_tags"


def uvarint_spec(bytes_max: int) -> Construct:
    """Return the spec of an unsigned varint: seven bits per byte, lowest first, and at most `bytes_max` bytes.

    The VarInt of construct has no maximum length.
    """
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

# A length or count in flexible versions. It is encoded as length + 1, because 0 is null.
CompactLength = ExprAdapter(UVarint, lambda coded, _: coded - 1, lambda length, _: length + 1)

# The 61 bytes before the records of a batch, format 2. `batch_length` is the number of bytes from
# `partition_leader_epoch` on. The checksum covers all bytes from `attributes` on.
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
    """Return the spec of a message class in one version. It parses to Containers, and builds from mappings."""
    message = message_of(cls)
    if version not in message.versions:
        raise WireError(f"{message.name} has no version {version}")
    return _struct(message.struct, version, version in message.flexible)


def to_plain(message: Any) -> Any:
    """Convert a message, or a value of its fields, to dictionaries, lists and scalars."""
    if hasattr(message, "__struct__"):
        return {f.name: to_plain(getattr(message, f.name)) for f in struct_of(type(message)).fields}
    if isinstance(message, list):
        return [to_plain(element) for element in message]
    return bytes(message) if isinstance(message, bytearray | memoryview) else message


def from_plain(cls: type[M], container: Mapping[str, Any]) -> M:
    """Convert a parsed Container to a message. Fields that are not in the Container have their defaults."""
    carried = (f for f in struct_of(cls).fields if f.name in container)
    return cls(**{f.name: _value_from_plain(f.kind, container[f.name]) for f in carried})


def _value_from_plain(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        return [_value_from_plain(kind.element, element) for element in value]
    return from_plain(kind.make, value) if isinstance(kind, Struct) else value


def _struct(kind: Struct, version: int, flexible: bool) -> Construct:
    fields = [f.name / _field(f, version, flexible) for f in kind.at(version)]
    if not flexible:
        return Fields(*fields)
    tagged = kind.tagged_at(version)
    absent = {f.name: to_plain([] if f.default is list else f.default) for f in tagged}

    def unpack_tags(parsed: Container, _: Container) -> Container:
        """Add the tagged values to the other fields. A tagged field that was not sent has its default."""
        values = {entry.tag: entry.value for entry in parsed.pop("_tagged")}
        parsed.update({f.name: values.pop(f.tag, absent[f.name]) for f in tagged})
        if values:
            parsed[UNKNOWN_TAGS] = values
        return parsed

    def pack_tags(plain: Mapping[str, Any], _: Container) -> dict[str, Any]:
        present = [f for f in tagged if plain.get(f.name, absent[f.name]) != absent[f.name]]
        return {**plain, "_tagged": [{"tag": f.tag, "value": plain[f.name]} for f in present]}

    return ExprAdapter(Fields(*fields, "_tagged" / _tag_section(tagged, version)), unpack_tags, pack_tags)


def _tag_section(tagged: list[Field], version: int) -> Construct:
    known = {f.tag: FocusedSeq("value", "value" / _field(f, version, True), Terminated) for f in tagged}
    entry = Fields("tag" / UVarint, "value" / Prefixed(UVarint, Switch(this.tag, known, default=GreedyBytes)))
    return ExprValidator(
        PrefixedArray(UVarint, entry), lambda entries, _: _are_ascending([entry["tag"] for entry in entries])
    )


def _are_ascending(tags: list[int]) -> bool:
    return tags == sorted(set(tags))


def _field(f: Field, version: int, flexible: bool) -> Construct:
    return _value(f.kind, version, flexible, nullable=version in f.nullable, is_tagged=f.tag is not None)


def _value(kind: Kind, version: int, flexible: bool, *, nullable: bool = False, is_tagged: bool = False) -> Construct:
    if isinstance(kind, Struct):
        body = _struct(kind, version, flexible)
        return _nullable_struct(body, is_tagged) if nullable else body
    if isinstance(kind, ArrayKind):
        length = CompactLength if flexible else Int32sb
        return _length_prefixed(length, len, Array(this.length, _value(kind.element, version, flexible)), nullable)
    if kind is types.STRING:
        length = CompactLength if flexible else Int16sb
        text = StringEncoded(Bytes(this.length), "utf-8")
        return _length_prefixed(length, _utf8_size, text, nullable, most=STRING_BYTES_MAX)
    if kind is types.BYTES or kind is types.RECORDS:
        length = CompactLength if flexible else Int32sb
        return _length_prefixed(length, len, Bytes(this.length), nullable)
    return FIXED[kind]


def _length_prefixed(
    length: Construct, measure: Callable[[Any], int], body: Construct, nullable: bool, most: int | None = None
) -> Construct:
    """Return the spec of a length or count followed by the value. The length of null is -1."""
    return FocusedSeq(
        "value",
        "length" / Rebuild(length, lambda context: -1 if context["value"] is None else measure(context["value"])),
        Check(this.length >= (-1 if nullable else 0)),
        Check(lambda context: most is None or context["length"] <= most),
        "value" / If(this.length >= 0, body),
    )


def _nullable_struct(body: Construct, is_tagged: bool) -> Construct:
    """Return the spec of a struct that may be null, after the number that says whether it is null."""
    presence, null = (UVarint, 0) if is_tagged else (Int8sb, -1)
    return FocusedSeq(
        "value",
        "presence" / Rebuild(presence, lambda context: null if context["value"] is None else 1),
        "value" / If(this.presence > null, body),
    )


def _utf8_size(text: str) -> int:
    return len(text.encode())
