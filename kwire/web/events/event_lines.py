"""Stored events as JSON: one shape wherever they are read, and the places by which they are subscribed to.

`{"id", "topic", "version", "timestamp", "type", "payload"}`, with `metadata` and `key` behind them where an event has
any; whoever reads everything gets its global `position` in front. Payloads stay the bytes they are.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec

from kwire.broker.events.event import Event, time_text

_encode = msgspec.json.Encoder().encode


class StoredEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An event of the event store. `timestamp` is in UTC, ISO 8601; `version` counts from 0, the id from 1."""

    id: Annotated[str, msgspec.Meta(description="`<topic>-<number>`, given by the server.")]
    topic: str
    version: int
    timestamp: str
    type: str
    payload: msgspec.Raw
    metadata: Mapping[str, str] = {}
    key: str | Mapping[str, str] | None = None
    position: Annotated[int | None, msgspec.Meta(description="The global position, for those who read all.")] = None


def stream_lines(topic: str, events: Sequence[Event]) -> list[bytes]:
    """Events of one topic, each as one JSON text without line breaks."""
    # Topic names have no character that JSON escapes.
    front = f'{{"id":"{topic}-'.encode()
    behind = f'","topic":"{topic}","version":'.encode()
    return [
        b"%b%d%b%d%b" % (front, event.offset + 1, behind, event.offset, rest)
        for event, rest in zip(events, _rests(events), strict=True)
    ]


def all_lines(_name: str, events: Sequence[Event]) -> list[bytes]:
    """Events as a reader of the journal hands them out: the offset is the position, the id says the rest."""
    lines = []
    for event, rest in zip(events, _rests(events), strict=True):
        event_id = event.event_id
        topic, _, number = event_id.rpartition("-")
        front = f'{{"position":{event.offset},"id":"{event_id}","topic":"{topic}","version":{int(number) - 1}'
        lines.append(front.encode() + rest)
    return lines


def _rests(events: Iterable[Event]) -> Iterator[bytes]:
    """What every event says behind its place."""
    second, second_text = -1, b""
    for event in events:
        timestamp_ms = event.timestamp_ms
        # Events that stand together have mostly come within one second.
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
