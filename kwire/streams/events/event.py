"""Event and NewEvent, and their conversion to and from Kafka records.

An event is stored in the binary content mode of the CloudEvents Kafka binding: the value is the JSON of its data, the
headers `ce_…` hold its attributes, and metadata are further headers.

Every record of any Kafka producer can be read as an event. Missing attributes get defaults. A value that is not JSON is
shown as a string, or as base64 if it is not text either.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from kwire.errors import InvalidEvent
from kwire.streams.events.json_text import checked_json as checked_json
from kwire.streams.events.json_text import shown_json as shown_json
from storage.batch.builder import encode_record_body, header_bytes
from storage.batch.record_batch import Record
from storage.batch.records import varint

# The metadata of all events without metadata. It is shared and must not be changed.
EMPTY: Mapping[str, str] = {}

TYPE_BYTES_MAX = 256
EVENT_ID_BYTES_MAX = 256
# The longest id that the server generates.
GENERATED_ID_BYTES_MAX = 40
METADATA_MAX = 100
METADATA_NAME_BYTES_MAX = 256
# The maximum number of encoded types, and of encoded metadata names, that are cached per source. A full cache is
# cleared.
CACHED_HEADERS_MAX = 16
# The maximum number of cached times. It is low because a cached string that was allocated during a large request would
# prevent the release of that request's memory arenas.
CACHED_TIMES_MAX = 16

DEFAULT_TYPE = "message"
JSON_TYPE = b"application/json"
SPEC_VERSION = b"1.0"
RESERVED_PREFIX = "ce_"
CONTENT_TYPE = "content-type"
# Headers that are attributes of the event or are not shown; all other headers are metadata.
# Events of an event store on a cluster have their number as an attribute (`streams/remote_events/numbers.py`).
NUMBER_HEADER = "ce_kwirenumber"
ENVELOPE_HEADERS = frozenset(
    {"ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time", NUMBER_HEADER, CONTENT_TYPE}
)

_LENGTH_BYTES_MAX = 5
# An upper bound for the size of the constant parts of an event and of the length fields of the other parts.
_ENVELOPE_BYTES_MAX = 200
_ENVELOPE_HEADER_COUNT = 6
_ID_NAME = varint(5) + b"ce_id"
_EPOCH = datetime(1970, 1, 1)


class NewEvent(NamedTuple):
    """An event to be published. `data` is one JSON value returned by `checked_json`."""

    type: str
    data: bytes
    metadata: Mapping[str, str] = EMPTY
    key: bytes | None = None
    # If None, the server generates the id.
    event_id: str | None = None


class Event(NamedTuple):
    """An event that was read from the log; immutable. `data` is JSON without line breaks."""

    offset: int
    event_id: str
    type: str
    data: bytes
    timestamp_ms: int
    metadata: Mapping[str, str]
    key: bytes | None
    # The approximate size of the event in the log.
    size_bytes: int


# Cached because the same time is formatted for publishing and soon again for delivery, and several events may have it.
@lru_cache(CACHED_TIMES_MAX)
def time_text(timestamp_ms: int) -> str:
    """A time as ISO 8601 in UTC with milliseconds: 2026-05-17T09:30:00.250Z.

    A time outside the years 1 to 9999 is shown as the nearest time in this range.
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        moment = datetime.max if timestamp_ms > 0 else datetime.min
    return moment.isoformat(timespec="milliseconds") + "Z"


# --- to a record


def record_of(event: NewEvent, source: bytes, event_id: str, now_ms: int) -> Record:
    """Return the record that stores an event. `Envelope` encodes the same record. Raises InvalidEvent."""
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
    """Return an upper bound for the size of an event in a batch. Raises InvalidEvent.

    It is used by callers that divide many events into several calls of `publish`.
    """
    event_type, data, metadata, key, event_id = event
    size_bytes = _ENVELOPE_BYTES_MAX + len(source) + len(data) + len(key or b"")
    size_bytes += len(_bounded(event_type, "type", TYPE_BYTES_MAX))
    size_bytes += GENERATED_ID_BYTES_MAX if event_id is None else len(_bounded(event_id, "id", EVENT_ID_BYTES_MAX))
    for name, value in _metadata(metadata) if metadata else ():
        size_bytes += len(name) + len(value) + 2 * _LENGTH_BYTES_MAX
    return size_bytes


