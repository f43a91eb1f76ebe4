"""What every StreamLog does. Each test runs with each implementation of `WORLDS`."""

from pathlib import Path

import pytest

from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from kwire.streams.log import StreamLog
from storage.batch.builder import build_batch_from_bodies, encode_record_body
from tests.support.remote_worlds import HOLDING_WORLDS, WORLDS, make_world
from tests.support.stream_worlds import (
    MAX_BATCH_BYTES,
    NOW_MS,
    Appends,
    StreamWorld,
    in_world,
    read_once,
    read_values,
)


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> StreamWorld:
    return make_world(request.param, request, tmp_path)


# --- appending and reading


@in_world
async def test_an_empty_log(world: StreamWorld) -> None:
    log = await world.create("lobby")
    await log.ready()
    assert (log.topic, log.partition, log.is_gone, log.is_closing) == ("lobby", 0, False, False)
    assert log.bounds() == (0, 0, 0)
    assert (log.start_offset, log.committed_end, log.bounds().newest) == (0, 0, -1)
    assert log.usage() == (0, None)
    assert await read_values(log) == []
    assert world.find("lobby") is log


@in_world
async def test_batches_get_consecutive_offsets_in_the_order_of_the_calls(world: StreamWorld) -> None:
    log, appends = await world.create(), Appends()
    appends.send(log, b"a")
    appends.send(log, b"b", b"c", b"d")
    appends.send(log, b"e", at_ms=NOW_MS + 5)
    await world.settle()
    assert appends == [0, 1, 4]
    assert log.bounds() == (0, 5, 5)
    assert log.usage().last_timestamp_ms == NOW_MS + 5
    assert log.usage().size_bytes > 0
    assert await read_values(log) == list(enumerate([b"a", b"b", b"c", b"d", b"e"]))


@in_world
async def test_a_read_begins_at_any_offset_and_continues_where_it_ended(world: StreamWorld) -> None:
    log, appends = await world.create(), Appends()
    for first in range(0, 60, 3):
        appends.send(log, *(b"%d" % number for number in range(first, first + 3)))
        # Appends that wait together may be stored as one batch.
        await world.settle()
    expected = [(number, b"%d" % number) for number in range(60)]
    for offset in (0, 1, 2, 3, 17, 58, 59):
        assert await read_values(log, offset) == expected[offset:]
        assert await read_values(log, offset, max_bytes=200) == expected[offset:]
    # The first batch comes whole, however small `max_bytes` is.
    assert (await read_once(log, 4, max_bytes=1)).next_offset == 6


@in_world
async def test_reads_at_the_end_and_beyond_are_empty(world: StreamWorld) -> None:
    log = await world.create()
    Appends().send(log, b"a", b"b")
    await world.settle()
    for offset in (2, 3, 1000):
        read = await read_once(log, offset)
        assert not read.records
        assert read.next_offset == offset


@in_world
async def test_what_lies_below_the_start_is_out_of_range(world: StreamWorld) -> None:
    log, appends = await world.create(), Appends()
    for number in range(10):
        appends.send(log, b"%d" % number)
    await world.delete_before(log, 4)
    await world.settle()
    assert log.bounds() == (4, 10, 10)
    assert log.start_offset == 4
    with pytest.raises(OffsetOutOfRange) as refused:
        await read_once(log, 3)
    assert (refused.value.requested, refused.value.oldest) == (3, 4)
    assert await read_values(log, 4) == [(number, b"%d" % number) for number in range(4, 10)]
    await world.delete_before(log, 10)
    await world.settle()
    assert log.bounds() == (10, 10, 10)
    assert await read_values(log, 10) == []
    appends.send(log, b"next")
    await world.settle()
    assert await read_values(log, 10) == [(10, b"next")]


@in_world
async def test_a_batch_may_have_max_batch_bytes_and_no_more(world: StreamWorld) -> None:
    log, appends = await world.create(), Appends()
    assert log.max_batch_bytes == MAX_BATCH_BYTES
    overhead = len(_batch(b"x" * 10_000)[0]) - 10_000
    largest = b"x" * (MAX_BATCH_BYTES - overhead)
    assert len(_batch(largest)[0]) == MAX_BATCH_BYTES
    appends.send(log, largest + b"x")
    await world.settle()
    (refused,) = appends
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.MESSAGE_TOO_LARGE
    assert log.bounds() == (0, 0, 0)
    appends.send(log, largest)
    appends.send(log, b"after")
    await world.settle()
    assert appends[1:] == [0, 1]
    assert await read_values(log, max_bytes=100) == [(0, largest), (1, b"after")]


