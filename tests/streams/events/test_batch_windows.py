"""Large batches are read through windows: bounded memory, few decompressions, and the same events as one by one."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kwire.broker.partition import Partition
from kwire.streams.events import batch_windows as windows
from kwire.streams.events import reading as event_reading
from kwire.streams.events.batch_windows import POSITIONS, WINDOW_BYTES, PositionCache, RecordPosition, window_at
from kwire.streams.events.reading import EventReader
from kwire.streams.log import NEXT_ITERATION, NotReady
from storage.batch.compression import decompress
from storage.batch.format import HEADER_BYTES
from storage.batch.record_batch import BatchHeader, Record, build_batch, parse_header
from storage.batch.records import read_number
from storage.errors import CorruptBatch
from tests.support.events import append, lone_partition, stream_of, wait_here

ZSTD = 4
COUNT = 300_000
SEED = 20261117


@pytest.fixture(autouse=True)
def _own_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "POSITIONS", PositionCache())


def tiny_batch(count: int = COUNT, value: bytes = b"1", compression: int = ZSTD) -> bytearray:
    return build_batch([Record(None, value, 1_700_000_000_000)] * count, compression=compression)


def decompressed(batch: bytearray) -> tuple[bytes, BatchHeader]:
    header = parse_header(memoryview(batch))
    return decompress(header.compression, bytes(batch[HEADER_BYTES:]), 2**30), header


def read_one(partition: Partition, offset: int, needs: list[NotReady]) -> tuple[int, bytes]:
    reader = EventReader(stream_of(partition), offset)
    while isinstance(found := reader.read(1), NotReady):
        needs.append(found)
        wait_here(found)
        body = reader._decompressed[1] if reader._decompressed is not None else b""
        assert isinstance(body, bytes)
        assert len(body) <= WINDOW_BYTES
    return found[0].offset, found[0].data


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each call of `_skip` has passed."""
    counts: list[int] = []
    real: Callable[..., windows._Skipped] = windows._skip

    def counted(body: bytes, record: RecordPosition, delta_wanted: int, position_max: int) -> windows._Skipped:
        passed = real(body, record, delta_wanted, position_max)
        counts.append(record.left - passed.next.left)
        return passed

    monkeypatch.setattr(windows, "_skip", counted)
    return counts


