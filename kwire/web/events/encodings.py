"""Events and marks of the event store as the bytes that subscribers get: WebSocket frames, Server-Sent Events, lines.

As those of rooms (`kwire/web/rooms/encodings.py`), with other names: whoever reads everything is told global positions,
whoever reads one topic its versions. The place of an event is its `id` as a Server-Sent Event.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.json import Encoder

from kwire.broker.events.event import Event
from kwire.broker.subscriptions import SubscriptionFacts
from kwire.broker.subscriptions.marks import ROOM_NOT_FOUND, CaughtUp, Checkpoint, Closed, Gap, Lagging, Mark
from kwire.broker.subscriptions.portions import Encoding
from kwire.web.events.event_lines import all_lines, stream_lines
from kwire.web.rooms.encodings import NDJSON_HEARTBEAT, SSE_HEARTBEAT
from kwire.web.route import EVENT_STREAM, NDJSON
from kwire.web.socket_frames import text_frame
from kwire.web.streaming import chunk
from kwire.web.subscription_streams import StreamForm

_encode = Encoder().encode

TOPIC_NOT_FOUND = "TopicNotFound"

Lines = Callable[[str, Sequence[Event]], list[bytes]]
Shown = dict[str, object]


class Naming(NamedTuple):
    """What a place is called, and how the stream itself is named in marks."""

    place: str
    has_topic: bool

    def begun(self, control: str, name: str) -> Shown:
        return {"control": control, "topic": name} if self.has_topic else {"control": control}


BY_POSITION = Naming("position", has_topic=False)
BY_VERSION = Naming("version", has_topic=True)


class SocketForm(NamedTuple):
    """How a subscription looks on a WebSocket."""

    subscribed: Callable[[str, SubscriptionFacts], bytes]
    events: Encoding
    mark: Callable[[str, Mark], bytes]


def mark_json(naming: Naming, name: str, mark: Mark) -> Shown:
    """The place is the last one that was delivered or passed over, -1 before any."""
    place = naming.place
    match mark:
        case CaughtUp():
            return {**naming.begun("caught_up", name), place: mark.offset}
        case Checkpoint():
            return {**naming.begun("checkpoint", name), place: mark.offset}
        case Lagging():
            return {**naming.begun("lagging", name), place: mark.offset, "behind": mark.behind}
        case Gap(from_offset, to_offset, reason):
            return {
                **naming.begun("gap", name),
                place: mark.offset,
                f"from_{place}": from_offset,
                f"to_{place}": to_offset,
                "reason": reason,
            }
        case Closed(code, reason, offset):
            return {**naming.begun("closed", name), place: offset, "code": told_code(code), "reason": reason}


def told_code(code: str) -> str:
    """Why a subscription has ended, as readers of events know it: a topic of theirs is no room."""
    return TOPIC_NOT_FOUND if code == ROOM_NOT_FOUND else code


def subscribed_json(naming: Naming, name: str, facts: SubscriptionFacts) -> Shown:
    """What every subscriber is told first."""
    place = naming.place
    return {
        **naming.begun("subscribed", name),
        "subscription_id": facts.subscription_id,
        "epoch": facts.epoch,
        f"oldest_{place}": facts.oldest_offset,
        f"newest_{place}": facts.newest_offset,
        f"next_{place}": facts.next_offset,
        "recovered": facts.recovered,
    }


# --- the three ways to send them


def _socket_events(lines: Lines, name: str, events: Sequence[Event]) -> bytes:
    return b"".join(map(text_frame, lines(name, events)))


def _sse_events(lines: Lines, name: str, events: Sequence[Event]) -> bytes:
    made = zip(events, lines(name, events), strict=True)
    return chunk(b"".join([b"id: %d\ndata: %b\n\n" % (event.offset, line) for event, line in made]))


def _ndjson_events(lines: Lines, name: str, events: Sequence[Event]) -> bytes:
    return chunk(b"\n".join([*lines(name, events), b""]))


def _socket_mark(naming: Naming, name: str, mark: Mark) -> bytes:
    return text_frame(_encode(mark_json(naming, name, mark)))


def _sse_mark(naming: Naming, name: str, mark: Mark) -> bytes:
    shown = mark_json(naming, name, mark)
    # Places to resume from move on without events too, where a filter or a gap leaves some out.
    place = b"id: %d\n" % mark.offset if mark.offset >= 0 and not isinstance(mark, Closed) else b""
    return chunk(b"%bevent: %b\ndata: %b\n\n" % (place, str(shown["control"]).encode(), _encode(shown)))


def _ndjson_mark(naming: Naming, name: str, mark: Mark) -> bytes:
    return chunk(_encode(mark_json(naming, name, mark)) + b"\n")


def _socket_subscribed(naming: Naming, name: str, facts: SubscriptionFacts) -> bytes:
    return text_frame(_encode(subscribed_json(naming, name, facts)))


def _sse_subscribed(naming: Naming, name: str, facts: SubscriptionFacts) -> bytes:
    return chunk(b"event: subscribed\ndata: %b\n\n" % _encode(subscribed_json(naming, name, facts)))


def _ndjson_subscribed(naming: Naming, name: str, facts: SubscriptionFacts) -> bytes:
    return chunk(_encode(subscribed_json(naming, name, facts)) + b"\n")


class Forms(NamedTuple):
    """One kind of subscription in all three ways. Made once: portions tell encodings apart by identity."""

    socket: SocketForm
    sse: StreamForm
    ndjson: StreamForm


def _forms(naming: Naming, lines: Lines) -> Forms:
    return Forms(
        SocketForm(partial(_socket_subscribed, naming), partial(_socket_events, lines), partial(_socket_mark, naming)),
        StreamForm(
            EVENT_STREAM,
            partial(_sse_subscribed, naming),
            partial(_sse_events, lines),
            partial(_sse_mark, naming),
            SSE_HEARTBEAT,
        ),
        StreamForm(
            NDJSON,
            partial(_ndjson_subscribed, naming),
            partial(_ndjson_events, lines),
            partial(_ndjson_mark, naming),
            NDJSON_HEARTBEAT,
        ),
    )


ALL_FORMS = _forms(BY_POSITION, all_lines)
STREAM_FORMS = _forms(BY_VERSION, stream_lines)