def _batch(value: bytes) -> tuple[memoryview, object]:
    return build_batch_from_bodies([encode_record_body(None, value, 0, b"")], NOW_MS)


@pytest.mark.parametrize("world", HOLDING_WORLDS, indirect=True)
@in_world
async def test_appends_complete_when_they_are_committed_and_are_not_read_before(world: StreamWorld) -> None:
    log, appends, rises = await world.create(), Appends(), list[int]()
    appends.send(log, b"before")
    log.watch(lambda one: rises.append(one.committed_end))
    await world.settle()
    rises.clear()
    world.hold()
    for number in range(1000):
        appends.send(log, b"%d" % number)
    await world.settle()
    assert appends == [0]
    assert rises == []
    assert log.bounds()[:2] == (0, 1)
    assert log.bounds().end == 1001 or not world.sees_uncommitted
    assert await read_values(log) == [(0, b"before")]
    assert not (await read_once(log, 500)).records
    world.release()
    await world.settle()
    assert appends == list(range(1001))
    assert rises[-1] == 1001
    assert await read_values(log, 1) == [(number + 1, b"%d" % number) for number in range(1000)]


@in_world
async def test_an_append_may_be_made_when_another_completes(world: StreamWorld) -> None:
    log, offsets = await world.create(), list[object]()

    def again(outcome: int | KafkaError) -> None:
        offsets.append(outcome)
        if len(offsets) < 5:
            log.append(*build_batch_from_bodies([encode_record_body(None, b"x", 0, b"")], NOW_MS), again)

    log.append(*build_batch_from_bodies([encode_record_body(None, b"x", 0, b"")], NOW_MS), again)
    await world.settle()
    assert offsets == [0, 1, 2, 3, 4]
    assert len(await read_values(log)) == 5


# --- transactions


