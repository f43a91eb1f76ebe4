"""Reads a request from JSON. The declaration of the message says which fields there are, and of which types.

Errors name the field by its path: `topics[0].num_partitions must be a 32-bit integer, got "x"`.
"""

import base64
import binascii
from collections.abc import Callable, Generator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import msgspec

from kwire.web.answers.errors import BadRequest
from kwire.wire.codec import STRING_BYTES_MAX
from kwire.wire.schema import REQUIRED, Api, ArrayKind, Field, Struct, message_of
from kwire.wire.types import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Fixed,
    Varlen,
)

# Values that are read between two yields to the event loop, in about half a millisecond.
VALUES_PER_CHUNK = 500
# Errors quote at most this many characters of a value or of a name.
QUOTED_LENGTH_MAX = 100
# The error for an unknown field lists the known fields if there are at most this many.
LISTED_FIELDS_MAX = 15
# The maximum number of cached tables of fields. There are some hundreds of structs, with a few versions in use each.
TABLES_MAX = 1_000
UUID_LENGTH = 22
# JSON has no numbers for these values.
NOT_FINITE = ("Infinity", "-Infinity", "NaN")

INTEGER_BITS: Mapping[Fixed, tuple[int, bool]] = {
    INT8: (8, True),
    INT16: (16, True),
    UINT16: (16, False),
    INT32: (32, True),
    UINT32: (32, False),
    INT64: (64, True),
}


