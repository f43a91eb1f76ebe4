"""Events: what a room or a stream is made of, and how each is a record that any Kafka client can read and write.

An event is stored as CloudEvents has it in Kafka's binary mode: the value is the JSON of its data, headers named `ce_…`
say the rest, and metadata are further headers. The other way round every record is an event, whoever wrote it: what it
does not say is filled in, and a value that is no JSON is shown as text, or as base64 if it is no text either.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from kwire.broker.events.json_text import checked_json as checked_json
from kwire.broker.events.json_text import shown_json as shown_json
from kwire.errors import InvalidEvent
from storage.batch import Record
from storage.batch_writing import header_bytes, record_tail
from storage.records import varint

# Nobody changes it.
EMPTY: Mapping[str, str] = {}

TYPE_BYTES_MAX = 256
EVENT_ID_BYTES_MAX = 256
# Of an id that nobody gave.
MADE_ID_BYTES_MAX = 40
METADATA_MAX = 100
METADATA_NAME_BYTES_MAX = 256
# Types, and names of metadata, that are remembered of one source; then all are forgotten at once.
REMEMBERED_MAX = 16
TIMES_REMEMBERED = 1024

DEFAULT_TYPE = "message"
JSON_TYPE = b"application/json"
SPEC_VERSION = b"1.0"
RESERVED_PREFIX = "ce_"
CONTENT_TYPE = "content-type"
# What an event shows elsewhere, or not at all; every other header is metadata.
ENVELOPE_HEADERS = frozenset({"ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time", CONTENT_TYPE})

_LENGTH_BYTES_MAX = 5
# All that is the same for each event, and the lengths of all that is not.
_ENVELOPE_BYTES_MAX = 200
_OWN_HEADERS = 6
_ID_NAME = varint(5) + b"ce_id"
_EPOCH = datetime(1970, 1, 1)


class NewEvent(NamedTuple):
    """An event that is to be published. `data` is one JSON value that `checked_json` has returned."""

    type: str
    data: bytes
    metadata: Mapping[str, str] = EMPTY
    key: bytes | None = None
    # None: one is made.
    event_id: str | None = None


class Event(NamedTuple):
    """An event as it is in the log; it never changes. `data` is JSON without line breaks."""

    offset: int
    event_id: str
    type: str
    data: bytes
    timestamp_ms: int
    metadata: Mapping[str, str]
    key: bytes | None
    # What it takes in the log, or a little more.
    size_bytes: int


# A moment is written when it is published and shown a little later; events that come together share it.
@lru_cache(TIMES_REMEMBERED)
def time_text(timestamp_ms: int) -> str:
    """ISO 8601, UTC, with milliseconds: 2026-05-17T09:30:00.250Z. What no calendar has is shown as its nearest end."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        moment = datetime.max if timestamp_ms > 0 else datetime.min
    return moment.isoformat(timespec="milliseconds") + "Z"


# --- to a record


def record_of(event: NewEvent, source: bytes, event_id: str, now_ms: int) -> Record:
    """The record that stores an event; raises InvalidEvent. `Envelope` makes the same one."""
    headers: list[tuple[str, bytes | None]] = [
        ("ce_specversion", SPEC_VERSION),
        (CONTENT_TYPE, JSON_TYPE),
        ("ce_source", source),
        ("ce_type", _bounded(event.type, "type", TYPE_BYTES_MAX)),
        ("ce_time", time_text(now_ms).encode()),
        ("ce_id", _bounded(event_id, "id", EVENT_ID_BYTES_MAX)),
    ]
    headers += [(name.decode(), value) for name, value in _metadata(event.metadata)]
    return Record(event.key, event.data, now_ms, headers)


def stored_bytes_max(event: NewEvent, source: bytes) -> int:
    """What an event takes in a batch at most, for those who divide many among several calls; raises InvalidEvent."""
    event_type, data, metadata, key, event_id = event
    size_bytes = _ENVELOPE_BYTES_MAX + len(source) + len(data) + len(key or b"")
    size_bytes += len(_bounded(event_type, "type", TYPE_BYTES_MAX))
    size_bytes += MADE_ID_BYTES_MAX if event_id is None else len(_bounded(event_id, "id", EVENT_ID_BYTES_MAX))
    for name, value in _metadata(metadata) if metadata else ():
        size_bytes += len(name) + len(value) + 2 * _LENGTH_BYTES_MAX
    return size_bytes


