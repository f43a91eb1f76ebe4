"""Events of rooms as JSON, in requests and in answers.

The data of an event is kept as bytes. It is validated once, when the event is received. It is never decoded to objects.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated
from urllib.parse import quote

import msgspec

from kwire.access.scope import plain_part
from kwire.streams.events.event import (
    EMPTY,
    EVENT_ID_BYTES_MAX,
    METADATA_MAX,
    METADATA_NAME_BYTES_MAX,
    TYPE_BYTES_MAX,
    Event,
    NewEvent,
    checked_json,
    time_text,
)

_encode = msgspec.json.Encoder().encode

SOURCES_KEPT = 1024

# The pattern is only for the documentation. Names are checked when the event is published.
MetadataName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=METADATA_NAME_BYTES_MAX,
        extra_json_schema={"pattern": "^(?!ce_|content-type$)"},
    ),
]
Metadata = Annotated[
    Mapping[MetadataName, str],
    msgspec.Meta(max_length=METADATA_MAX, description="Stored as headers of the record."),
]


class PublishedEvent(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An event to publish."""

    event_type: Annotated[str, msgspec.Meta(min_length=1, max_length=TYPE_BYTES_MAX, description="What happened.")]
    data: Annotated[msgspec.Raw, msgspec.Meta(description="Any JSON value.")]
    metadata: Metadata | None = None
    key: Annotated[str | None, msgspec.Meta(description="The key of the record, for Kafka clients.")] = None
    event_id: (
        Annotated[str, msgspec.Meta(min_length=1, max_length=EVENT_ID_BYTES_MAX, description="Generated if absent.")]
        | None
    ) = None


class ShownEvent(msgspec.Struct, kw_only=True):
    """An event of a room. `timestamp` is in UTC, ISO 8601."""

    room: str
    event_id: str
    offset: int
    type: str
    data: msgspec.Raw
    timestamp: str
    metadata: Mapping[str, str]


@lru_cache(SOURCES_KEPT)
def source_of(room: str) -> bytes:
    """Return the CloudEvents `source` of a room's events: the path of the room, as clients of its scope see it."""
    return f"/rooms/{quote(plain_part(room), safe='')}".encode()


def new_event(published: PublishedEvent) -> NewEvent:
    """Convert a published event to the event that is appended. Raises InvalidEvent if the data is invalid. The data is
    checked here, because msgspec does not validate the strings in a Raw field."""
    key = published.key
    return NewEvent(
        published.event_type,
        checked_json(bytes(published.data)),
        published.metadata or EMPTY,
        None if key is None else key.encode(),
        published.event_id,
    )


def event_lines(room: str, events: Iterable[Event]) -> list[bytes]:
    """Return each event as one JSON text without line breaks."""
    front = b'{"room":' + _encode(room) + b',"event_id":'
    lines: list[bytes] = []
    second, second_text = -1, b""
    for offset, event_id, event_type, data, timestamp_ms, metadata, _key, _size in events:
        # Format the seconds only when they change: most events have the same second as the event before.
        if timestamp_ms // 1000 != second:
            second = timestamp_ms // 1000
            second_text = time_text(second * 1000)[:-4].encode()
        lines.append(
            b'%b%b,"offset":%d,"type":%b,"data":%b,"timestamp":"%b%03dZ","metadata":%b}'
            % (
                front,
                _encode(event_id),
                offset,
                _encode(event_type),
                data,
                second_text,
                timestamp_ms % 1000,
                _encode(metadata) if metadata else b"{}",
            )
        )
    return lines


def array_of(lines: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(lines) + b"]"
