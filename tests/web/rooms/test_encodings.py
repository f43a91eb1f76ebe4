"""Events and marks as frames, chunks and lines: the same JSON in each of them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kwire.streams.events.event import Event
from kwire.streams.subscriptions import SubscriptionFacts
from kwire.streams.subscriptions.control_messages import CaughtUp, Checkpoint, Closed, ControlMessage, Gap, Lagging
from kwire.streams.subscriptions.event_batches import EventBatch
from kwire.web.rooms.encodings import (
    NDJSON_HEARTBEAT,
    SSE_HEARTBEAT,
    control_json,
    facts_json,
    ndjson_control,
    ndjson_events,
    ndjson_subscribed,
    socket_control,
    socket_events,
    sse_control,
    sse_events,
    sse_subscribed,
)

MARKS: list[tuple[ControlMessage, dict[str, object]]] = [
    (CaughtUp(5), {"control": "caught_up", "room": "r", "offset": 5}),
    (Checkpoint(6), {"control": "checkpoint", "room": "r", "offset": 6}),
    (Lagging(7, 100), {"control": "lagging", "room": "r", "offset": 7, "behind": 100}),
    (
        Gap(8, 9, "lagged"),
        {"control": "gap", "room": "r", "offset": 9, "from_offset": 8, "to_offset": 9, "reason": "lagged"},
    ),
    (
        Closed("SubscriptionLagged", "too slow", 10),
        {"control": "closed", "room": "r", "offset": 10, "code": "SubscriptionLagged", "reason": "too slow"},
    ),
]
FACTS = SubscriptionFacts("sub_1", "epoch", 0, -1, 0, True)

texts = st.text(max_size=40)
events = st.lists(
    st.builds(
        Event,
        offset=st.integers(0, 2**63 - 1),
        event_id=texts,
        type=texts,
        data=(st.none() | st.integers() | texts | st.lists(texts)).map(
            lambda value: json.dumps(value, ensure_ascii=False).encode()
        ),
        timestamp_ms=st.integers(-1, 2**63 - 1),
        metadata=st.dictionaries(texts, texts, max_size=3),
        key=st.none(),
        size_bytes=st.just(1),
    ),
    min_size=1,
    max_size=5,
)


def unchunked(data: bytes) -> bytes:
    """The body of whole chunks."""
    body = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        length = int(size, 16)
        assert length > 0
        assert rest[length : length + 2] == b"\r\n"
        body, data = body + rest[:length], rest[length + 2 :]
    return body


def unframed(data: bytes) -> list[bytes]:
    payloads = []
    while data:
        assert data[0] == 0x81
        size, start = data[1], 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(data[2:start], "big")
        payloads.append(data[start : start + size])
        data = data[start + size :]
    return payloads


@given(texts, events)
def test_frames_chunks_and_lines_hold_the_same_json_and_no_event_breaks_a_line(room: str, made: list[Event]) -> None:
    payloads = unframed(socket_events(room, made))
    shown = [json.loads(one) for one in payloads]
    assert [(one["room"], one["offset"], one["type"], one["event_id"], one["metadata"]) for one in shown] == [
        (room, one.offset, one.type, one.event_id, one.metadata) for one in made
    ]
    assert [one["data"] for one in shown] == [json.loads(one.data) for one in made]
    assert unchunked(ndjson_events(room, made)) == b"".join(one + b"\n" for one in payloads)
    assert unchunked(sse_events(room, made)) == b"".join(
        b"id: %d\ndata: %b\n\n" % (event.offset, one) for event, one in zip(made, payloads, strict=True)
    )


def test_marks_say_what_they_are_about() -> None:
    for mark, shown in MARKS:
        assert control_json("r", mark) == shown
        assert [json.loads(one) for one in unframed(socket_control("r", mark))] == [shown]
        assert json.loads(unchunked(ndjson_control("r", mark))) == shown
        *fields, empty, end = unchunked(sse_control("r", mark)).decode().split("\n")
        assert (empty, end) == ("", "")
        named = dict(field.split(": ", 1) for field in fields)
        assert json.loads(named["data"]) == shown
        assert named["event"] == shown["control"]
        # The end of a stream is no place that was reached.
        assert named.get("id") == (None if isinstance(mark, Closed) else str(mark.offset))


def test_before_any_event_there_is_no_place_to_remember() -> None:
    assert b"id:" not in sse_control("r", CaughtUp(-1))


def test_the_first_thing_says_where_it_begins() -> None:
    shown = {"control": "subscribed", **facts_json("r", FACTS)}
    assert json.loads(unchunked(ndjson_subscribed("r", FACTS))) == shown
    assert unchunked(sse_subscribed("r", FACTS)).startswith(b"event: subscribed\ndata: ")
    assert {"epoch", "oldest_offset", "newest_offset", "recovered"} < set(shown)


def test_heartbeats_are_passed_over_by_readers() -> None:
    assert unchunked(SSE_HEARTBEAT) == b":\n\n"
    assert unchunked(NDJSON_HEARTBEAT) == b"\n"


def test_a_portion_is_encoded_once_for_everybody() -> None:
    batch = EventBatch("r", [Event(0, "e", "t", b"1", 0, {}, None, 1)], 0, 1)
    assert batch.encoded(socket_events) is batch.encoded(socket_events)
