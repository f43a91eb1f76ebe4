"""Events: any record is one, and what is published comes back as it was."""

import json
from base64 import b64decode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from kwire.errors import InvalidEvent
from kwire.streams.events.decoding import BatchCursor
from kwire.streams.events.event import (
    CACHED_HEADERS_MAX,
    EMPTY,
    EVENT_ID_BYTES_MAX,
    METADATA_MAX,
    TYPE_BYTES_MAX,
    Envelope,
    Event,
    NewEvent,
    checked_json,
    event_of,
    record_of,
    shown_json,
    stored_bytes_max,
    time_text,
)
from storage.batch.builder import batch_bytes_max, build_batch_from_bodies, encode_record_body, header_bytes
from storage.batch.format import HEADER_BYTES, LOG_APPEND_TIME
from storage.batch.record_batch import Record, build_batch, check_batch, parse_header, read_records
from storage.errors import CorruptBatch

NOW_MS = 1_800_000_000_123
SOURCE = b"/rooms/lobby"
LARGE = 10**9

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
jsons = st.builds(
    lambda value, indent: json.dumps(value, indent=indent).encode(), json_values, st.sampled_from([None, 1])
)
header_names = (
    st.sampled_from(["ce_id", "ce_type", "ce_source", "ce_time", "content-type", "trace", "ce_subject"]) | texts
)
headers = st.lists(st.tuples(header_names, st.none() | st.binary(max_size=30)), max_size=8)
records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=200),
    value=st.none() | st.binary(max_size=300) | jsons,
    timestamp_ms=st.integers(min_value=0, max_value=2**42),
    headers=headers,
)
metadata = st.dictionaries(
    names.filter(lambda name: not name.startswith("ce_") and name != "content-type"), texts, max_size=4
)
new_events = st.builds(
    NewEvent,
    type=names,
    data=jsons.map(checked_json),
    metadata=metadata,
    key=st.none() | st.binary(max_size=100),
    event_id=names,
)


def decoded(batch: bytearray | memoryview, from_offset: int = 0, count_max: int = LARGE) -> list[Event]:
    """All events of a batch without compression, taken `count_max` at a time."""
    body = bytes(memoryview(batch)[HEADER_BYTES:])
    cursor = BatchCursor()
    cursor.enter(parse_header(batch), len(body))
    events: list[Event] = []
    while cursor.left:
        before = len(events)
        cursor.take(body, from_offset, events, count_max, LARGE)
        assert len(events) <= before + count_max
    return events


def bodies_of(events: list[NewEvent]) -> list[bytes]:
    envelope = Envelope(SOURCE, 0)
    return [envelope.at(NOW_MS).encode_body(event, event.event_id or "") for event in events]


def without_size(event: Event) -> Event:
    return event._replace(size_bytes=0)


# --- what any record becomes


@pytest.mark.proves("S0-3", "S0-4")
@given(st.lists(records, min_size=1, max_size=6), st.integers(0, 2**40), st.integers(1, 7))
def test_any_record_is_an_event_that_can_be_put_into_a_line_of_json(
    some: list[Record], base_offset: int, count_max: int
) -> None:
    batch = build_batch(some, base_offset=base_offset)
    events = decoded(batch, count_max=count_max)
    expected = [event_of(record) for record in read_records(batch, LARGE)]
    assert [without_size(event) for event in events] == [without_size(event) for event in expected]
    for number, (event, record) in enumerate(zip(events, some, strict=True)):
        assert event.offset == base_offset + number
        assert event.type
        assert event.event_id
        assert (event.key, event.timestamp_ms) == (record.key, record.timestamp_ms)
        assert b"\n" not in event.data
        assert b"\r" not in event.data
        shown = json.loads(event.data)
        if record.value is None:
            assert shown is None
        elif not is_json(record.value):
            assert (
                shown == record.value.decode() if is_text(record.value) else b64decode(shown["base64"]) == record.value
            )
        assert event.size_bytes >= len(event.data)
        assert msgspec.json.encode(event.metadata)


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_json(value: bytes) -> bool:
    try:
        checked_json(value)
    except InvalidEvent:
        return False
    return True


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (b'{"a": 1}', b'{"a": 1}'),
        (b'{\r\n  "a": [1,\n 2]\n}', b'{"a":[1,2]}'),
        (b"12345678901234567890123.50", b"12345678901234567890123.50"),
        (b"hello", b'"hello"'),
        (b'say "hi"\n', b'"say \\"hi\\"\\n"'),
        (b"", b'""'),
        (b"NaN", b'"NaN"'),
        (b"\xff\xfe", b'{"base64":"//4="}'),
        (b'"\xff"', b'{"base64":"Iv8i"}'),
        (b'"\\ud800"', b'"\\"\\\\ud800\\""'),
        (b"[" * 100_000 + b"]" * 100_000, b'"' + b"[" * 100_000 + b"]" * 100_000 + b'"'),
        (None, b"null"),
    ],
)
def test_value_is_shown_as_json_text_or_base64(value: bytes | None, data: bytes) -> None:
    assert shown_json(value) == data


