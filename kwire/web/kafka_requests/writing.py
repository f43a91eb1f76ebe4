"""Writes a message as JSON, with the names of its declaration. Beside an error code that is not 0 stands its name."""

import base64
from collections.abc import Callable, Generator
from functools import lru_cache
from math import isfinite, isnan
from typing import Any, NamedTuple

import msgspec

from kwire.errors import ErrorCode
from kwire.wire.schema import ArrayKind, Kind, Struct, struct_of
from kwire.wire.types import BOOL, BYTES, FLOAT64, RECORDS, STRING, UUID, Fixed, Varlen

# Values that are written between two yields to the event loop, in about half a millisecond.
VALUES_PER_CHUNK = 500
# The maximum size of a message as JSON.
JSON_BYTES_MAX = 16 * 1024 * 1024
# The maximum number of cached tables of fields. There are some hundreds of structs, with a few versions in use each.
TABLES_MAX = 1_000
ERROR_CODE = "error_code"
_CODE = "_code"


class MessageTooLarge(Exception):
    """The JSON of a message exceeds JSON_BYTES_MAX."""


class _Written(NamedTuple):
    """A field, as it is written. `name_key` is the key of the name of an error code; it is empty for other fields."""

    name: str
    kind: Kind
    key: bytes
    name_key: bytes


def error_name_field(name: str) -> str | None:
    """Return the field with the name of an error, for the field with its code; None for other fields.

    `error_code` becomes `error`, and `topic_config_error_code` becomes `topic_config_error`.
    """
    return name.removesuffix(_CODE) if name.endswith(ERROR_CODE) else None


def write_message(message: Any, version: int) -> Generator[None, None, bytes]:
    """Return a message as JSON, written in chunks. Raises MessageTooLarge."""
    return _Writer(version).write(message)


class _Writer:
    """Writes one message."""

    __slots__ = ("_left", "_parts", "_size_bytes", "_version", "_written")

    def __init__(self, version: int) -> None:
        self._version = version
        self._left = VALUES_PER_CHUNK
        # The parts of the current chunk, and the earlier chunks.
        self._parts: list[bytes] = []
        self._written: list[bytes] = []
        self._size_bytes = 0

    def write(self, message: Any) -> Generator[None, None, bytes]:
        yield from self._write_struct(struct_of(type(message)), message)
        self._end_chunk()
        return b"".join(self._written)

    def _write_struct(self, kind: Struct, value: Any) -> Generator[None, None, None]:
        parts, before = self._parts, b"{"
        for name, field_kind, key, name_key in _fields_of(kind, self._version):
            one = getattr(value, name)
            parts.append(before)
            parts.append(key)
            before = b","
            self._left -= 1
            if one is None:
                parts.append(b"null")
            elif isinstance(field_kind, ArrayKind):
                yield from self._write_array(field_kind.element, one)
            elif isinstance(field_kind, Struct):
                yield from self._write_struct(field_kind, one)
            else:
                parts.append(_scalar(field_kind, one))
                if name_key and one:
                    parts.append(name_key)
                    parts.append(msgspec.json.encode(ErrorCode(one).name))
        parts.append(b"}" if before == b"," else b"{}")
        if self._left <= 0:
            yield from self._pause()

    def _write_array(self, element: Fixed | Varlen | Struct, values: list[Any]) -> Generator[None, None, None]:
        parts, before = self._parts, b"["
        for one in values:
            parts.append(before)
            before = b","
            if isinstance(element, Struct):
                yield from self._write_struct(element, one)
                continue
            parts.append(_scalar(element, one))
            self._left -= 1
            if self._left <= 0:
                yield from self._pause()
        parts.append(b"]" if before == b"," else b"[]")

    def _pause(self) -> Generator[None, None, None]:
        self._left = VALUES_PER_CHUNK
        self._end_chunk()
        yield

    def _end_chunk(self) -> None:
        """Move the parts of this chunk to the written ones. Raises MessageTooLarge."""
        written = b"".join(self._parts)
        self._parts.clear()
        self._written.append(written)
        self._size_bytes += len(written)
        if self._size_bytes > JSON_BYTES_MAX:
            raise MessageTooLarge


@lru_cache(TABLES_MAX)
def _fields_of(kind: Struct, version: int) -> tuple[_Written, ...]:
    """Return the fields of a version, including tagged fields."""
    return tuple(
        _Written(field.name, field.kind, _key(field.name), _name_key(field.name))
        for field in kind.fields
        if version in field.versions
    )


def _key(name: str) -> bytes:
    return msgspec.json.encode(name) + b":"


def _name_key(name: str) -> bytes:
    found = error_name_field(name)
    return b"" if found is None else b"," + _key(found)


# --- values


def _scalar(kind: Fixed | Varlen, value: Any) -> bytes:
    write = _WRITERS.get(kind)
    return b"%d" % value if write is None else write(value)


def _base64(value: Any) -> bytes:
    return b'"' + base64.b64encode(value) + b'"'


def _float(value: float) -> bytes:
    if isfinite(value):
        return msgspec.json.encode(value)
    if isnan(value):
        return b'"NaN"'
    return b'"Infinity"' if value > 0 else b'"-Infinity"'


def _uuid(value: Any) -> bytes:
    return b'"' + base64.urlsafe_b64encode(value).rstrip(b"=") + b'"'


_WRITERS: dict[Fixed | Varlen, Callable[[Any], bytes]] = {
    BOOL: msgspec.json.encode,
    FLOAT64: _float,
    STRING: msgspec.json.encode,
    BYTES: _base64,
    RECORDS: _base64,
    UUID: _uuid,
}