class Envelope:
    """Encodes the same records as `record_of`, as bytes. Parts that the events of a source share are encoded once."""

    __slots__ = ("_common", "_count", "_count_bytes", "_last", "_names", "_prefixes", "_time", "_time_ms")

    def __init__(self, source: bytes, now_ms: int, last_header: bytes = b"") -> None:
        """`last_header` is an encoded header that follows the others in every record."""
        self._last = last_header
        self._count = _ENVELOPE_HEADER_COUNT + bool(last_header)
        self._count_bytes = varint(self._count)
        self._common = (
            header_bytes(b"ce_specversion", SPEC_VERSION)
            + header_bytes(CONTENT_TYPE.encode(), JSON_TYPE)
            + header_bytes(b"ce_source", source)
        )
        # By type: the encoded headers before the time.
        self._prefixes: dict[str, bytes] = {}
        # Encoded names of metadata.
        self._names: dict[str, bytes] = {}
        self._time_ms: int | None = None
        self._time = b""
        self.at(now_ms)

    def at(self, now_ms: int) -> "Envelope":
        """Set the time of the following events, and return this envelope."""
        if now_ms != self._time_ms:
            self._time_ms = now_ms
            # The name of the id header is included, because it comes after the time.
            self._time = header_bytes(b"ce_time", time_text(now_ms).encode()) + _ID_NAME
        return self

    def encode_body(self, event: NewEvent, event_id: str) -> bytes:
        """Return the encoded key, value and headers of the record of an event. Raises InvalidEvent."""
        event_type, data, metadata, key, _ = event
        prefix = self._prefixes.get(event_type)
        if prefix is None:
            prefix = self._cache_prefix(event_type)
        raw_id = event_id.encode() if event_id.isascii() else _bounded(event_id, "id", EVENT_ID_BYTES_MAX)
        if not 0 < len(raw_id) <= EVENT_ID_BYTES_MAX:
            _bounded(event_id, "id", EVENT_ID_BYTES_MAX)
        if not metadata and key is None:
            return b"".join(
                (
                    *(b"\x01", varint(len(data)), data, self._count_bytes, prefix),
                    *(self._time, varint(len(raw_id)), raw_id, self._last),
                )
            )
        parts = [prefix, self._time, varint(len(raw_id)), raw_id]
        if metadata:
            _check_metadata_count(metadata)
            for name, value in metadata.items():
                raw = _metadata_value(name, value)
                parts += (self._names.get(name) or self._cache_name(name), varint(len(raw)), raw)
        parts.append(self._last)
        return encode_record_body(key, data, self._count + len(metadata), b"".join(parts))

    def _cache_prefix(self, event_type: str) -> bytes:
        prefix = self._common + header_bytes(b"ce_type", _bounded(event_type, "type", TYPE_BYTES_MAX))
        if len(self._prefixes) >= CACHED_HEADERS_MAX:
            self._prefixes.clear()
        self._prefixes[event_type] = prefix
        return prefix

    def _cache_name(self, name: str) -> bytes:
        raw = _metadata_name(name)
        if len(self._names) >= CACHED_HEADERS_MAX:
            self._names.clear()
        self._names[name] = varint(len(raw)) + raw
        return self._names[name]


def _metadata(metadata: Mapping[str, str]) -> Iterable[tuple[bytes, bytes]]:
    _check_metadata_count(metadata)
    for name, value in metadata.items():
        yield _metadata_name(name), _metadata_value(name, value)


def _check_metadata_count(metadata: Mapping[str, str]) -> None:
    if len(metadata) > METADATA_MAX:
        raise InvalidEvent(f"the event has {len(metadata)} metadata entries, at most {METADATA_MAX} are allowed")


def _metadata_name(name: str) -> bytes:
    if name.startswith(RESERVED_PREFIX) or name == CONTENT_TYPE:
        shown = name[:METADATA_NAME_BYTES_MAX]
        raise InvalidEvent(f"the metadata name {shown!r} is reserved for attributes of the event; use another name")
    return _bounded(name, "metadata name", METADATA_NAME_BYTES_MAX)


def _metadata_value(name: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(f"the metadata {name[:METADATA_NAME_BYTES_MAX]!r} is not valid Unicode") from None


def _bounded(text: str, what: str, bytes_max: int) -> bytes:
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(f"the {what} of the event is not valid Unicode") from None
    if not 0 < len(raw) <= bytes_max:
        raise InvalidEvent(f"the {what} of the event must have 1 to {bytes_max} bytes, not {len(raw)}")
    return raw


# --- from a record


def event_of(record: Record) -> Event:
    """Convert any record to an event. Never fails."""
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
    """Return the value of a header as text. Bytes that are not UTF-8 are shown as `\\xHH`."""
    return "" if value is None else value.decode(errors="backslashreplace")
