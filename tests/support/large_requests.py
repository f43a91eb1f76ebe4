"""Requests with very long arrays, made from the declarations of the messages: one for each array of each API."""

import struct
from collections.abc import Iterator
from typing import Any

from kwire.wire.codec import encode_message
from kwire.wire.schema import Api, ArrayKind, Field, Kind, Struct, message_of
from kwire.wire.types import STRING, UUID, Fixed, Varlen

CLIENT_ID = b"large"
# A path is the names of the fields that lead to an array, for example ("topics", "partitions").
Path = tuple[str, ...]


def array_paths(api: Api, version: int) -> list[Path]:
    """The arrays that a request of this version may have, those inside of others included."""
    return list(_paths(message_of(api.request).struct, version, ()))


def large_request(api: Api, version: int, path: Path, count: int) -> bytes:
    """A frame whose array at `path` has `count` elements; arrays on the way there have one, all others none."""
    body = encode_message(_value(message_of(api.request).struct, version, path, count, 0), version)
    return request_frame(api, version, body)


def request_frame(api: Api, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    header = struct.pack(">hhih", api.key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    if version >= api.first_flexible:
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def _paths(kind: Struct, version: int, before: Path) -> Iterator[Path]:
    for field in (*kind.at(version), *kind.tagged_at(version)):
        path = (*before, field.name)
        if isinstance(field.kind, ArrayKind):
            yield path
            if isinstance(field.kind.element, Struct):
                yield from _paths(field.kind.element, version, path)
        elif isinstance(field.kind, Struct):
            yield from _paths(field.kind, version, path)


def _value(kind: Kind, version: int, path: Path, count: int, number: int) -> Any:
    """A value of this kind; strings, ids and numbers of elements differ from each other."""
    if isinstance(kind, Struct):
        return kind.make(**{field.name: _field(field, version, path, count, number) for field in kind.fields})
    if kind is UUID:
        return number.to_bytes(16, "big")
    if isinstance(kind, Fixed):
        return number if kind.format in "iq" else kind.zero
    assert isinstance(kind, Varlen)
    return f"n{number}" if kind is STRING else b""


def _field(field: Field, version: int, path: Path, count: int, number: int) -> Any:
    is_on_path = bool(path) and path[0] == field.name
    if version not in field.versions or (field.tag is not None and not is_on_path):
        return [] if field.default is list else field.default
    rest = path[1:] if is_on_path else ()
    if isinstance(field.kind, ArrayKind):
        element_count = 0 if not is_on_path else 1 if rest else count
        return [_value(field.kind.element, version, rest, count, number) for number in range(element_count)]
    if version in field.nullable and isinstance(field.kind, Struct) and not is_on_path:
        return None
    return _value(field.kind, version, rest, count, number)
