"""Publishing: the events of one turn share a batch, those of one call stay together, and an answer means stored."""

import asyncio
import errno
import logging
import re
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.broker.partition import Partition
from kwire.errors import ErrorCode, EventTooLarge, InvalidEvent, KafkaError
from kwire.streams.events import publishing as module
from kwire.streams.events.event import GENERATED_ID_BYTES_MAX, NewEvent
from kwire.streams.events.publishing import Outcome, Published, Publisher
from kwire.streams.events.reading import EventReader
from storage.batch.format import ZSTD
from storage.batch.record_batch import parse_header, read_records
from tests.support.batches import UnsyncedFiles, headers, make_batch, split_batches
from tests.support.batches import read_all as read_batches
from tests.support.clock import ManualClock
from tests.support.effort import examples
from tests.support.events import SOURCE, Publishing, SyncLater, append, lone_partition, read_all, stream_of
from tests.support.faulty_files import FaultyFiles
from tests.support.partition_log import log_of

ONE = NewEvent("said", b'"hello"')


def batch_sizes(partition: Partition) -> list[int]:
    """How many events each stored batch has."""
    return [parse_header(batch).record_count for batch in read_batches(log_of(partition))]


def code_of(outcome: Outcome) -> ErrorCode:
    assert isinstance(outcome, KafkaError), outcome
    return outcome.code


# --- one turn, one batch


