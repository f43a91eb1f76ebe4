"""The cache of fetched batches."""

import pytest

from kwire.errors import KafkaError
from kwire.streams.log import StreamRead
from kwire.streams.remote.batch_cache import BatchCache, FirstOfTransaction, LogRuns, Run
from storage.batch.markers import build_marker
from storage.batch.record_batch import Record, build_batch
from tests.support.stream_worlds import committed_records


def batch(base_offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    records = [Record(None, value, 0) for value in values]
    if producer_id < 0:
        return bytes(build_batch(records, base_offset=base_offset))
    made = build_batch(
        records,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    return bytes(made)


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    return offset.to_bytes(8) + build_marker(producer_id, 0, 0, is_commit, 0)[8:]


def run(start: int, *batches: bytes, aborted: tuple[FirstOfTransaction, ...] = ()) -> Run:
    return Run(start, memoryview(b"".join(batches)), aborted)


def values(read: StreamRead | None) -> list[tuple[int, bytes | None]]:
    assert read is not None
    return committed_records(read)


def test_reads_begin_and_end_at_batches() -> None:
    made = run(1, batch(0, b"a", b"b"), batch(2, b"c"), batch(5, b"d"))
    assert (made.start, made.next_offset) == (1, 6)
    assert values(made.read(1, 1 << 20)) == [(0, b"a"), (1, b"b"), (2, b"c"), (5, b"d")]
    first = made.read(1, 1)
    assert first is not None
    assert (values(first), first.next_offset) == ([(0, b"a"), (1, b"b")], 2)
    # Compaction has removed the offsets 3 and 4.
    assert values(made.read(3, 1)) == [(5, b"d")]
    two = made.read(2, len(batch(2, b"c")) + len(batch(5, b"d")))
    assert values(two) == [(2, b"c"), (5, b"d")]


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    whole, cut = batch(0, b"a"), batch(1, b"b")[:-1]
    made = run(0, whole, cut)
    assert (made.next_offset, bytes(made.data)) == (1, whole)


def test_bytes_that_are_not_batches_are_refused() -> None:
    with pytest.raises(KafkaError, match="not record batches"):
        run(0, bytes(100))


def test_aborted_transactions_end_at_their_markers() -> None:
    made = run(
        0,
        batch(0, b"aborted", producer_id=7),
        batch(1, b"kept", producer_id=8),
        marker(2, 7, is_commit=False),
        marker(3, 8, is_commit=True),
        batch(4, b"kept too", producer_id=7),
        marker(5, 7, is_commit=True),
        batch(6, b"open", producer_id=9),
        aborted=(FirstOfTransaction(0, 7), FirstOfTransaction(6, 9)),
    )
    assert made.aborted == [(7, 0, 2), (9, 6, 6)]
    read = made.read(0, 1 << 20)
    assert values(read) == [(1, b"kept"), (4, b"kept too")]
    later = made.read(4, 1 << 20)
    assert later is not None
    assert later.aborted == [(9, 6, 6)]


def test_runs_continue_in_each_other_and_over_gaps() -> None:
    cache, runs = BatchCache(), LogRuns()
    cache.add(runs, run(0, batch(0, b"a")))
    cache.add(runs, Run(1, memoryview(b""), next_offset=5))
    cache.add(runs, run(5, batch(5, b"b")))
    found = cache.read(runs, 2, 1)
    assert isinstance(found, StreamRead)
    assert (values(found), found.next_offset) == ([(5, b"b")], 6)
    assert cache.read(runs, 6, 1) == 6
    cache.clear(runs)
    assert (cache.used_bytes, runs.runs) == (0, [])


def test_what_was_not_read_for_the_longest_time_is_evicted() -> None:
    cost = run(0, batch(0, b"x")).cost_bytes
    cache, first, second = BatchCache(3 * cost), LogRuns(), LogRuns()
    for offset in range(3):
        cache.add(first, run(offset, batch(offset, b"x")))
    assert isinstance(cache.read(first, 0, 1), StreamRead)
    cache.add(second, run(0, batch(0, b"y")))
    assert [one.start for one in first] == [0, 2]
    assert cache.used_bytes == 3 * cost
    # A run in place of one with the same start counts once.
    cache.add(second, run(0, batch(0, b"y")))
    assert [one.start for one in first] == [0, 2]
    # One run may be larger than the cache.
    cache.add(second, run(7, batch(7, bytes(10 * cost))))
    assert isinstance(cache.read(second, 7, 1), StreamRead)
    assert not first.runs