def test_record_of_a_kafka_client_gets_what_it_does_not_say() -> None:
    event = event_of(Record(b"k", b"hello", NOW_MS, [("trace", b"t1"), ("raw", b"\xff"), ("none", None)], 7))
    assert (event.event_id, event.type) == ("evt_7", "message")
    assert event.metadata == {"trace": "t1", "raw": "\\xff", "none": ""}
    empty = event_of(Record(None, None, NOW_MS, [("ce_id", b""), ("ce_type", None)], 8))
    assert (empty.event_id, empty.type, empty.data, empty.metadata) == ("evt_8", "message", b"null", {})


def test_header_whose_name_is_no_text_is_shown_too() -> None:
    batch, _ = build_batch_from_bodies([encode_record_body(None, b"1", 1, header_bytes(b"\xff", b"v"))], NOW_MS)
    assert [event.metadata for event in decoded(batch)] == [{"\\xff": "v"}]


def test_headers_of_other_cloudevents_are_not_lost() -> None:
    event = event_of(Record(None, b"1", NOW_MS, [("ce_subject", b"door"), ("ce_type", b"opened"), ("ce_id", b"17")]))
    assert (event.type, event.event_id, event.metadata) == ("opened", "17", {"ce_subject": "door"})


@pytest.mark.proves("S0-3")
def test_event_cannot_be_changed() -> None:
    event = event_of(Record(None, b"1", NOW_MS))
    with pytest.raises(AttributeError):
        event.offset = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        event.more = 3  # type: ignore[attr-defined]
    assert event.metadata is EMPTY


# --- what is published


@pytest.mark.proves("S0-3", "S0-4")
@given(st.lists(new_events, min_size=1, max_size=6), st.integers(1, 3))
def test_published_event_comes_back_as_it_was(some: list[NewEvent], count_max: int) -> None:
    bodies = bodies_of(some)
    batch, header = build_batch_from_bodies(bodies, NOW_MS)
    assert check_batch(batch) == header
    assert header.size_bytes <= batch_bytes_max(sum(map(len, bodies)), len(bodies))
    plain = [record_of(event, SOURCE, event.event_id or "", NOW_MS) for event in some]
    assert bytes(batch) == bytes(build_batch(plain))
    assert batch_bytes_max(0, 0) + sum(stored_bytes_max(event, SOURCE) for event in some) >= len(batch)
    for number, (event, new) in enumerate(zip(decoded(batch, count_max=count_max), some, strict=True)):
        expected = (number, new.event_id, new.type, new.data, NOW_MS, new.metadata, new.key)
        assert event[:-1] == expected


def test_more_types_and_names_than_are_remembered_come_back_too() -> None:
    some = [
        NewEvent(f"t{number}", b"1", {f"m{number}": "v"}, None, "id") for number in range(2 * CACHED_HEADERS_MAX + 1)
    ]
    batch, _ = build_batch_from_bodies(bodies_of(some), NOW_MS)
    assert [(event.type, event.metadata) for event in decoded(batch)] == [(new.type, new.metadata) for new in some]