@pytest.mark.proves("S0-8", "S0-28")
def test_calls_of_one_turn_share_a_batch_and_get_their_own_offsets(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    publishing = Publishing()
    append(partition, make_batch(5, timestamp_ms=0))
    publishing.publish(partition, ONE)
    publishing.publish(partition, ONE, ONE, ONE)
    publishing.publish(partition, ONE)
    assert partition.log_end_offset == 5
    outcomes = publishing.end_turn()
    assert [outcome.offset for outcome in outcomes if isinstance(outcome, Published)] == [5, 6, 9]
    assert batch_sizes(partition) == [5, 5]
    publishing.publish_now(partition, ONE)
    assert batch_sizes(partition) == [5, 5, 1]


def test_batch_that_is_shared_is_bounded_in_events_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARED_EVENTS_MAX", 10)
    partition = lone_partition(tmp_path, max_message_bytes="4000")
    publishing = Publishing()
    for _ in range(25):
        publishing.publish(partition, ONE)
    publishing.publish(partition, *[ONE] * 15)
    assert len(publishing.end_turn()) == 26
    assert batch_sizes(partition) == [10, 10, 5, 15]
    for _ in range(5):
        publishing.publish(partition, NewEvent("said", b'"' + b"x" * 1500 + b'"'))
    offsets = [outcome.offset for outcome in publishing.end_turn() if isinstance(outcome, Published)]
    assert offsets == [40, 41, 42, 43, 44]
    assert batch_sizes(partition)[4:] == [2, 2, 1]


def test_partitions_do_not_share(tmp_path: Path) -> None:
    publishing = Publishing()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = lone_partition(tmp_path / "a"), lone_partition(tmp_path / "b")
    publishing.publish(one, ONE)
    publishing.publish(other, ONE, ONE)
    publishing.publish(one, ONE)
    assert len(publishing.end_turn()) == 3
    assert (batch_sizes(one), batch_sizes(other)) == ([2], [2])


def test_time_of_the_record_is_the_time_in_its_headers(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    publishing = Publishing()
    publishing.publish(partition, ONE)
    publishing.clock.advance(5)
    publishing.publish(partition, ONE)
    publishing.end_turn()
    (batch,) = split_batches(partition.read(0, 10_000).view)
    for record in read_records(batch, 10_000):
        assert record.timestamp_ms == 1_700_000_000_000
        assert dict(record.headers)["ce_time"] == b"2023-11-14T22:13:20.000Z"
        assert dict(record.headers)["ce_source"] == SOURCE


@pytest.mark.proves("S0-8")
def test_event_is_stored_then_shown_to_readers_then_answered_and_the_ring_holds(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path, kwire_retention_messages="3", kwire_log_sync="os")
    publishing = Publishing()
    reader = EventReader(stream_of(partition), 0)
    order: list[tuple[str, int]] = []

    def pushed(risen: Partition) -> None:
        (event,) = read_all(reader)
        order.append(("pushed", event.offset))

    def answered(outcome: Outcome) -> None:
        assert isinstance(outcome, Published)
        order.append(("answered", outcome.offset))

    partition.watch(pushed)
    for _ in range(5):
        publishing.publisher.publish(publishing.log_of(partition), SOURCE, [ONE], answered)
        publishing.end_turn()
    assert order == [(what, offset) for offset in range(5) for what in ("pushed", "answered")]
    assert (stream_of(partition).bounds().start, stream_of(partition).bounds().newest) == (2, 4)


# --- ids


def test_ids_are_unique_also_over_restarts_and_never_those_of_offsets(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    ids: list[str] = []
    for _ in range(3):
        publishing = Publishing()
        for _ in range(2):
            ids += publishing.publish_now(partition, ONE, ONE).event_ids
    assert len(set(ids)) == 12
    assert max(map(len, ids)) <= GENERATED_ID_BYTES_MAX
    assert all(re.fullmatch(r"evt_[0-9a-f]{16}-[0-9a-f]+", one) for one in ids)
    assert [event.event_id for event in read_all(EventReader(stream_of(partition), 0))] == ids


def test_id_that_was_given_is_kept(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    published = Publishing().publish_now(partition, ONE._replace(event_id="mine"), ONE)
    assert published.event_ids[0] == "mine"
    assert read_all(EventReader(stream_of(partition), 0))[0].event_id == "mine"


# --- durable or refused


@pytest.mark.proves("S3-3")
def test_answer_comes_when_the_events_are_durable_and_not_before(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    syncs = SyncLater(files)
    partition = lone_partition(tmp_path, files=files, syncs=syncs, kwire_log_sync="group")
    publishing = Publishing()
    publishing.publish(partition, ONE)
    assert publishing.end_turn() == []
    publishing.publish(partition, ONE, ONE)
    assert publishing.end_turn() == []
    assert EventReader(stream_of(partition), 0).read() == []
    syncs.run()
    assert [outcome.offset for outcome in publishing.outcomes if isinstance(outcome, Published)] == [0, 1]
    assert len(read_all(EventReader(stream_of(partition), 0))) == 3


def test_disk_that_fails_to_sync_is_told_to_everybody(tmp_path: Path) -> None:
    files = FaultyFiles()
    syncs = SyncLater(files)
    partition = lone_partition(tmp_path, files=files, syncs=syncs, kwire_log_sync="group")
    publishing = Publishing()
    publishing.publish(partition, ONE)
    publishing.publish(partition, ONE)
    publishing.end_turn()
    files.break_down("fdatasync", errno.EIO)
    files.break_down("fsync", errno.EIO)
    syncs.run()
    assert [code_of(outcome) for outcome in publishing.outcomes] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    publishing.outcomes.clear()
    publishing.publish(partition, ONE)
    assert [code_of(outcome) for outcome in publishing.end_turn()] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_topic_that_was_deleted_meanwhile_is_told(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    publishing = Publishing()
    publishing.publish_now(partition, ONE)
    publishing.publish(partition, ONE)
    log_of(partition).close()
    assert [code_of(outcome) for outcome in publishing.end_turn()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_nobody_waits_for_ever_when_an_append_breaks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "sound").mkdir()
    broken, sound = lone_partition(tmp_path / "broken"), lone_partition(tmp_path / "sound")

    def watcher(partition: Partition) -> None:
        raise RuntimeError("a bug")

    broken.watch(watcher)
    publishing = Publishing()
    publishing.publish(broken, ONE)
    publishing.publish(broken, ONE)
    publishing.publish(sound, ONE)
    first, second, third = publishing.end_turn()
    assert [code_of(outcome) for outcome in (first, second)] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert isinstance(third, Published)
    assert "a bug" in caplog.text


def test_call_that_is_too_large_fails_alone_and_as_a_whole(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path, max_message_bytes="1000")
    publishing = Publishing()
    publishing.publish(partition, ONE)
    publishing.publish(partition, ONE, NewEvent("said", b'"' + b"x" * 1000 + b'"'))
    publishing.publish(partition, ONE)
    outcomes = publishing.end_turn()
    too_large = [outcome for outcome in outcomes if isinstance(outcome, EventTooLarge)]
    assert [outcome.details["limit"] for outcome in too_large] == [1000]
    assert sorted(outcome.offset for outcome in outcomes if isinstance(outcome, Published)) == [0, 1]
    assert batch_sizes(partition) == [2]


def test_call_that_the_topic_refuses_fails_alone(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path, cleanup_policy="compact")
    publishing = Publishing()
    keyed = ONE._replace(key=b"k")
    publishing.publish(partition, keyed)
    publishing.publish(partition, keyed, ONE)
    publishing.publish(partition, keyed)
    first, second, third = publishing.end_turn()
    assert [outcome.offset for outcome in (first, third) if isinstance(outcome, Published)] == [0, 1]
    assert code_of(second) is ErrorCode.INVALID_RECORD
    assert len(read_all(EventReader(stream_of(partition), 0))) == 2


@pytest.mark.parametrize("events", [[], [ONE, NewEvent("", b"1")], [ONE] * 100_001])
def test_call_that_has_no_events_or_a_wrong_one_is_refused_as_a_whole(tmp_path: Path, events: list[NewEvent]) -> None:
    partition = lone_partition(tmp_path)
    publishing = Publishing()
    publishing.publish(partition, *events)
    assert publishing.outcomes == []  # never before the call returns
    (outcome,) = publishing.end_turn()
    assert isinstance(outcome, InvalidEvent)
    assert partition.log_end_offset == 0


def test_one_that_cannot_be_told_does_not_hold_up_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partition = lone_partition(tmp_path)
    publishing = Publishing()

    def broken(outcome: Outcome) -> None:
        raise RuntimeError("gone")

    publishing.publisher.publish(publishing.log_of(partition), SOURCE, [ONE], broken)
    publishing.publish(partition, ONE)
    with caplog.at_level(logging.ERROR):
        (outcome,) = publishing.end_turn()
    assert isinstance(outcome, Published)
    assert outcome.offset == 1
    assert "gone" in caplog.text


def test_who_is_told_may_publish_again(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    publishing = Publishing()
    seen: list[int] = []

    def again(outcome: Outcome) -> None:
        assert isinstance(outcome, Published)
        seen.append(outcome.offset)
        if outcome.offset < 3:
            publishing.publisher.publish(publishing.log_of(partition), SOURCE, [ONE], again)

    publishing.publisher.publish(publishing.log_of(partition), SOURCE, [ONE], again)
    for _ in range(5):
        publishing.end_turn()
    assert seen == [0, 1, 2, 3]


def test_topic_with_a_codec_stores_events_in_it(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path, compression_type="zstd")
    Publishing().publish_now(partition, *[ONE] * 50)
    assert [header.compression for header in headers(partition.read(0, 10_000).view)] == [ZSTD]
    assert len(read_all(EventReader(stream_of(partition), 0))) == 50


# --- waiting


def test_one_can_wait_for_the_answer(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path, max_message_bytes="1000")

    async def run() -> None:
        stream = stream_of(partition)
        publisher = Publisher(ManualClock(), asyncio.get_running_loop().call_soon)
        both = await asyncio.gather(*(publisher.publish_and_wait(stream, SOURCE, [ONE]) for _ in range(2)))
        assert [published.offset for published in both] == [0, 1]
        with pytest.raises(EventTooLarge):
            await publisher.publish_and_wait(stream, SOURCE, [ONE] * 10)
        with pytest.raises(InvalidEvent):
            await publisher.publish_and_wait(stream, SOURCE, [])
        left = asyncio.ensure_future(publisher.publish_and_wait(stream, SOURCE, [ONE]))
        await asyncio.sleep(0)
        left.cancel()
        await publisher.publish_and_wait(stream, SOURCE, [ONE])

    asyncio.run(asyncio.wait_for(run(), 10))
    assert batch_sizes(partition)[0] == 2


# --- against a naive twin

events = st.builds(
    NewEvent,
    type=st.sampled_from(["said", "joined", "left"]),
    data=st.sampled_from([b"1", b'{"a":[1,2]}', b'"' + b"x" * 400 + b'"']),
    metadata=st.dictionaries(st.sampled_from(["a", "b"]), st.text("xyz", max_size=3), max_size=2),
    key=st.none() | st.sampled_from([b"k", b""]),
    event_id=st.none(),
)


@pytest.mark.proves("S0-8", "S0-28", "S0-47")
@settings(max_examples=examples(50))
@given(st.lists(st.lists(st.lists(events, max_size=6), max_size=5), max_size=6), st.integers(1, 20))
def test_what_is_answered_is_what_is_read(turns: list[list[list[NewEvent]]], count_max: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        partition = lone_partition(Path(directory), max_message_bytes="2000", segment_bytes=3000)
        publishing = Publishing()
        stored: dict[int, NewEvent] = {}
        for calls in turns:
            outcomes: dict[int, Outcome] = {}
            for number, call in enumerate(calls):
                publishing.publisher.publish(
                    publishing.log_of(partition), SOURCE, call, partial(outcomes.__setitem__, number)
                )
            publishing.end_turn()
            assert len(outcomes) == len(calls)
            for number, call in enumerate(calls):
                outcome = outcomes[number]
                if not isinstance(outcome, Published):
                    assert isinstance(outcome, InvalidEvent if not call else EventTooLarge)
                    continue
                # In the order of the calls, one behind the other.
                assert outcome.offset == len(stored)
                assert len(outcome.event_ids) == len(call)
                for event, event_id in zip(call, outcome.event_ids, strict=True):
                    stored[len(stored)] = event._replace(event_id=event_id)
        read = read_all(EventReader(stream_of(partition), 0), count_max)
        assert [event.offset for event in read] == list(stored)
        assert [
            NewEvent(event.type, event.data, dict(event.metadata), event.key, event.event_id) for event in read
        ] == list(stored.values())
        log_of(partition).close()
