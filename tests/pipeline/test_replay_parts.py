"""The parts of a replay without Spark and a server: rounds, rate limit, checkpoints, event files and payloads."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.pipeline.columns import Array, Column, Struct, payload_columns
from kwire.pipeline.ordered_rows import PART_BYTES, PART_ROWS, PARTS_MAX, part_count
from kwire.pipeline.replay import rounds
from kwire.pipeline.replay.checkpoint import CheckpointFile, ReplayCheckpoint
from kwire.pipeline.replay.event import CannotReplay, Record, ReplayEvent
from kwire.pipeline.replay.files import event_of, events_of
from kwire.pipeline.replay.job import CHECK, SEND, SKIP
from kwire.pipeline.replay.payload import Payloads
from kwire.pipeline.replay.rate_limit import ROUND_SECONDS, RateLimiter
from kwire.pipeline.replay.rounds import in_rounds
from tests.support.jobs import job_options

PURPOSE = {"topic": "orders", "to": "copy"}


def event(partition: int, offset: int, value: bytes = b"x") -> ReplayEvent:
    return ReplayEvent(partition, offset, Record(None, value, 0))


# --- rounds


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300)), max_size=200),
    st.integers(1, 20),
    st.integers(1, 400),
    st.integers(1, 3),
)
def test_rounds_keep_the_order_and_every_part_fits_in_one_batch(
    given_events: list[tuple[int, int]], events_max: int, batch_bytes: int, targets: int
) -> None:
    events = [event(partition, number, b"v" * size) for number, (partition, size) in enumerate(given_events)]
    rounds = list(in_rounds(iter(events), lambda one: one.partition % targets, events_max, batch_bytes))
    assert [one for whole in rounds for _, one in whole.events] == events
    for whole in rounds:
        assert 1 <= len(whole.events) <= events_max
        for target in range(targets):
            part = [one for partition, one in whole.events if partition == target]
            # One that is larger than a batch goes alone.
            assert len(part) <= 1 or sum(one.size_bytes for one in part) <= batch_bytes
        assert whole.through() == {one.partition: one.offset + 1 for _, one in whole.events}


def test_a_round_is_bounded_however_many_partitions_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "ROUND_BYTES_MAX", 1_000)
    events = [event(number, 0, b"v" * 300) for number in range(10)]
    found = list(in_rounds(iter(events), lambda one: one.partition))
    assert [len(one.events) for one in found] == [3, 3, 3, 1]


def test_a_frame_comes_in_parts_by_its_rows_or_its_bytes() -> None:
    assert part_count(0, 0) == 1
    assert part_count(PART_ROWS * 3, 100) == 4
    assert part_count(10, PART_BYTES * 5) == 6
    assert part_count(10**12, 10**15) == PARTS_MAX


# --- rate limit


def test_no_more_events_go_in_a_time_than_the_rate_says() -> None:
    now, sent = 100.0, []

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    pace = RateLimiter(50, wait, lambda: now)
    assert pace.round_events(5_000) == 50 * ROUND_SECONDS
    for _ in range(20):
        pace.wait_to_send(25)
        sent.append((now, 25))
    assert [round(at - 100.0, 6) for at, _ in sent] == [number * 0.5 for number in range(20)]


def test_a_server_that_was_slow_does_not_get_what_it_missed_at_once() -> None:
    now, waits = 0.0, []
    pace = RateLimiter(10, lambda seconds: waits.append(seconds), lambda: now)
    pace.wait_to_send(5)
    now = 60.0
    pace.wait_to_send(5)
    pace.wait_to_send(5)
    assert waits == [pytest.approx(0.5)]


def test_a_slow_pace_sends_one_at_a_time_and_no_pace_never_waits() -> None:
    assert RateLimiter(0.1).round_events(5_000) == 1
    free = RateLimiter(None, lambda _: pytest.fail("waited"))
    free.wait_to_send(1_000_000)
    assert free.round_events(5_000) == 5_000


# --- arguments

REQUIRED = ("--bootstrap", "localhost:9092", "--topic", "orders", "--warehouse", "lake")


@pytest.mark.parametrize(
    ("text", "action"), [("check", CHECK), ("look", CHECK), ("send", SEND), ("skip", SKIP), (None, CHECK)]
)
def test_rounds_in_doubt_are_checked_unless_told_otherwise(text: str | None, action: str) -> None:
    """`look` is the former name of `check`."""
    chosen = job_options("replay", *REQUIRED, *(("--in-doubt", text) if text else ()))
    assert chosen.in_doubt == action


def test_other_actions_are_refused_and_the_former_name_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        job_options("replay", *REQUIRED, "--in-doubt", "guess")
    assert "choose from check, send, skip" in capsys.readouterr().err


# --- checkpoints


def test_a_note_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path / "below" / "note.json")
    with checkpoints.locked():
        check_checkpoints(checkpoints)
    assert {path.name for path in (tmp_path / "below").iterdir()} == {"note.json", ".note.json.lock"}


def check_checkpoints(checkpoints: CheckpointFile) -> None:
    checkpoint = checkpoints.read(PURPOSE)
    assert not checkpoint.is_in_doubt
    under_way = checkpoint.start_round({0: 10, 3: 4}, {0: 70})
    checkpoints.write(under_way)
    assert checkpoints.read(PURPOSE) == under_way
    assert checkpoints.read(PURPOSE).is_in_doubt
    done = checkpoints.read(PURPOSE).finish_round(14)
    checkpoints.write(done)
    assert checkpoints.read(PURPOSE) == done == ReplayCheckpoint(PURPOSE, {0: 10, 3: 4}, {}, {0: 70}, 14)


def test_a_note_about_events_of_another_topic_is_refused() -> None:
    begun = ReplayCheckpoint(PURPOSE).for_origin("id-1").start_round({0: 5}, {0: 0}).finish_round(5)
    assert begun.for_origin("id-1") == begun
    with pytest.raises(CannotReplay, match="another topic orders"):
        begun.for_origin("id-2")


def test_two_processes_cannot_be_at_one_replay(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    with (
        CheckpointFile(path).locked(),
        pytest.raises(CannotReplay, match="another process"),
        CheckpointFile(path).locked(),
    ):
        pytest.fail("both hold it")
    with CheckpointFile(path).locked():
        pass


def test_a_note_of_another_replay_is_refused_and_says_why(tmp_path: Path) -> None:
    checkpoints = CheckpointFile(tmp_path / "note.json")
    checkpoints.write(checkpoints.read(PURPOSE))
    with pytest.raises(CannotReplay, match="to was 'copy', not 'other'"):
        checkpoints.read({**PURPOSE, "to": "other"})


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"version": 1}', b"\xff", b'{"version": 1, "purpose": 3}'])
def test_a_damaged_note_is_refused_not_taken_for_a_beginning(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "note.json"
    path.write_bytes(raw)
    with pytest.raises(CannotReplay):
        CheckpointFile(path).read(PURPOSE)


def test_a_note_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    path.write_text('{"version": 2}')
    with pytest.raises(CannotReplay, match="unsupported checkpoint version"):
        CheckpointFile(path).read(PURPOSE)


# --- event files


def line(**more: Any) -> str:
    told = {"id": "user-events-7", "timestamp": "2026-11-16T13:14:21.251Z", "type": "made", "payload": {"a": 1}, **more}
    return json.dumps(told)


def test_an_event_file_is_a_record_with_the_headers_of_the_event_store() -> None:
    text = '{"id":"user-events-7","timestamp":"2026-11-16T13:14:21.251Z","type":"made","payload":{"a": 1.10},'
    found = event_of("user-events", text + '"metadata":{"trace":"t-1"},"key":"k"}')
    assert (found.partition, found.offset) == (0, 6)
    assert found.record.key == b"k"
    # Not one byte of a payload changes.
    assert found.record.value == b'{"a": 1.10}'
    assert found.record.timestamp_ms == 1_794_834_861_251
    assert dict(found.record.headers) == {
        "ce_specversion": b"1.0",
        "content-type": b"application/json",
        "ce_source": b"/topics/user-events",
        "ce_type": b"made",
        "ce_time": b"2026-11-16T13:14:21.251Z",
        "ce_id": b"user-events-7",
        "trace": b"t-1",
    }


def test_a_key_that_is_no_text_comes_back_as_the_bytes_it_was() -> None:
    assert event_of("user-events", line(key={"base64": "/wA="})).record.key == b"\xff\x00"


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "{}",
        line(id="other-7"),
        line(id="user-events-0"),
        line(id="user-events-x"),
        line(timestamp="yesterday"),
        line(timestamp="2026-11-16T13:14:21"),
        line(key={"base64": "!"}),
        line(key={"hex": "00"}),
        line(metadata={"a": 1}),
    ],
)
def test_what_is_no_event_of_the_topic_is_refused_with_its_file(bad: str) -> None:
    with pytest.raises(CannotReplay, match=r"^some/file: "):
        list(events_of("user-events", [{"line": bad, "path": "some/file"}]))


def test_an_event_in_two_files_comes_once_and_two_different_ones_are_refused() -> None:
    rows = [{"line": line(), "path": "loose"}, {"line": line(), "path": "packed"}]
    assert len(list(events_of("user-events", rows))) == 1
    rows[1]["line"] = line(payload={"a": 2})
    with pytest.raises(CannotReplay, match="packed: another file has a different event user-events-7"):
        list(events_of("user-events", rows))


# --- payloads


SCHEMAS: list[dict[str, Any]] = [
    {
        "eventType": "order.placed",
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "note": {},
            "tags": {"type": "array", "items": {"type": "string"}},
            "extra": {"type": "object"},
            "code": {"type": ["integer", "boolean"]},
            "gone": {"type": ["string", "null"]},
        },
        "required": ["id", "gone"],
    }
]


@pytest.mark.parametrize(
    "payload",
    [
        {"id": "1", "gone": "x"},
        {"id": '{"looks":"like JSON"}', "gone": "x"},
        {"id": "[1]", "gone": "12"},
        {"id": "1", "gone": "x", "extra": {"deep": {"er": [1, None, "two"]}}},
        {"id": "1", "gone": "x", "note": [1, 2]},
        {"id": "1", "gone": "x", "note": "a text"},
        {"id": "1", "gone": None},
        {"id": "1", "gone": "x", "tags": ["{}", "b"]},
        {"id": "1", "gone": "x", "code": 7},
        {"id": "1", "gone": "x", "code": True},
        {"id": "ü€", "gone": ""},
    ],
)
def test_a_payload_is_the_same_again_when_made_from_its_columns(payload: dict[str, Any]) -> None:
    columns = payload_columns(SCHEMAS)
    assert Column("extra", "string") in columns
    assert Column("tags", Array("string")) in columns
    kinds = {column.name: column.type for column in columns}
    row = {name: _cell(value, kinds[name]) for name, value in payload.items()}
    told = json.dumps({name: value for name, value in row.items() if value is not None})
    assert json.loads(Payloads(columns, SCHEMAS).value("order.placed", told)) == payload


def _cell(value: Any, kind: object) -> Any:
    """As the lake has it: text where the schema leaves a type open."""
    if kind == "string" and value is not None and not isinstance(value, str):
        return json.dumps(value)
    return value


def test_text_is_taken_for_json_inside_structs_and_arrays_too() -> None:
    columns = (Column("list", Array(Struct((Column("open", "string"),)))),)
    made = Payloads(columns, []).value("any", json.dumps({"list": [{"open": '{"a":1}'}, {"open": "b"}]}))
    assert json.loads(made) == {"list": [{"open": {"a": 1}}, {"open": "b"}]}


def test_every_field_that_was_null_is_there_again_however_many_there_are() -> None:
    item = {"type": "object", "properties": {"gone": {"type": ["string", "null"]}}, "required": ["gone"]}
    schema = {"eventType": "listed", "type": "object", "properties": {"list": {"type": "array", "items": item}}}
    payload = {"list": [{"gone": None}] * 50}
    row = json.dumps({"list": [{}] * 50})
    assert json.loads(Payloads(payload_columns([schema]), [schema]).value("listed", row)) == payload


def test_a_payload_that_needs_no_change_keeps_its_bytes() -> None:
    assert Payloads((Column("n", "double"),), []).value("any", '{"n":1.0E10}') == b'{"n":1.0E10}'