class Envelope:
    """Makes the same records, as bytes. What the events of one source have in common is encoded once."""

    __slots__ = ("_front", "_fronts", "_names", "_time", "_time_ms")

    def __init__(self, source: bytes, now_ms: int) -> None:
        self._front = (
            header_bytes(b"ce_specversion", SPEC_VERSION)
            + header_bytes(CONTENT_TYPE.encode(), JSON_TYPE)
            + header_bytes(b"ce_source", source)
        )
        # By type: the headers in front of the time.
        self._fronts: dict[str, bytes] = {}
        # Of metadata, as they are written.
        self._names: dict[str, bytes] = {}
        self._time_ms: int | None = None
        self._time = b""
        self.at(now_ms)

    def at(self, now_ms: int) -> "Envelope":
        """The same from this moment on."""
        if now_ms != self._time_ms:
            self._time_ms = now_ms
            # The id begins behind it.
            self._time = header_bytes(b"ce_time", time_text(now_ms).encode()) + _ID_NAME
        return self

    def tail_of(self, event: NewEvent, event_id: str) -> bytes:
        """The record of an event without its place in a batch; raises InvalidEvent."""
        event_type, data, metadata, key, _ = event
        front = self._fronts.get(event_type)
        if front is None:
            front = self._remember_front(event_type)
        raw_id = event_id.encode() if event_id.isascii() else _bounded(event_id, "id", EVENT_ID_BYTES_MAX)
        if not 0 < len(raw_id) <= EVENT_ID_BYTES_MAX:
            _bounded(event_id, "id", EVENT_ID_BYTES_MAX)
        if not metadata and key is None:
            return b"".join((b"\x01", varint(len(data)), data, b"\x0c", front, self._time, varint(len(raw_id)), raw_id))
        parts = [front, self._time, varint(len(raw_id)), raw_id]
        if metadata:
            _check_metadata_count(metadata)
            for name, value in metadata.items():
                raw = _metadata_value(name, value)
                parts += (self._names.get(name) or self._remember_name(name), varint(len(raw)), raw)
        return record_tail(key, data, _OWN_HEADERS + len(metadata), b"".join(parts))

    def _remember_front(self, event_type: str) -> bytes:
        front = self._front + header_bytes(b"ce_type", _bounded(event_type, "type", TYPE_BYTES_MAX))
        if len(self._fronts) >= REMEMBERED_MAX:
            self._fronts.clear()
        self._fronts[event_type] = front
        return front

    def _remember_name(self, name: str) -> bytes:
        raw = _metadata_name(name)
        if len(self._names) >= REMEMBERED_MAX:
            self._names.clear()
        self._names[name] = varint(len(raw)) + raw
        return self._names[name]


def _metadata(metadata: Mapping[str, str]) -> Iterable[tuple[bytes, bytes]]:
    _check_metadata_count(metadata)
    for name, value in metadata.items():
        yield _metadata_name(name), _metadata_value(name, value)


def _check_metadata_count(metadata: Mapping[str, str]) -> None:
    if len(metadata) > METADATA_MAX:
        raise InvalidEvent(f"{len(metadata)} metadata entries are given, {METADATA_MAX} are allowed")


def _metadata_name(name: str) -> bytes:
    if name.startswith(RESERVED_PREFIX) or name == CONTENT_TYPE:
        raise InvalidEvent(f"metadata may not be named {name[:METADATA_NAME_BYTES_MAX]!r}: that is the event's own")
    return _bounded(name, "metadata name", METADATA_NAME_BYTES_MAX)


def _metadata_value(name: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(f"the metadata {name[:METADATA_NAME_BYTES_MAX]!r} is no valid text") from None


def _bounded(text: str, what: str, bytes_max: int) -> bytes:
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(f"the {what} of the event is no valid text") from None
    if not 0 < len(raw) <= bytes_max:
        raise InvalidEvent(f"the {what} of the event has {len(raw)} bytes; it needs 1 to {bytes_max}")
    return raw


# --- from a record


def event_of(record: Record) -> Event:
    """Any record as an event; it cannot fail."""
    event_id, event_type, metadata, size_bytes = f"evt_{record.offset}", DEFAULT_TYPE, {}, 0
    for name, value in record.headers:
        size_bytes += len(name) + len(value or b"")
        if name == "ce_id":
            event_id = header_text(value) or event_id
        elif name == "ce_type":
            event_type = header_text(value) or event_type
        elif name not in ENVELOPE_HEADERS:
            metadata[name] = header_text(value)
    data = shown_json(record.value)
    size_bytes += len(record.key or b"") + len(data)
    return Event(
        record.offset, event_id, event_type, data, record.timestamp_ms, metadata or EMPTY, record.key, size_bytes
    )


def header_text(value: bytes | None) -> str:
    """The value of a header; bytes that are no text are shown as `\\xHH`."""
    return "" if value is None else value.decode(errors="backslashreplace")