def test_kafka_python_reads_what_was_published() -> None:
    some = [NewEvent("joined", b'{"user":%d}' % n, {"trace": "t"}, b"k", f"id-{n}") for n in range(100)]
    batch, _ = build_batch_from_bodies(bodies_of(some), NOW_MS)
    read = DefaultRecordBatch(bytes(batch))
    assert read.validate_crc()
    for record, new in zip(read, some, strict=True):
        plain = record_of(new, SOURCE, new.event_id or "", NOW_MS)
        assert (record.key, record.value, record.timestamp) == (plain.key, plain.value, NOW_MS)
        assert list(record.headers) == list(plain.headers)


def test_event_is_a_cloudevent_in_binary_mode() -> None:
    record = record_of(NewEvent("joined", b'{"user":1}', {"trace": "t"}, b"k"), SOURCE, "evt_1", NOW_MS)
    assert record == Record(
        b"k",
        b'{"user":1}',
        NOW_MS,
        [
            ("ce_specversion", b"1.0"),
            ("content-type", b"application/json"),
            ("ce_source", b"/rooms/lobby"),
            ("ce_type", b"joined"),
            ("ce_time", b"2027-01-15T08:00:00.123Z"),
            ("ce_id", b"evt_1"),
            ("trace", b"t"),
        ],
    )


@pytest.mark.parametrize(
    "event",
    [
        NewEvent("", b"1"),
        NewEvent("x" * (TYPE_BYTES_MAX + 1), b"1"),
        NewEvent("\ud800", b"1"),
        NewEvent("t", b"1", {"ce_id": "mine"}),
        NewEvent("t", b"1", {"content-type": "text/plain"}),
        NewEvent("t", b"1", {"": "empty"}),
        NewEvent("t", b"1", {"a": "\ud800"}),
        NewEvent("t", b"1", {f"m{number}": "" for number in range(METADATA_MAX + 1)}),
        NewEvent("t", b"1", event_id=""),
        NewEvent("t", b"1", event_id="\ud800"),
        NewEvent("t", b"1", event_id="x" * (EVENT_ID_BYTES_MAX + 1)),
        NewEvent("t", b"1", event_id="é" * EVENT_ID_BYTES_MAX),
    ],
)
def test_what_is_no_event_is_refused_the_same_way_by_both_encoders(event: NewEvent) -> None:
    event_id = "evt_1" if event.event_id is None else event.event_id
    with pytest.raises(InvalidEvent) as slow:
        record_of(event, SOURCE, event_id, NOW_MS)
    with pytest.raises(InvalidEvent) as fast:
        Envelope(SOURCE, NOW_MS).encode_body(event, event_id)
    with pytest.raises(InvalidEvent):
        stored_bytes_max(event, SOURCE)
    assert slow.value.message == fast.value.message
    assert (slow.value.code, slow.value.details) == ("InvalidEvent", {})


@given(jsons)
def test_checked_json_is_compact_and_means_the_same(raw: bytes) -> None:
    checked = checked_json(raw)
    assert json.loads(checked) == json.loads(raw)
    assert checked == checked_json(checked)
    assert b"\n" not in checked
    assert shown_json(checked) is checked


@given(st.binary(max_size=20) | st.text(max_size=20).map(lambda text: text.encode(errors="surrogatepass")))
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    try:
        expected = json.loads(raw.decode(), parse_constant=lambda name: pytest.fail(name))
    except (ValueError, pytest.fail.Exception):
        with pytest.raises(InvalidEvent):
            checked_json(raw)
    else:
        assert json.loads(checked_json(raw)) == expected


@pytest.mark.parametrize(
    "raw", [b"\xef\xbb\xbf1", b'"\xed\xa0\x80"', b'{"a":1}{', b"\x00", b"", b" ", b'"\\ud800"', b"1 2"]
)
def test_what_only_looks_like_json_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidEvent):
        checked_json(raw)


def test_brackets_that_close_what_others_opened_are_refused() -> None:
    with pytest.raises(InvalidEvent):
        checked_json(b"[" * 600 + b"]" * 650 + b",[" + b"[" * 49)


def test_what_could_be_published_can_be_read_from_a_deeper_place() -> None:
    deepest = next(depth for depth in range(5000, 0, -1) if is_json(b"[" * depth + b"]" * depth))
    assert deepest > 500
    raw = b"[" * deepest + b"]" * deepest

    def from_deeper(levels: int) -> bytes:
        return from_deeper(levels - 1) if levels else shown_json(raw)

    assert from_deeper(60) == raw


