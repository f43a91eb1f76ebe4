"""Counting events back from the end of a partition, past offsets that never had one."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.broker.partition import Partition
from kwire.streams.events import last_events as counting_back
from kwire.streams.events.last_events import offset_of_last
from kwire.streams.events.reading import read_events
from storage.log.quarantine import Quarantine
from tests.support.batches import make_batch
from tests.support.effort import examples
from tests.support.events import append, lone_partition, stream_of
from tests.support.node import in_loop
from tests.support.partition_log import log_of
from tests.support.transactions import TransactionalProducer

COUNTS = st.integers(1, 30)
ENDS = st.sampled_from(["commit", "abort"])
PLAIN = st.tuples(st.just("plain"), st.integers(1, 8))
TRANSACTIONS = st.tuples(ENDS, st.lists(st.integers(1, 8), max_size=3))


async def last(partition: Partition, count: int) -> int:
    return await offset_of_last(stream_of(partition), count)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(PLAIN | TRANSACTIONS, max_size=15), st.lists(COUNTS, min_size=1, max_size=4), st.integers(0, 20))
def test_as_many_events_as_were_asked_for_begin_there(
    some: list[tuple[str, int | list[int]]], counts: list[int], start: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        partition = lone_partition(Path(directory), segment_bytes=2000)
        producer = TransactionalProducer(partition, 7)
        for kind, how in some:
            if isinstance(how, int):
                append(partition, make_batch(how, timestamp_ms=0))
                continue
            for count in how:
                producer.send(count)
            producer.commit() if kind == "commit" else producer.abort()
        log = log_of(partition)
        log.advance_log_start_offset(min(start, log.log_end_offset))
        asyncio.run(_check(partition, counts))
        log.close()


async def _check(partition: Partition, counts: list[int]) -> None:
    oldest = partition.log_start_offset
    everything = [one.offset for one in await read_events(stream_of(partition), oldest, 10_000)]
    for count in counts:
        offset = await offset_of_last(stream_of(partition), count)
        events = [one.offset for one in await read_events(stream_of(partition), offset, 10_000)]
        assert events == everything[-count:]
        assert offset >= oldest


@in_loop
async def test_without_transactions_offsets_are_counted(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    append(partition, make_batch(10, timestamp_ms=0))
    assert [await last(partition, count) for count in (1, 9, 10, 11, 2**62)] == [9, 1, 0, 0, 0]


@in_loop
async def test_nobody_counts_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = lone_partition(tmp_path)
    producer = TransactionalProducer(partition, 7)
    append(partition, make_batch(1, timestamp_ms=0))
    for _ in range(100):
        producer.send()
    producer.abort()
    assert await last(partition, 1) == 0
    monkeypatch.setattr(counting_back, "COUNTED_OFFSETS_MAX", 20)
    assert await last(partition, 1) > 50
    monkeypatch.setattr(counting_back, "COUNTED_EVENTS_MAX", 3)
    assert await last(partition, 4) == 98


@in_loop
async def test_damage_is_counted_and_told_by_those_who_read_it(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    producer = TransactionalProducer(partition, 7)
    append(partition, make_batch(5, timestamp_ms=0))
    size_bytes = log_of(partition).size_bytes
    producer.send(5)
    damaged_bytes = log_of(partition).size_bytes - size_bytes
    producer.commit()
    log_of(partition).quarantine(Quarantine(0, size_bytes, damaged_bytes, 5, 10, "test"))
    assert await last(partition, 3) == 7
    assert await last(partition, 6) == 4
