"""Encodings of room subscriptions: events and control messages as WebSocket frames, Server-Sent Events or NDJSON.

`socket_events`, `sse_events` and `ndjson_events` have the type `Encoding` of
`kwire/streams/subscriptions/event_batches.py`. Each is called once per event batch, and the same bytes are sent to
every subscriber. The functions for Server-Sent Events and NDJSON return complete HTTP chunks.

An event is one JSON object. In a Server-Sent Event the field `id` is the event's offset. A browser that reconnects
sends the last `id` as Last-Event-ID. Events of a room have no field `event`, so that a page receives events of all
types by `onmessage`. Control messages have a field `event`. A page ignores a control message if it has no listener for
the value of this field.
"""

from collections.abc import Sequence

from msgspec.json import Encoder

from kwire.streams.events.event import Event
from kwire.streams.subscriptions import SubscriptionFacts
from kwire.streams.subscriptions.control_messages import CaughtUp, Checkpoint, Closed, ControlMessage, Gap, Lagging
from kwire.web.answers.event_json import event_lines
from kwire.web.streaming.streaming import chunk
from kwire.web.streaming.websocket_frames import text_frame

_encode = Encoder().encode

# Bytes that keep a connection alive and that readers ignore: a comment in Server-Sent Events, an empty line in NDJSON.
SSE_HEARTBEAT = chunk(b":\n\n")
NDJSON_HEARTBEAT = chunk(b"\n")


def socket_events(room: str, events: Sequence[Event]) -> bytes:
    """Return one text frame for each event."""
    return b"".join(map(text_frame, event_lines(room, events)))


def sse_events(room: str, events: Sequence[Event]) -> bytes:
    lines = event_lines(room, events)
    return chunk(
        b"".join([b"id: %d\ndata: %b\n\n" % (event.offset, line) for event, line in zip(events, lines, strict=True)])
    )


def ndjson_events(room: str, events: Sequence[Event]) -> bytes:
    lines = event_lines(room, events)
    return chunk(b"\n".join([*lines, b""]))


def control_json(room: str, message: ControlMessage) -> dict[str, object]:
    """Return a control message as JSON: `{"control", "room", "offset", …}`. `offset` is the last offset that was
    delivered or skipped."""
    match message:
        case CaughtUp():
            return {"control": "caught_up", "room": room, "offset": message.offset}
        case Checkpoint():
            return {"control": "checkpoint", "room": room, "offset": message.offset}
        case Lagging():
            return {"control": "lagging", "room": room, "offset": message.offset, "behind": message.behind}
        case Gap(from_offset, to_offset, reason):
            return {
                "control": "gap",
                "room": room,
                "offset": message.offset,
                "from_offset": from_offset,
                "to_offset": to_offset,
                "reason": reason,
            }
        case Closed(code, reason, offset):
            return {"control": "closed", "room": room, "offset": offset, "code": code, "reason": reason}


def facts_json(room: str, facts: SubscriptionFacts) -> dict[str, object]:
    """Return the first message of a subscription as JSON: the subscription's id and start, and the room's offsets."""
    return {
        "room": room,
        "subscription_id": facts.subscription_id,
        "epoch": facts.epoch,
        "oldest_offset": facts.oldest_offset,
        "newest_offset": facts.newest_offset,
        "next_offset": facts.next_offset,
        "recovered": facts.recovered,
    }


def socket_control(room: str, message: ControlMessage) -> bytes:
    return text_frame(_encode(control_json(room, message)))


def sse_control(room: str, message: ControlMessage) -> bytes:
    shown = control_json(room, message)
    # A filter or a gap may skip events. So a control message also has an `id`, and a client that reconnects resumes
    # after the skipped events.
    resume_id = b"id: %d\n" % message.offset if message.offset >= 0 and not isinstance(message, Closed) else b""
    return chunk(b"%bevent: %b\ndata: %b\n\n" % (resume_id, str(shown["control"]).encode(), _encode(shown)))


def ndjson_control(room: str, message: ControlMessage) -> bytes:
    return chunk(_encode(control_json(room, message)) + b"\n")


def sse_subscribed(room: str, facts: SubscriptionFacts) -> bytes:
    shown = {"control": "subscribed", **facts_json(room, facts)}
    return chunk(b"event: subscribed\ndata: %b\n\n" % _encode(shown))


def ndjson_subscribed(room: str, facts: SubscriptionFacts) -> bytes:
    return chunk(_encode({"control": "subscribed", **facts_json(room, facts)}) + b"\n")