# --- batches that are not what they say


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_damaged_records_are_told_as_such_and_nothing_else(some: list[Record], data: st.DataObject) -> None:
    batch = build_batch(some)
    position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255))
    del batch[data.draw(st.integers(position + 1, len(batch))) :]
    try:
        expected = [without_size(event_of(record)) for record in read_records(_resized(batch), LARGE)]
    except CorruptBatch:
        expected = None
    try:
        found = [without_size(event) for event in decoded(batch)]
    except CorruptBatch:
        found = None
    # A record whose number is not one of its batch is damage here, and nothing to the reader of records; with the name
    # of a header that is no text it is the other way round.
    assert found is None or expected is None or found == expected or _numbers(expected) != list(range(len(some)))


def _resized(batch: bytearray) -> bytearray:
    resized = bytearray(batch)
    resized[8:12] = (len(batch) - 12).to_bytes(4, "big")
    return resized


def _numbers(events: list[Event]) -> list[int]:
    return [event.offset for event in events]


def test_record_that_is_numbered_twice_is_taken_once() -> None:
    body = encode_record_body(None, b"1", 0, b"")
    first, second = b"\x00\x00\x00" + body, b"\x00\x00\x00" + encode_record_body(None, b"2", 0, b"")
    batch, header = build_batch_from_bodies([body, body], NOW_MS)
    body = bytes([2 * len(first)]) + first + bytes([2 * len(second)]) + second
    events: list[Event] = []
    cursor = BatchCursor()
    cursor.enter(header, len(body))
    cursor.take(body, 0, events, LARGE, LARGE)
    assert [(event.offset, event.data) for event in events] == [(0, b"1")]
    assert len(batch) == HEADER_BYTES + len(body)


def test_records_stamped_by_the_broker_show_its_time() -> None:
    batch = build_batch([Record(None, b"1", 5), Record(None, b"2", 9)], timestamp_type=LOG_APPEND_TIME)
    assert [event.timestamp_ms for event in decoded(batch)] == [9, 9]


def test_type_is_remembered_only_for_the_same_headers() -> None:
    types = ["a", "a", "b", "a", "message", "b"]
    bodies = bodies_of([NewEvent(one, b"1", event_id=f"id-{number}") for number, one in enumerate(types)])
    later_type = header_bytes(b"ce_type", b"later") + header_bytes(b"ce_id", b"later-id") + header_bytes(b"m", b"v")
    bodies.append(_with_more_headers(later_type, 3))
    bodies.append(encode_record_body(None, b"1", 0, b""))
    bodies += bodies_of([NewEvent("b", b"1", {"m": "v"}, event_id="x" * 200)])
    batch, _ = build_batch_from_bodies(bodies, NOW_MS)
    events = decoded(batch)
    assert [event.type for event in events] == [*types, "later", "message", "b"]
    assert [event.event_id for event in events[:6]] == [f"id-{number}" for number in range(6)]
    assert [event.event_id for event in events[6:]] == ["later-id", "evt_7", "x" * 200]
    assert [event.metadata for event in events[6:]] == [{"m": "v"}, {}, {"m": "v"}]
    assert [without_size(event) for event in events] == [
        without_size(event_of(one)) for one in read_records(batch, LARGE)
    ]


def _with_more_headers(more: bytes, count: int) -> bytes:
    (body,) = bodies_of([NewEvent("b", b"1", event_id="id")])
    before, own = body[:3], body[4:]  # no key, the value, then the count
    assert body[3] == 12
    return before + bytes([12 + 2 * count]) + own + more


# --- times


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (NOW_MS, "2027-01-15T08:00:00.123Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (2**63 - 1, "9999-12-31T23:59:59.999Z"),
        (-(2**63), "0001-01-01T00:00:00.000Z"),
    ],
)
def test_time_is_iso_8601_in_utc_and_always_as_long(timestamp_ms: int, text: str) -> None:
    assert time_text(timestamp_ms) == text
    assert len(text) == 24


def test_few_times_are_kept_as_text() -> None:
    """Objects that stay in use keep the memory around them, also that which a large request has left."""
    for timestamp_ms in range(NOW_MS, NOW_MS + 1_000):
        time_text(timestamp_ms)
    assert time_text.cache_info().currsize <= 16
