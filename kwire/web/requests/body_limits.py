"""How much a body may hold: decoding is one step that cannot be interrupted, and each object and string takes its time.

Ten megabytes of empty objects would hold the loop for half a second, 900,000 names of metadata for 0.4 s. So what a
decoder would make is counted first, which is quick. The data of events is not decoded and may hold any values.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kwire.web.errors import Refusal

# To decode so many objects takes some ten milliseconds.
OBJECTS_MAX = 50_000
# Strings of a body outside the data of its events: names of fields, types, keys, ids and metadata. To decode so many
# takes some twenty milliseconds.
STRINGS_MAX = 100_000
# Values of a body without events. To decode so many takes some twenty milliseconds.
VALUES_MAX = 50_000
# Smaller bodies cannot hold enough strings to matter.
COUNTED_BYTES_MIN = 128 * 1024


class _Data(msgspec.Struct):
    """An event of rooms and topics without anything but its data."""

    data: msgspec.Raw = msgspec.Raw(b"")


class _StoredData(msgspec.Struct):
    """An event of the event store, likewise."""

    data: msgspec.Raw = msgspec.field(name="payload", default_factory=lambda: msgspec.Raw(b""))


class _CommandData(msgspec.Struct):
    """A command that publishes an event, likewise."""

    payload: _Data = msgspec.field(default_factory=_Data)


_Decode = Callable[[bytes | bytearray | memoryview], Any]
_decode_data: _Decode = msgspec.json.Decoder(_Data | list[_Data]).decode
_decode_stored_data: _Decode = msgspec.json.Decoder(_StoredData | list[_StoredData]).decode
_decode_command: _Decode = msgspec.json.Decoder(_CommandData).decode


def check_objects(raw: bytes | bytearray | memoryview) -> None:
    """Raise a refusal with status 413 for a body of too many objects. Braces inside texts count too."""
    if len(raw) > OBJECTS_MAX:
        _check_count("objects", bytes(raw).count(b"{"), OBJECTS_MAX)


def check_values(raw: bytes | bytearray | memoryview) -> None:
    """Raise a refusal with status 413 for a body without events that has too many values. Commas count."""
    if len(raw) > VALUES_MAX:
        _check_count("values", bytes(raw).count(b","), VALUES_MAX)


def check_events(raw: bytes | bytearray | memoryview) -> None:
    """Raise a refusal with status 413 for events, one or an array, that have too many strings outside their data.

    Raises what msgspec raises for a body that is not JSON, or not of objects.
    """
    if len(raw) > COUNTED_BYTES_MIN:
        found = _decode_data(raw)
        _check_strings(raw, found if isinstance(found, list) else [found])


def check_stored_events(raw: bytes | bytearray | memoryview) -> None:
    """The same for events of the event store, whose data is called `payload`."""
    if len(raw) > COUNTED_BYTES_MIN:
        found = _decode_stored_data(raw)
        _check_strings(raw, found if isinstance(found, list) else [found])


def check_command(raw: bytes | bytearray | memoryview) -> None:
    """The same for a command, which may publish an event."""
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
            f"the body has {count} {what}, {limit} are allowed: send them in several requests",
            code="TooManyObjects",
            status=413,
            limit=limit,
        )