def test_the_last_event_of_a_large_batch_is_unfolded_once_and_found_again_quickly(
    tmp_path: Path, passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    decompressions: list[int] = []
    real = event_reading._decompress

    def counted(codec: int, payload: bytes | memoryview, budget_bytes: int) -> bytes:
        body = real(codec, payload, budget_bytes)
        decompressions.append(len(body))
        return body

    monkeypatch.setattr(event_reading, "_decompress", counted)
    partition = lone_partition(tmp_path, max_message_bytes="10000000")
    append(partition, tiny_batch())
    needs: list[NotReady] = []
    assert read_one(partition, COUNT - 1, needs) == (COUNT - 1, b"1")
    assert (len(needs), len(decompressions)) == (1, 1)
    # Once, and the last of each run of equal ones twice.
    assert COUNT <= sum(passes) <= COUNT + COUNT // windows.RECORDS_PER_YIELD
    passes.clear()
    assert read_one(partition, COUNT - 1, needs) == (COUNT - 1, b"1")
    assert read_one(partition, COUNT // 2, needs) == (COUNT // 2, b"1")
    # From the cached position before it, and then one window.
    assert sum(passes) <= 2 * (windows.RECORDS_PER_POSITION + windows.RECORDS_PER_YIELD + WINDOW_BYTES // 7)
    assert max(passes) <= windows.RECORDS_PER_YIELD


@pytest.mark.parametrize("compression", [0, ZSTD])
def test_all_events_of_a_large_batch_are_read_with_few_unfoldings(tmp_path: Path, compression: int) -> None:
    partition = lone_partition(tmp_path, max_message_bytes="10000000")
    append(partition, tiny_batch(100_000, b'"some text"', compression))
    append(partition, tiny_batch(10, compression=compression))
    reader, offsets, needs = EventReader(stream_of(partition), 5), [], 0
    while found := reader.read():
        if isinstance(found, NotReady):
            needs += found is not NEXT_ITERATION
            wait_here(found)
            continue
        offsets += [event.offset for event in found]
        if len(offsets) == 5000:
            reader.release_buffers()
    assert offsets == list(range(5, 100_010))
    # Two megabytes in windows of 384 KiB, and once more because it was put down.
    assert needs <= 8


def test_windows_together_are_the_batch() -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    records = [
        Record(
            b"k" if chance.random() < 0.5 else None, b"v" * chance.choice([0, 1, 100, 300, 70_000]), 1_700_000_000_000
        )
        for _ in range(300)
    ]
    records[40] = Record(None, b"x" * 3 * WINDOW_BYTES, 1_700_000_000_000)
    body, header = decompressed(build_batch(records, compression=ZSTD))
    parts, counts, start = [], [], None
    while start is None or start.left:
        window = window_at(body, header, "batch", 0, start)
        parts.append(window.body)
        counts.append(window.record_count)
        assert len(window.body) <= WINDOW_BYTES or window.record_count == 1
        start = window.end
    assert b"".join(parts) == body
    assert sum(counts) == 300


def mixed_batch(chance: random.Random) -> bytearray:
    """Runs of records of one length, and between them records of any."""
    records: list[Record] = []
    while len(records) < 30_000:
        size = chance.choice([5, 60, 100])
        records += [Record(None, b"v" * size, 1_700_000_000_000)] * chance.choice([1, 3, 1999, 4500])
    return build_batch(records[:30_000], compression=ZSTD)


@pytest.mark.parametrize("is_equal", [True, False])
def test_a_window_begins_at_the_wanted_record(is_equal: bool) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    body, header = decompressed(tiny_batch(30_000, b"12345") if is_equal else mixed_batch(chance))
    starts = list(starts_of(body))
    assert len(starts) == 30_000
    wanted = [0, 1, 127, 1999, 2000, 2001, 5000, 8191, 8192, 29_999]
    for offset in wanted + [chance.randrange(30_000) for _ in range(20)]:
        window = window_at(body, header, ("batch", offset), offset, None)
        assert window.start == RecordPosition(starts[offset], 30_000 - offset)
        count = window.record_count
        end = starts[offset + count] if offset + count < 30_000 else len(body)
        assert window.body == body[starts[offset] : end]
        assert len(window.body) <= WINDOW_BYTES
        assert window.end == RecordPosition(end, 30_000 - offset - count)


def starts_of(body: bytes) -> Iterator[int]:
    position = 0
    while position < len(body):
        yield position
        length, inside = read_number(body, position)
        position = inside + (length >> 1)


def test_a_record_that_is_cut_ends_a_window_and_cannot_begin_one() -> None:
    body, header = decompressed(tiny_batch(1000, b"12345"))
    whole = window_at(body, header, "whole", 990, None).start.position
    cut = body[: whole + 3]
    window = window_at(cut, header, "cut", 0, None)
    assert (window.record_count, window.end) == (990, RecordPosition(whole, 10))
    with pytest.raises(CorruptBatch):
        window_at(cut, header, "cut", 0, window.end)
    with pytest.raises(CorruptBatch):
        window_at(cut, header, "cut", 995, None)
    with pytest.raises(CorruptBatch):
        window_at(b"\xff" * 7000, header, "noise", 0, None)


@pytest.mark.parametrize("value", [b"1", b"1" * 100])
def test_a_batch_with_fewer_records_than_it_says_is_broken_at_its_end(value: bytes) -> None:
    body, header = decompressed(tiny_batch(3000, value))
    lying = replace(header, record_count=3100, last_offset_delta=3099)
    assert window_at(body, lying, "lying", 2990, None).record_count == 10
    with pytest.raises(CorruptBatch):
        window_at(body, lying, "lying", 3000, None)


def test_places_are_forgotten_in_the_order_of_their_use() -> None:
    positions = PositionCache()
    for number in range(windows.CACHED_BATCHES_MAX):
        positions.remember(number, 10, RecordPosition(100, 5))
    assert positions.before(0, 10) == RecordPosition(100, 5)
    positions.remember("new", 10, RecordPosition(1, 1))
    assert positions.before(0, 9) is None
    assert positions.before(0, 11) == RecordPosition(100, 5)
    assert positions.before(1, 11) is None
    assert POSITIONS is not positions
