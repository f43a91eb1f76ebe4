"""Encodings of the event store's subscriptions: events and control messages as WebSocket frames, SSE or NDJSON.

The encodings are like those of rooms (`kwire/web/rooms/encodings.py`), except that the field with the offset has
another name. It is `position` in a subscription to all events, and `version` in a subscription to one topic. The `id`
of a Server-Sent Event is this offset.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.json import Encoder

from kwire.streams.events.event import Event
from kwire.streams.subscriptions import SubscriptionFacts
from kwire.streams.subscriptions.control_messages import (
    ROOM_NOT_FOUND,
    CaughtUp,
    Checkpoint,
    Closed,
    ControlMessage,
    Gap,
    Lagging,
)
from kwire.streams.subscriptions.event_batches import Encoding
from kwire.web.events.event_lines import all_lines, plain_all_lines, stream_lines
from kwire.web.rooms.encodings import NDJSON_HEARTBEAT, SSE_HEARTBEAT
from kwire.web.route import EVENT_STREAM, NDJSON
from kwire.web.streaming.streaming import chunk
from kwire.web.streaming.subscription_streams import StreamFormat
from kwire.web.streaming.websocket_frames import text_frame

_encode = Encoder().encode

TOPIC_NOT_FOUND = "TopicNotFound"

Lines = Callable[[str, Sequence[Event]], list[bytes]]
Shown = dict[str, object]


class FieldNames(NamedTuple):
    """The name of the offset field in control messages, and whether control messages have a field `topic`."""

    offset_field: str
    has_topic: bool

    def head(self, control: str, name: str) -> Shown:
        return {"control": control, "topic": name} if self.has_topic else {"control": control}


POSITION_NAMES = FieldNames("position", has_topic=False)
VERSION_NAMES = FieldNames("version", has_topic=True)


class SocketFormat(NamedTuple):
    """The encoding of a subscription on a WebSocket."""

    subscribed: Callable[[str, SubscriptionFacts], bytes]
    events: Encoding
    control: Callable[[str, ControlMessage], bytes]


def control_json(field_names: FieldNames, name: str, message: ControlMessage) -> Shown:
    """Return a control message as JSON. Its offset is the last offset that was delivered or skipped, -1 before the
    first event."""
    offset_field = field_names.offset_field
    match message:
        case CaughtUp():
            return {**field_names.head("caught_up", name), offset_field: message.offset}
        case Checkpoint():
            return {**field_names.head("checkpoint", name), offset_field: message.offset}
        case Lagging():
            return {**field_names.head("lagging", name), offset_field: message.offset, "behind": message.behind}
        case Gap(from_offset, to_offset, reason):
            return {
                **field_names.head("gap", name),
                offset_field: message.offset,
                f"from_{offset_field}": from_offset,
                f"to_{offset_field}": to_offset,
                "reason": reason,
            }
        case Closed(code, reason, offset):
            return {
                **field_names.head("closed", name),
                offset_field: offset,
                "code": public_code(code),
                "reason": reason,
            }


def public_code(code: str) -> str:
    """Return the code to send in a `closed` message: TopicNotFound instead of RoomNotFound, else the code itself."""
    return TOPIC_NOT_FOUND if code == ROOM_NOT_FOUND else code


def subscribed_json(field_names: FieldNames, name: str, facts: SubscriptionFacts) -> Shown:
    """Return the first message of a subscription as JSON: the subscription's id and start, and its log's offsets."""
    offset_field = field_names.offset_field
    return {
        **field_names.head("subscribed", name),
        "subscription_id": facts.subscription_id,
        "epoch": facts.epoch,
        f"oldest_{offset_field}": facts.oldest_offset,
        f"newest_{offset_field}": facts.newest_offset,
        f"next_{offset_field}": facts.next_offset,
        "recovered": facts.recovered,
    }


# --- WebSocket, Server-Sent Events and NDJSON


def _socket_events(lines: Lines, name: str, events: Sequence[Event]) -> bytes:
    return b"".join(map(text_frame, lines(name, events)))


def _sse_events(lines: Lines, name: str, events: Sequence[Event]) -> bytes:
    pairs = zip(events, lines(name, events), strict=True)
    return chunk(b"".join([b"id: %d\ndata: %b\n\n" % (event.offset, line) for event, line in pairs]))


def _ndjson_events(lines: Lines, name: str, events: Sequence[Event]) -> bytes:
    return chunk(b"\n".join([*lines(name, events), b""]))


def _socket_control(field_names: FieldNames, name: str, message: ControlMessage) -> bytes:
    return text_frame(_encode(control_json(field_names, name, message)))


def _sse_control(field_names: FieldNames, name: str, message: ControlMessage) -> bytes:
    shown = control_json(field_names, name, message)
    # A filter or a gap may skip events. So a control message also has an `id`, and a client that reconnects resumes
    # after the skipped events.
    resume_id = b"id: %d\n" % message.offset if message.offset >= 0 and not isinstance(message, Closed) else b""
    return chunk(b"%bevent: %b\ndata: %b\n\n" % (resume_id, str(shown["control"]).encode(), _encode(shown)))


def _ndjson_control(field_names: FieldNames, name: str, message: ControlMessage) -> bytes:
    return chunk(_encode(control_json(field_names, name, message)) + b"\n")


def _socket_subscribed(field_names: FieldNames, name: str, facts: SubscriptionFacts) -> bytes:
    return text_frame(_encode(subscribed_json(field_names, name, facts)))


def _sse_subscribed(field_names: FieldNames, name: str, facts: SubscriptionFacts) -> bytes:
    return chunk(b"event: subscribed\ndata: %b\n\n" % _encode(subscribed_json(field_names, name, facts)))


def _ndjson_subscribed(field_names: FieldNames, name: str, facts: SubscriptionFacts) -> bytes:
    return chunk(_encode(subscribed_json(field_names, name, facts)) + b"\n")


class Formats(NamedTuple):
    """The three encodings of one kind of subscription. The objects are created once, because event batches cache bytes
    per encoding object."""

    socket: SocketFormat
    sse: StreamFormat
    ndjson: StreamFormat


def _formats(field_names: FieldNames, lines: Lines) -> Formats:
    return Formats(
        SocketFormat(
            partial(_socket_subscribed, field_names),
            partial(_socket_events, lines),
            partial(_socket_control, field_names),
        ),
        StreamFormat(
            EVENT_STREAM,
            partial(_sse_subscribed, field_names),
            partial(_sse_events, lines),
            partial(_sse_control, field_names),
            SSE_HEARTBEAT,
        ),
        StreamFormat(
            NDJSON,
            partial(_ndjson_subscribed, field_names),
            partial(_ndjson_events, lines),
            partial(_ndjson_control, field_names),
            NDJSON_HEARTBEAT,
        ),
    )


ALL_FORMATS = _formats(POSITION_NAMES, all_lines)
# For clients with a scope. The batches of the journal are shared, so these are encodings of their own.
PLAIN_ALL_FORMATS = _formats(POSITION_NAMES, plain_all_lines)
STREAM_FORMATS = _formats(VERSION_NAMES, stream_lines)
