"""Events and marks as the bytes that readers of rooms get: WebSocket frames, Server-Sent Events, lines of JSON.

The three functions for events are encodings in the sense of `kwire/broker/subscriptions/portions.py`: called once for a
portion, and the same bytes go to every socket. Streams over HTTP are chunked, so what they get is whole chunks.

An event is one JSON object. As a Server-Sent Event its offset is the `id`, which a browser sends back as Last-Event-ID
when it reconnects; it has no `event` field, so that a page gets events of all types by `onmessage`. A mark has one, and
goes by unless a page listens for it.
"""

from collections.abc import Sequence

from msgspec.json import Encoder

from kwire.broker.events.event import Event
from kwire.broker.subscriptions import SubscriptionFacts
from kwire.broker.subscriptions.marks import CaughtUp, Checkpoint, Closed, Gap, Lagging, Mark
from kwire.web.event_json import event_lines
from kwire.web.socket_frames import text_frame
from kwire.web.streaming import chunk

_encode = Encoder().encode

# A comment, and an empty line: both are passed over by those who read, and keep the connection alive.
SSE_HEARTBEAT = chunk(b":\n\n")
NDJSON_HEARTBEAT = chunk(b"\n")


def socket_events(room: str, events: Sequence[Event]) -> bytes:
    """One text frame for each event."""
    return b"".join(map(text_frame, event_lines(room, events)))


def sse_events(room: str, events: Sequence[Event]) -> bytes:
    lines = event_lines(room, events)
    return chunk(
        b"".join([b"id: %d\ndata: %b\n\n" % (event.offset, line) for event, line in zip(events, lines, strict=True)])
    )


def ndjson_events(room: str, events: Sequence[Event]) -> bytes:
    lines = event_lines(room, events)
    return chunk(b"\n".join([*lines, b""]))


def mark_json(room: str, mark: Mark) -> dict[str, object]:
    """`{"control", "room", "offset", …}`; `offset` is the last one that was delivered or passed over."""
    match mark:
        case CaughtUp():
            return {"control": "caught_up", "room": room, "offset": mark.offset}
        case Checkpoint():
            return {"control": "checkpoint", "room": room, "offset": mark.offset}
        case Lagging():
            return {"control": "lagging", "room": room, "offset": mark.offset, "behind": mark.behind}
        case Gap(from_offset, to_offset, reason):
            return {
                "control": "gap",
                "room": room,
                "offset": mark.offset,
                "from_offset": from_offset,
                "to_offset": to_offset,
                "reason": reason,
            }
        case Closed(code, reason, offset):
            return {"control": "closed", "room": room, "offset": offset, "code": code, "reason": reason}


def facts_json(room: str, facts: SubscriptionFacts) -> dict[str, object]:
    """What every subscriber is told first."""
    return {
        "room": room,
        "subscription_id": facts.subscription_id,
        "epoch": facts.epoch,
        "oldest_offset": facts.oldest_offset,
        "newest_offset": facts.newest_offset,
        "next_offset": facts.next_offset,
        "recovered": facts.recovered,
    }


def socket_mark(room: str, mark: Mark) -> bytes:
    return text_frame(_encode(mark_json(room, mark)))


def sse_mark(room: str, mark: Mark) -> bytes:
    shown = mark_json(room, mark)
    # Places to resume from move on without events too, where a filter or a gap leaves some out.
    place = b"id: %d\n" % mark.offset if mark.offset >= 0 and not isinstance(mark, Closed) else b""
    return chunk(b"%bevent: %b\ndata: %b\n\n" % (place, str(shown["control"]).encode(), _encode(shown)))


def ndjson_mark(room: str, mark: Mark) -> bytes:
    return chunk(_encode(mark_json(room, mark)) + b"\n")


def sse_subscribed(room: str, facts: SubscriptionFacts) -> bytes:
    shown = {"control": "subscribed", **facts_json(room, facts)}
    return chunk(b"event: subscribed\ndata: %b\n\n" % _encode(shown))


def ndjson_subscribed(room: str, facts: SubscriptionFacts) -> bytes:
    return chunk(_encode({"control": "subscribed", **facts_json(room, facts)}) + b"\n")
