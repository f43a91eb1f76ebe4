"""Limits on the number of objects, strings and values in a body. They limit how long decoding takes, because decoding
cannot be interrupted.

Decoding ten megabytes of empty objects would block the event loop for half a second, decoding 900,000 names of metadata
for 0.4 s. So objects, strings and values are counted before decoding. Counting takes about a millisecond per megabyte.
These limits do not apply to the data of events, which is not decoded.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kwire.web.answers.errors import Refusal

# Decoding this many objects takes about ten milliseconds.
OBJECTS_MAX = 50_000
# Strings outside the data of events: names of fields, types, keys, ids and metadata. Decoding this many takes about
# twenty milliseconds.
STRINGS_MAX = 100_000
# Values in a body without events. Decoding this many takes about twenty milliseconds.
VALUES_MAX = 50_000
# Strings are not counted in bodies up to this size, because such bodies have fewer than STRINGS_MAX strings.
COUNTED_BYTES_MIN = 128 * 1024


class _Data(msgspec.Struct):
    """An event of a room or topic, reduced to its data."""

    data: msgspec.Raw = msgspec.Raw(b"")


class _StoredData(msgspec.Struct):
    """An event of the event store, reduced to its data."""

    data: msgspec.Raw = msgspec.field(name="payload", default_factory=lambda: msgspec.Raw(b""))


class _CommandData(msgspec.Struct):
    """A command that publishes an event, reduced to the event's data."""

    payload: _Data = msgspec.field(default_factory=_Data)


_Decode = Callable[[bytes | bytearray | memoryview], Any]
_decode_data: _Decode = msgspec.json.Decoder(_Data | list[_Data]).decode
_decode_stored_data: _Decode = msgspec.json.Decoder(_StoredData | list[_StoredData]).decode
_decode_command: _Decode = msgspec.json.Decoder(_CommandData).decode


def check_objects(raw: bytes | bytearray | memoryview) -> None:
    """Raise a Refusal with status 413 if the body has too many objects. Every opening brace counts as an object, also
    inside strings."""
    if len(raw) > OBJECTS_MAX:
        _check_count("objects", bytes(raw).count(b"{"), OBJECTS_MAX)


def check_values(raw: bytes | bytearray | memoryview) -> None:
    """Raise a Refusal with status 413 if a body without events has too many values. Every comma counts as a value."""
    if len(raw) > VALUES_MAX:
        _check_count("values", bytes(raw).count(b","), VALUES_MAX)


def check_events(raw: bytes | bytearray | memoryview) -> None:
    """Raise a Refusal with status 413 if one event, or an array of events, has too many strings outside the data.

    Raises a msgspec.DecodeError if a large body is not JSON, or is neither an object nor an array of objects.
    """
    if len(raw) > COUNTED_BYTES_MIN:
        found = _decode_data(raw)
        _check_strings(raw, found if isinstance(found, list) else [found])


def check_stored_events(raw: bytes | bytearray | memoryview) -> None:
    """The same as `check_events`, for events of the event store: their data is in the field `payload`."""
    if len(raw) > COUNTED_BYTES_MIN:
        found = _decode_stored_data(raw)
        _check_strings(raw, found if isinstance(found, list) else [found])


def check_command(raw: bytes | bytearray | memoryview) -> None:
    """The same as `check_events`, for a command, which may contain an event in its `payload`."""
    if len(raw) > COUNTED_BYTES_MIN:
        _check_strings(raw, [_decode_command(raw).payload])


def _check_strings(raw: bytes | bytearray | memoryview, events: Iterable[_Data | _StoredData]) -> None:
    kept = [bytes(event.data) for event in events]
    if len(raw) - sum(map(len, kept)) > COUNTED_BYTES_MIN:
        _check_count("strings outside the data of events", _strings(bytes(raw)) - sum(map(_strings, kept)), STRINGS_MAX)


def _strings(text: bytes) -> int:
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return text.count(b'"') // 2


def _check_count(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise Refusal(
            f"the body has {count} {what}, at most {limit} are allowed: send several smaller requests",
            code="TooManyObjects",
            status=413,
            limit=limit,
        )
