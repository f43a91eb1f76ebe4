"""Records as JSON lines: one object with topic, partition, offset, timestamp, key, value and headers per line.

Keys and values that are UTF-8 text are strings, null ones are null. Other bytes are in `key_base64` and
`value_base64` instead, as base64. The same holds for the values of headers, which are objects with `key` and `value`
in the order of the record. A line to produce may have a value of any JSON type: if it is not a string, the value is
its JSON text.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from kwire.cli.kafka.batch_decoding import RecordFields
from kwire.cli.records.record import Headers, InvalidInput, NewRecord
from kwire.cli.values.times import parse_time

_encoder = msgspec.json.Encoder()
TIMESTAMP_MAX = (1 << 63) - 1
_PARTITION_MAX = (1 << 31) - 1


class _Header(Struct, forbid_unknown_fields=True):
    key: str
    value: str | UnsetType | None = UNSET
    value_base64: str | UnsetType = UNSET


class _Line(Struct, forbid_unknown_fields=True):
    """`topic` and `offset` are ignored, so that the output of `topic consume -o json` can be produced again."""

    key: Raw = Raw()
    key_base64: str | UnsetType = UNSET
    value: Raw = Raw()
    value_base64: str | UnsetType = UNSET
    headers: list[_Header] | dict[str, str | None] | None = None
    timestamp: int | str | None = None
    partition: int | None = None
    topic: str | None = None
    offset: int | None = None


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_text = msgspec.json.Decoder(str).decode


def encode_records(topic: str, partition: int, records: Iterable[RecordFields]) -> bytes:
    """Return records of a partition as JSON lines."""
    return _encoder.encode_lines([record_object(topic, partition, record) for record in records])


def headers_json(headers: Headers) -> bytes:
    """Return headers as a JSON array, as `read_headers` reads it."""
    return _encoder.encode([_header_object(name, value) for name, value in headers])


def read_headers(text: str) -> Headers:
    """Return the headers of a JSON array. Raises InvalidInput."""
    try:
        return _headers(_decode_header_list(text.encode()))
    except msgspec.DecodeError as error:
        raise InvalidInput(f"headers: {error}") from None


_decode_header_list = msgspec.json.Decoder(list[_Header]).decode


def decode_lines(lines: Iterable[bytes], first_number: int) -> Iterator[NewRecord]:
    """Yield the records of JSON lines. Blank lines are ignored. Raises InvalidInput with the number of the line."""
    for number, line in enumerate(lines, first_number):
        if line and not line.isspace():
            try:
                record = _record(_decode_line(line))
            except (msgspec.DecodeError, InvalidInput, UnicodeDecodeError) as error:
                raise InvalidInput(f"line {number}: {error}") from None
            yield record


def record_object(topic: str, partition: int, record: RecordFields) -> dict[str, Any]:
    """Return a record as the object of its JSON line."""
    offset, timestamp_ms, key, value, headers = record
    made: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset, "timestamp": timestamp_ms}
    _put(made, "key", key)
    _put(made, "value", value)
    made["headers"] = [_header_object(name, content) for name, content in headers] if headers else []
    return made


def _header_object(name: bytes, value: bytes | None) -> dict[str, Any]:
    # Kafka's names of headers are UTF-8. Other bytes are shown with replacement characters.
    made: dict[str, Any] = {"key": name.decode(errors="replace")}
    _put(made, "value", value)
    return made


def _put(made: dict[str, Any], name: str, content: bytes | None) -> None:
    if content is None:
        made[name] = None
        return
    try:
        made[name] = content.decode()
    except UnicodeDecodeError:
        made[f"{name}_base64"] = base64.b64encode(content).decode()


def _record(line: _Line) -> NewRecord:
    if not line.value and line.value_base64 is UNSET:
        raise InvalidInput("the record has no value; null is a value")
    partition = line.partition
    if partition is not None and not 0 <= partition <= _PARTITION_MAX:
        raise InvalidInput(f"partition: {partition} is not a partition")
    return NewRecord(
        _content("key", line.key, line.key_base64),
        _content("value", line.value, line.value_base64),
        _headers(line.headers),
        None if line.timestamp is None else timestamp_of(line.timestamp),
        partition,
    )


def _content(name: str, raw: Raw, base64_text: str | UnsetType) -> bytes | None:
    if base64_text is not UNSET:
        if raw:
            raise InvalidInput(f"the record has both {name} and {name}_base64")
        return from_base64(f"{name}_base64", base64_text)
    data = bytes(raw)
    if data[:1] == b'"':
        return _decode_text(data).encode()
    return None if data in (b"", b"null") else data


def _headers(headers: list[_Header] | dict[str, str | None] | None) -> Headers:
    if not headers:
        return ()
    if isinstance(headers, dict):
        return tuple((name.encode(), None if text is None else text.encode()) for name, text in headers.items())
    return tuple((header.key.encode(), _header_value(header)) for header in headers)


def _header_value(header: _Header) -> bytes | None:
    if header.value_base64 is not UNSET:
        if header.value is not UNSET:
            raise InvalidInput(f"the header {header.key!r} has both value and value_base64")
        return from_base64("value_base64", header.value_base64)
    if header.value is UNSET:
        raise InvalidInput(f"the header {header.key!r} has no value; null is a value")
    return None if header.value is None else header.value.encode()


def from_base64(name: str, text: str) -> bytes:
    """Return the bytes of a base64 text. Raises InvalidInput with the name of the field."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(f"{name}: not base64") from None


def timestamp_of(timestamp: int | str) -> int:
    """Return a timestamp in milliseconds. Text is a number of milliseconds, or ISO 8601. Raises InvalidInput."""
    if isinstance(timestamp, str):
        try:
            timestamp = int(timestamp) if re.fullmatch(r"-?\d{1,19}", timestamp) else parse_time(timestamp)
        except ValueError:
            raise InvalidInput(
                f"timestamp: expected milliseconds or a time such as 2026-01-31T12:00:00Z, got {timestamp!r}"
            ) from None
    if not -1 <= timestamp <= TIMESTAMP_MAX:
        raise InvalidInput(f"timestamp: {timestamp} is not between -1 (none) and 2^63-1 milliseconds")
    return timestamp