@in_world
async def test_open_transactions_end_what_is_committed(world: StreamWorld) -> None:
    log, appends = await world.create(), Appends()
    appends.send(log, b"a")
    await world.send(log, 7, b"b")
    appends.send(log, b"c")
    await world.send(log, 8, b"d")
    await world.settle()
    assert log.bounds() == (0, 1, 4)
    assert await read_values(log) == [(0, b"a")]
    assert not (await read_once(log, 2)).records
    await world.end(log, 7, is_commit=True)
    await world.settle()
    assert log.bounds() == (0, 3, 5)
    assert await read_values(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    await world.end(log, 8, is_commit=True)
    await world.settle()
    assert log.bounds() == (0, 6, 6)
    assert await read_values(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


@in_world
async def test_aborted_transactions_are_named_and_their_records_are_not_read(world: StreamWorld) -> None:
    log, appends = await world.create(), Appends()
    await world.send(log, 7, b"aborted")
    await world.send(log, 8, b"kept")
    await world.send(log, 7, b"aborted too")
    await world.end(log, 7, is_commit=False)
    appends.send(log, b"plain")
    await world.end(log, 8, is_commit=True)
    await world.send(log, 7, b"kept too")
    await world.end(log, 7, is_commit=True)
    expected = [(1, b"kept"), (4, b"plain"), (6, b"kept too")]
    await world.settle()
    assert await read_values(log) == expected
    for offset in range(8):
        assert await read_values(log, offset, max_bytes=1) == [one for one in expected if one[0] >= offset]
    (aborted,) = (await read_once(log, 0)).aborted
    # The marker has offset 3. A read that ends before it need not know that.
    assert aborted.first_offset == 0
    assert aborted.last_offset in (2, 3)


@pytest.mark.parametrize("world", HOLDING_WORLDS, indirect=True)
@in_world
async def test_a_marker_that_is_not_committed_ends_nothing(world: StreamWorld) -> None:
    log = await world.create()
    await world.send(log, 7, b"a")
    world.hold()
    await world.end(log, 7, is_commit=True)
    await world.settle()
    assert log.committed_end == 0
    assert await read_values(log) == []
    world.release()
    await world.settle()
    assert await read_values(log) == [(0, b"a")]


# --- signals


@in_world
async def test_watchers_are_called_for_each_rise_until_they_are_removed(world: StreamWorld) -> None:
    log, other, appends = await world.create("a"), await world.create("b"), Appends()
    first, second = list[tuple[StreamLog, int]](), list[int]()

    def watch_first(one: StreamLog) -> None:
        first.append((one, one.committed_end))

    def watch_second(one: StreamLog) -> None:
        second.append(one.committed_end)

    log.watch(watch_first)
    log.watch(watch_second)
    await world.settle()
    appends.send(log, b"a")
    await world.settle()
    appends.send(log, b"b", b"c")
    appends.send(other, b"x")
    await world.settle()
    assert first == [(log, 1), (log, 3)]
    assert second == [1, 3]
    log.unwatch(watch_first)
    log.unwatch(watch_first)
    appends.send(log, b"d")
    await world.settle()
    assert (len(first), second) == (2, [1, 3, 4])
    log.unwatch(watch_second)
    appends.send(log, b"e")
    await world.settle()
    assert second == [1, 3, 4]


@in_world
async def test_a_watcher_that_is_removed_while_a_rise_is_reported_is_not_called(world: StreamWorld) -> None:
    log, calls = await world.create(), list[str]()

    def first(one: StreamLog) -> None:
        calls.append("first")
        one.unwatch(first)
        one.unwatch(second)

    def second(one: StreamLog) -> None:
        calls.append("second")
        one.unwatch(first)
        one.unwatch(second)

    log.watch(first)
    log.watch(second)
    Appends().send(log, b"a")
    await world.settle()
    assert len(calls) == 1


@in_world
async def test_a_marker_that_commits_is_a_rise(world: StreamWorld) -> None:
    log, ends = await world.create(), list[int]()
    await world.send(log, 7, b"a")
    log.watch(lambda one: ends.append(one.committed_end))
    await world.end(log, 7, is_commit=True)
    await world.settle()
    # A remote log may report an end more than once, while records below it arrive.
    assert set(ends) == {2}


# --- deletion


@in_world
async def test_a_deleted_log_is_gone_and_its_name_belongs_to_another(world: StreamWorld) -> None:
    log, appends, gone = await world.create(), Appends(), list[bool]()
    appends.send(log, b"old", b"old too")
    log.watch(lambda one: gone.append(one.is_gone))
    await world.settle()
    await world.delete(log)
    await world.settle()
    assert gone[-1]
    assert (log.is_gone, log.is_closing) == (True, True)
    again = await world.create()
    assert again is not log
    assert again.incarnation != log.incarnation
    assert not again.is_gone
    assert again.bounds() == (0, 0, 0)
    Appends().send(again, b"new")
    await world.settle()
    assert await read_values(again) == [(0, b"new")]
    # The old one does not turn into the new one.
    assert log.is_gone
    appends.send(log, b"late")
    await world.settle()
    assert isinstance(appends[-1], KafkaError)
    assert appends[-1].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as refused:
        await read_once(log, 0)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await read_values(again) == [(0, b"new")]


# --- times, threads


@in_world
async def test_the_first_committed_record_of_a_time(world: StreamWorld) -> None:
    log, appends = await world.create(), Appends()
    assert await log.offset_for_time(NOW_MS) == 0
    for second in (1, 2, 2, 5):
        appends.send(log, b"x", b"y", at_ms=NOW_MS + second * 1000)
    asked = {0: 0, 1000: 0, 1001: 2, 2000: 2, 2001: 6, 5000: 6, 5001: 8}
    await world.settle()
    assert {ms: await log.offset_for_time(NOW_MS + ms) for ms in asked} == asked
    await world.delete_before(log, 3)
    await world.settle()
    assert await log.offset_for_time(NOW_MS) == 3
    # What is not committed has no time yet.
    await world.send(log, 7, b"open", at_ms=NOW_MS + 9000)
    await world.settle()
    assert await log.offset_for_time(NOW_MS + 9000) == 8
    await world.end(log, 7, is_commit=True)
    await world.settle()
    assert await log.offset_for_time(NOW_MS + 9000) == 8
    assert log.committed_end == 10


@in_world
async def test_work_of_a_reader_is_done_and_its_failure_is_reported(world: StreamWorld) -> None:
    log, done = await world.create(), list[str]()
    await log.in_thread(lambda: done.append("work")).wait()
    assert done == ["work"]

    def fail() -> None:
        raise ArithmeticError("no result")

    with pytest.raises(ArithmeticError):
        await log.in_thread(fail).wait()
