"""Events of the event store as JSON. All routes and subscriptions use this format.

An event is `{"id", "topic", "version", "timestamp", "type", "payload"}`, with `metadata` and `key` at the end if the
event has them. In a subscription to all events the first field is the global `position`. Payloads are copied as bytes,
without decoding.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec

from kwire.access.scope import plain_part
from kwire.streams.events.event import Event, time_text

_encode = msgspec.json.Encoder().encode


class StoredEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An event of the event store. `timestamp` is in UTC, ISO 8601. The first event of a topic has the version 0 and
    the number 1 in its id."""

    id: Annotated[str, msgspec.Meta(description="`<topic>-<number>`, assigned by the server.")]
    topic: str
    version: int
    timestamp: str
    type: str
    payload: msgspec.Raw
    metadata: Mapping[str, str] = {}
    key: str | Mapping[str, str] | None = None
    position: Annotated[int | None, msgspec.Meta(description="The global position; only in /subscribe/all.")] = None


def stream_lines(topic: str, events: Sequence[Event]) -> list[bytes]:
    """Return the events of one topic, each as one JSON text without line breaks."""
    # The topic name is not escaped, because topic names have no characters that JSON escapes.
    front = f'{{"id":"{topic}-'.encode()
    middle = f'","topic":"{topic}","version":'.encode()
    return [
        b"%b%d%b%d%b" % (front, event.offset + 1, middle, event.offset, rest)
        for event, rest in zip(events, _rests(events), strict=True)
    ]


def all_lines(_name: str, events: Sequence[Event]) -> list[bytes]:
    """Return events of all topics, each as one JSON text. `events` were read from the event journal: the internal topic
    with all events of the event store. The position is the offset in this topic. The event's id contains its topic and
    version."""
    return _lines_of_all((event.event_id for event in events), events)


def plain_all_lines(_name: str, events: Sequence[Event]) -> list[bytes]:
    """As `all_lines`, with plain names. The caller has removed the events of other scopes."""
    return _lines_of_all((plain_part(event.event_id) for event in events), events)


def _lines_of_all(event_ids: Iterable[str], events: Sequence[Event]) -> list[bytes]:
    lines = []
    for event_id, event, rest in zip(event_ids, events, _rests(events), strict=True):
        topic, _, number = event_id.rpartition("-")
        front = f'{{"position":{event.offset},"id":"{event_id}","topic":"{topic}","version":{int(number) - 1}'
        lines.append(front.encode() + rest)
    return lines


def _rests(events: Iterable[Event]) -> Iterator[bytes]:
    """Generate the part of each event's JSON text that follows the version."""
    second, second_text = -1, b""
    for event in events:
        timestamp_ms = event.timestamp_ms
        # Format the seconds only when they change: most events have the same second as the event before.
        if timestamp_ms // 1000 != second:
            second = timestamp_ms // 1000
            second_text = time_text(second * 1000)[:-4].encode()
        line = b',"timestamp":"%b%03dZ","type":%b,"payload":%b' % (
            second_text,
            timestamp_ms % 1000,
            _encode(event.type),
            event.data,
        )
        if event.metadata:
            line += b',"metadata":' + _encode(event.metadata)
        if event.key is not None:
            line += b',"key":' + _encode(_shown_key(event.key))
        yield line + b"}"


def _shown_key(key: bytes) -> str | dict[str, str]:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(key).decode()}
