"""Events of rooms as JSON: how they come in, and how they are shown.

Data stays the bytes it is: it is checked once when it comes in and never decoded into objects.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated
from urllib.parse import quote

import msgspec

from kwire.broker.events.event import (
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

# The pattern is only told; what publishes looks at names anyway.
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
        Annotated[str, msgspec.Meta(min_length=1, max_length=EVENT_ID_BYTES_MAX, description="Left out: one is made.")]
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
    """Where events of a room come from, as CloudEvents wants it: a path."""
    return f"/rooms/{quote(room, safe='')}".encode()


def new_event(published: PublishedEvent) -> NewEvent:
    """Raises InvalidEvent if the data is no JSON after all: msgspec skips over it, and does not look into texts."""
    key = published.key
    return NewEvent(
        published.event_type,
        checked_json(bytes(published.data)),
        published.metadata or EMPTY,
        None if key is None else key.encode(),
        published.event_id,
    )


def event_lines(room: str, events: Iterable[Event]) -> list[bytes]:
    """Each event as one JSON text without line breaks."""
    front = b'{"room":' + _encode(room) + b',"event_id":'
    lines: list[bytes] = []
    second, second_text = -1, b""
    for offset, event_id, event_type, data, timestamp_ms, metadata, _key, _size in events:
        # Events that stand together have mostly come within one second.
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