def integer_range(kind: Fixed) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type."""
    bits, is_signed = INTEGER_BITS[kind]
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)


_RANGES = {kind: integer_range(kind) for kind in INTEGER_BITS}

Read = Callable[[Any, str], Any]


def read_request(api: Api, version: int, body: Any) -> Generator[None, None, Any]:
    """Read the request of a version from a decoded JSON value, in chunks. Raises BadRequest."""
    return _Reader(api, version).read_struct(message_of(api.request).struct, body, "")


class _Reader:
    """Reads one request."""

    __slots__ = ("_api", "_left", "_version")

    def __init__(self, api: Api, version: int) -> None:
        self._api = api
        self._version = version
        self._left = VALUES_PER_CHUNK

    def read_struct(self, kind: Struct, value: Any, path: str) -> Generator[None, None, Any]:
        if type(value) is not dict:
            raise _mismatch(path or "the body", "must be an object", value)
        fields = _fields_of(kind, self._version)
        for name in value:
            if name not in fields:
                raise self._unknown(kind, name, path)
        made: dict[str, Any] = {}
        for name, field in fields.items():
            self._left -= 1
            place = f"{path}.{name}" if path else name
            if name not in value:
                if field.default is REQUIRED:
                    raise BadRequest(f"{place} is missing: {self._where} requires it")
            elif value[name] is None:
                if self._version not in field.nullable:
                    raise BadRequest(f"{place} must not be null in {self._where}")
                made[name] = None
            elif isinstance(field.kind, Struct):
                made[name] = yield from self.read_struct(field.kind, value[name], place)
            elif isinstance(field.kind, ArrayKind):
                made[name] = yield from self._read_array(field.kind.element, value[name], place)
            else:
                made[name] = _scalar(field.kind, value[name], place)
        if self._left <= 0:
            self._left = VALUES_PER_CHUNK
            yield
        return kind.make(**made)

    def _read_array(self, element: Fixed | Varlen | Struct, value: Any, path: str) -> Generator[None, None, list[Any]]:
        if type(value) is not list:
            raise _mismatch(path, "must be an array", value)
        if isinstance(element, Struct):
            made = []
            for index, one in enumerate(value):
                made.append((yield from self.read_struct(element, one, f"{path}[{index}]")))
            return made
        scalars = []
        for index, one in enumerate(value):
            scalars.append(_scalar(element, one, f"{path}[{index}]"))
            self._left -= 1
            if self._left <= 0:
                self._left = VALUES_PER_CHUNK
                yield
        return scalars

    @property
    def _where(self) -> str:
        return f"version {self._version} of {self._api.name}"

    def _unknown(self, kind: Struct, name: str, path: str) -> BadRequest:
        where = f"{path}: " if path else ""
        quoted = _quoted(name)
        other = next((field for field in kind.fields if field.name == name), None)
        if other is not None:
            first = max(other.versions.first, self._api.first_version)
            last = min(other.versions.last, self._api.last_version)
            versions = f"version {first} has" if first == last else f"versions {first} to {last} have"
            return BadRequest(f"{where}{self._where} has no field {quoted}; {versions} it")
        known = list(_fields_of(kind, self._version))
        return BadRequest(f"{where}unknown field {quoted}{_hint(name, known)}")


def _hint(name: str, known: list[str]) -> str:
    if len(name) <= QUOTED_LENGTH_MAX:
        by_spelling = {_spelling(one): one for one in known}
        near = get_close_matches(_spelling(name), by_spelling, n=1)
        if near:
            return f': did you mean "{by_spelling[near[0]]}"?'
    if not 0 < len(known) <= LISTED_FIELDS_MAX:
        return ""
    return f": the known fields are {', '.join(known)}"


def _spelling(name: str) -> str:
    """Return a name without what differs between camelCase, snake_case and kebab-case."""
    return name.replace("_", "").replace("-", "").lower()


@lru_cache(TABLES_MAX)
def _fields_of(kind: Struct, version: int) -> dict[str, Field]:
    """Return the fields of a version by name, including tagged fields."""
    return {field.name: field for field in kind.fields if version in field.versions}


# --- values


def _scalar(kind: Fixed | Varlen, value: Any, path: str) -> Any:
    try:
        read = _READERS[kind]
    except KeyError:
        return _integer(kind, value, path)
    return read(value, path)


def _integer(kind: Fixed | Varlen, value: Any, path: str) -> int:
    assert isinstance(kind, Fixed)
    first, last = _RANGES[kind]
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not first <= value <= last:
        bits, is_signed = INTEGER_BITS[kind]
        raise _mismatch(path, f"must be {_article(bits)} {bits}-bit {'' if is_signed else 'unsigned '}integer", value)
    return value


def _article(bits: int) -> str:
    return "an" if bits == 8 else "a"


def _boolean(value: Any, path: str) -> bool:
    if type(value) is not bool:
        raise _mismatch(path, "must be true or false", value)
    return value


def _float(value: Any, path: str) -> float:
    if value in NOT_FINITE:
        return float(value)
    if type(value) is not int and type(value) is not float:
        raise _mismatch(path, "must be a number", value)
    try:
        return float(value)
    except OverflowError:
        raise _mismatch(path, "must be a 64-bit floating-point number", value) from None


def _string(value: Any, path: str) -> str:
    if type(value) is not str:
        raise _mismatch(path, "must be a string", value)
    if len(value) * 4 > STRING_BYTES_MAX and len(value.encode()) > STRING_BYTES_MAX:
        raise BadRequest(f"{path} must have at most {STRING_BYTES_MAX} bytes, got {len(value.encode())}")
    return value


def _bytes(value: Any, path: str) -> bytes:
    if type(value) is not str:
        raise _mismatch(path, "must be a string in base64", value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _mismatch(path, "must be a string in base64", value) from None


def _uuid(value: Any, path: str) -> bytes:
    expected = f"must be an id of {UUID_LENGTH} characters in base64url, as Kafka shows it"
    if type(value) is not str or len(value) != UUID_LENGTH or not value.isascii():
        raise _mismatch(path, expected, value)
    try:
        return base64.b64decode(f"{value}==".translate(_FROM_URLSAFE), validate=True)
    except (binascii.Error, ValueError):
        raise _mismatch(path, expected, value) from None


# `+` and `/` are not in the alphabet of base64url.
_FROM_URLSAFE = str.maketrans("-_+/", "+/!!")

_READERS: dict[Fixed | Varlen, Read] = {
    BOOL: _boolean,
    FLOAT64: _float,
    STRING: _string,
    BYTES: _bytes,
    RECORDS: _bytes,
    UUID: _uuid,
}


def _mismatch(path: str, expected: str, value: Any) -> BadRequest:
    if isinstance(value, dict):
        got = "an object"
    elif isinstance(value, list):
        got = "an array"
    else:
        got = _shortened(msgspec.json.encode(value).decode())
    return BadRequest(f"{path} {expected}, got {got}")


def _quoted(name: str) -> str:
    return _shortened(msgspec.json.encode(name).decode())


def _shortened(text: str) -> str:
    return text if len(text) <= QUOTED_LENGTH_MAX else text[:QUOTED_LENGTH_MAX] + "…"
