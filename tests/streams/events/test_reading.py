"""Reading a partition as events: every event once and in order, in bounded reads, whatever lies between them."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.broker.fetch.cold_reads import ColdReads
from kwire.broker.partition import Partition
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.errors import ErrorCode, KafkaError, OffsetOutOfRange
from kwire.streams.events import reading as event_reading
from kwire.streams.events.event import Event, NewEvent
from kwire.streams.events.reading import (
    EventReader,
    read_events,
)
from kwire.streams.local import WAITS_MAX
from kwire.streams.log import NotReady, Unreadable
from storage.batch.format import GZIP, HEADER_BYTES, LZ4, NONE, SNAPPY, ZSTD
from storage.batch.record_batch import BatchHeader, Record, build_batch, parse_header
from storage.batch.records import varint
from storage.disk.files import Files
from storage.log.quarantine import Quarantine
from tests.support.batches import UnsyncedFiles, make_batch
from tests.support.effort import examples
from tests.support.events import Publishing, append, lone_partition, read_all, stream_of, wait_here
from tests.support.new_segments import write_new_segment
from tests.support.partition_log import log_of
from tests.support.transactions import TransactionalProducer

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
NOW_MS = 1_700_000_000_000


def batch_of(count: int, *, compression: int = NONE, size: int = 1, first: int = 0) -> bytearray:
    records = [Record(None, b"%d" % (first + number) * size, NOW_MS) for number in range(count)]
    return build_batch(records, compression=compression)


def offsets(events: list[Event]) -> list[int]:
    return [event.offset for event in events]


def first_portion(reader: EventReader, count_max: int = 500, bytes_max: int = 1024 * 1024) -> list[Event]:
    found = reader.read(count_max, bytes_max)
    assert isinstance(found, list)
    return found


# --- against a naive twin


@dataclass
class Twin:
    """What a partition should hold, as a plain list."""

    events: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    end: int = 0
    start: int = 0
    damaged: list[range] = field(default_factory=list)
    # The offsets that each producer has in its open transaction.
    undecided: dict[int, list[int]] = field(default_factory=dict)

    def add(self, event_type: str, data: bytes) -> None:
        self.events[self.end] = event_type, data
        self.end += 1

    @property
    def stable_end(self) -> int:
        return max(self.start, min([self.end, *(offsets[0] for offsets in self.undecided.values())]))

    def expected(self, offset: int) -> list[tuple[int, str, bytes]]:
        return [
            (at, *event)
            for at, event in sorted(self.events.items())
            if max(offset, self.start) <= at < self.stable_end and not any(at in gone for gone in self.damaged)
        ]


calls = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), max_size=4)
publishes = st.tuples(st.just("publish"), calls)
foreign = st.tuples(st.just("foreign"), st.tuples(st.integers(1, 40), st.sampled_from(CODECS)))
others = st.sampled_from([("marker", None), ("roll", None)])
advances = st.tuples(st.just("advance"), st.integers(0, 30))
compactions = st.tuples(st.just("compact"), st.integers(1, 3))
quarantines = st.tuples(st.just("quarantine"), st.integers(0, 5))
producers = st.integers(1, 3)
in_transactions = st.tuples(st.just("send"), st.tuples(producers, st.integers(1, 5), st.sampled_from(CODECS)))
ends = st.tuples(st.just("end"), st.tuples(producers, st.booleans()))
steps = st.lists(
    publishes | foreign | in_transactions | ends | others | advances | compactions | quarantines, max_size=25
)


class World:
    def __init__(self, directory: Path) -> None:
        self.files = UnsyncedFiles()
        self.partition = lone_partition(directory, files=self.files)
        self.publishing = Publishing()
        self.twin = Twin()
        self.producers = {number: TransactionalProducer(self.partition, number) for number in range(1, 4)}
        self.is_hurt = False

    def do(self, step: str, how: object) -> None:
        getattr(self, f"_{step}")(how)

    def _publish(self, calls: list[list[str]]) -> None:
        for types in calls:
            data = [b'{"n":%d}' % (self.twin.end + number) for number in range(len(types))]
            self.publishing.publish(self.partition, *map(NewEvent, types, data))
            for event_type, one in zip(types, data, strict=True):
                self.twin.add(event_type, one)
        self.publishing.end_turn()

    def _foreign(self, how: tuple[int, int]) -> None:
        count, codec = how
        append(self.partition, batch_of(count, compression=codec, first=self.twin.end))
        for _ in range(count):
            self.twin.add("message", b"%d" % self.twin.end)

    def _marker(self, _: None) -> None:
        """Of a producer that has written nothing."""
        assert self.partition.append_marker(99, 0, 0, True).base_offset == self.twin.end
        self.twin.end += 1

    def _send(self, how: tuple[int, int, int]) -> None:
        number, count, codec = how
        records = [Record(None, b"%d" % (self.twin.end + at), NOW_MS) for at in range(count)]
        assert self.producers[number].send_records(records, compression=codec) == self.twin.end
        for _ in range(count):
            self.twin.undecided.setdefault(number, []).append(self.twin.end)
            self.twin.add("message", b"%d" % self.twin.end)

    def _end(self, how: tuple[int, bool]) -> None:
        number, is_commit = how
        producer = self.producers[number]
        assert (producer.commit() if is_commit else producer.abort()) == self.twin.end
        self.twin.end += 1
        for offset in self.twin.undecided.pop(number, ()):
            if not is_commit:
                self.twin.events.pop(offset, None)

    def _roll(self, _: None) -> None:
        log_of(self.partition).roll(NOW_MS)

    def _advance(self, by: int) -> None:
        log = log_of(self.partition)
        self.twin.start = min(log.log_start_offset + by, log.log_end_offset)
        log.advance_log_start_offset(self.twin.start)

    def _compact(self, every: int) -> None:
        """Remove every nth batch of the closed segments, as compaction could."""
        log = log_of(self.partition)
        sealed = [segment for segment in log.segments() if segment.is_sealed and segment is not log._active]
        if not sealed or self.is_hurt:
            return

        def is_kept(header: BatchHeader) -> bool:
            gone = header.base_offset % (every + 1) == 0 and not header.is_transactional
            if gone:
                for offset in range(header.base_offset, header.last_offset + 1):
                    self.twin.events.pop(offset, None)
            return not gone

        new = write_new_segment(log, self.files, sealed, is_kept)
        log.replace_segments(sealed, [new] if new.size_bytes else [], clean_upto=sealed[-1].next_offset)

    def _quarantine(self, number: int) -> None:
        log = log_of(self.partition)
        for segment in log.segments():
            for at, (start, end) in enumerate(segment.batches()):
                header = parse_header(segment.view(start, end))
                if at == number and header.base_offset >= log.log_start_offset and not segment.holes:
                    first, behind = header.base_offset, header.last_offset + 1
                    log.quarantine(Quarantine(segment.base_offset, start, end - start, first, behind, "test"))
                    self.twin.damaged.append(range(first, behind))
                    self.is_hurt = True
                    return

    def read(self, offset: int, count_max: int, bytes_max: int) -> list[tuple[int, str, bytes]]:
        reader = EventReader(stream_of(self.partition), offset)
        seen: list[tuple[int, str, bytes]] = []
        while True:
            found: list[Event] | NotReady | Unreadable
            try:
                found = reader.read(count_max, bytes_max)
            except Unreadable as error:
                found = error
            if isinstance(found, Unreadable):
                assert found.from_offset == reader.next_offset < found.to_offset
                assert any(found.to_offset == gone.stop for gone in self.twin.damaged)
                reader.next_offset = found.to_offset
                continue
            if isinstance(found, NotReady):
                wait_here(found)
                continue
            if not found:
                break
            assert len(found) <= count_max
            seen += [(event.offset, event.type, event.data) for event in found]
        assert reader.next_offset == max(offset, self.twin.stable_end)
        return seen


@pytest.mark.proves("S0-28", "S0-47")
@settings(max_examples=examples(60))
@given(steps, st.data())
def test_every_event_is_read_once_and_in_order_whatever_lies_between(
    some: list[tuple[str, object]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory))
        for step, how in some:
            world.do(step, how)
        twin, partition = world.twin, world.partition
        assert stream_of(partition).bounds().start == twin.start
        assert stream_of(partition).bounds().newest == twin.stable_end - 1
        for _ in range(3):
            offset = data.draw(st.integers(twin.start, twin.end + 1))
            count_max = data.draw(st.integers(1, 30))
            bytes_max = data.draw(st.sampled_from([1, 300, 1024 * 1024]))
            assert world.read(offset, count_max, bytes_max) == twin.expected(offset)
        log_of(partition).close()


# --- bounded reads


@pytest.mark.parametrize("codec", CODECS)
def test_portion_ends_inside_a_large_batch_and_the_next_goes_on_there(tmp_path: Path, codec: int) -> None:
    partition = lone_partition(tmp_path, max_message_bytes="10000000")
    append(partition, batch_of(2000, compression=codec, size=100, first=1000))
    append(partition, batch_of(10))
    reader = EventReader(stream_of(partition), 0)
    events = read_all(reader, 7)
    assert offsets(events) == list(range(2010))
    assert [event.data for event in events[:2000:199]] == [b"%d" % number * 100 for number in range(1000, 3000, 199)]
    middle = EventReader(stream_of(partition), 1234)
    assert offsets(read_all(middle, 300)) == list(range(1234, 2010))


def test_way_to_the_middle_of_a_very_large_batch_is_gone_in_several_reads(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    append(partition, batch_of(12_000))
    reader = EventReader(stream_of(partition), 11_000)
    for _ in range(2):
        assert isinstance(reader.read(), NotReady)
    assert offsets(first_portion(reader, 5)) == list(range(11_000, 11_005))
    assert offsets(read_all(reader)) == list(range(11_005, 12_000))


def test_portion_is_bounded_in_bytes_but_has_one_event(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    append(partition, build_batch([Record(None, b"x" * 1000, NOW_MS) for _ in range(10)]))
    reader = EventReader(stream_of(partition), 0)
    assert offsets(first_portion(reader, bytes_max=1)) == [0]
    assert offsets(first_portion(reader, bytes_max=3000)) == [1, 2, 3]
    assert offsets(first_portion(reader)) == [4, 5, 6, 7, 8, 9]
    assert first_portion(reader) == []


@pytest.mark.parametrize("codec", CODECS[1:])
def test_batch_that_takes_long_to_unfold_is_unfolded_by_a_thread(tmp_path: Path, codec: int) -> None:
    partition = lone_partition(tmp_path)
    append(partition, batch_of(3))
    append(partition, batch_of(2000, compression=codec, size=200))
    reader = EventReader(stream_of(partition), 0)
    assert offsets(first_portion(reader)) == [0, 1, 2]
    needs: list[NotReady] = []
    assert offsets(read_all(reader, needs=needs)) == list(range(3, 2003))
    # Once for each window.
    assert len(needs) == 4


def test_small_compressed_batch_is_unfolded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decompressed = []
    decompress = event_reading._decompress

    def count(codec: int, payload: bytes | memoryview, budget_bytes: int) -> bytes:
        decompressed.append(codec)
        return decompress(codec, payload, budget_bytes)

    monkeypatch.setattr(event_reading, "_decompress", count)
    partition = lone_partition(tmp_path)
    append(partition, batch_of(100, compression=ZSTD))
    needs: list[NotReady] = []
    assert len(read_all(EventReader(stream_of(partition), 0), 10, needs=needs)) == 100
    assert (decompressed, needs) == ([ZSTD], [])


def test_batch_that_unfolds_to_more_than_anybody_holds_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_reading, "DECOMPRESSED_BYTES_MAX", 300 * 1024)
    partition = lone_partition(tmp_path)
    append(partition, batch_of(2000, compression=ZSTD, size=1000))
    append(partition, batch_of(2))
    reader = EventReader(stream_of(partition), 5)
    with pytest.raises(Unreadable) as caught:
        read_all(reader)
    assert (caught.value.from_offset, caught.value.to_offset) == (5, 2000)
    reader.next_offset = caught.value.to_offset
    assert offsets(read_all(reader)) == [2000, 2001]


def test_many_batches_without_events_take_several_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_reading, "BATCHES_PER_READ", 10)
    partition = lone_partition(tmp_path)
    for _ in range(35):
        batch = memoryview(build_batch([Record(b"\x00\x00\x00\x01", b"\x00" * 6, NOW_MS)], is_control=True))
        partition.append(batch, parse_header(batch))
    append(partition, batch_of(1))
    reader = EventReader(stream_of(partition), 0)
    assert isinstance(reader.read(), NotReady)
    assert reader.next_offset == 10
    needs: list[NotReady] = []
    assert offsets(read_all(reader, needs=needs)) == [35]
    assert len(needs) == 2


@pytest.mark.proves("S3-3")
def test_nothing_is_read_that_is_not_durable_yet(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    append(partition, batch_of(3))
    append(partition, batch_of(3))
    partition.high_watermark = 3
    reader = EventReader(stream_of(partition), 0)
    assert offsets(read_all(reader)) == [0, 1, 2]
    assert stream_of(partition).bounds().newest == 2
    partition.advance(6)
    assert offsets(read_all(reader)) == [3, 4, 5]


# --- where a log begins and ends


@pytest.mark.proves("S0-47")
def test_empty_log_has_no_newest_event(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    assert (stream_of(partition).bounds().start, stream_of(partition).bounds().newest) == (0, -1)
    assert EventReader(stream_of(partition), 0).read() == []
    assert EventReader(stream_of(partition), 7).read() == []
    append(partition, batch_of(5))
    log_of(partition).advance_log_start_offset(5)
    assert (stream_of(partition).bounds().start, stream_of(partition).bounds().newest) == (5, 4)
    assert EventReader(stream_of(partition), 5).read() == []


@pytest.mark.proves("S0-36", "S0-47")
def test_reader_that_retention_has_overtaken_is_told(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path, kwire_retention_messages="10")
    append(partition, batch_of(6))
    reader = EventReader(stream_of(partition), 0)
    assert offsets(first_portion(reader, 2)) == [0, 1]
    append(partition, batch_of(8))
    with pytest.raises(OffsetOutOfRange) as caught:
        reader.read()
    assert caught.value.details == {"requested": 2, "oldest": 4, "newest": 13}
    assert caught.value.code == "OffsetOutOfRange"
    reader.next_offset = caught.value.oldest  # inside a batch
    assert offsets(read_all(reader)) == list(range(4, 14))


def test_batch_that_compaction_has_replaced_meanwhile_is_read_anew(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    partition = lone_partition(tmp_path, files=files)
    log = log_of(partition)
    append(partition, batch_of(100))
    log.roll(NOW_MS)
    append(partition, batch_of(1))
    reader = EventReader(stream_of(partition), 0)
    assert offsets(first_portion(reader, 10)) == list(range(10))

    def without_the_first_half(header: BatchHeader, batch: memoryview) -> bytes:
        kept = build_batch([Record(None, b"new", NOW_MS)] * 50, base_offset=0)
        # The same offsets, of which the second half has records: each says how far it is from the first.
        return bytes(_renumbered(kept, header, 50))

    sealed = [segment for segment in log.segments() if segment.is_sealed]
    new = write_new_segment(log, files, sealed, lambda header: True, without_the_first_half)
    log.replace_segments(sealed, [new], clean_upto=100)
    assert offsets(read_all(reader, 20)) == list(range(50, 101))


def _renumbered(batch: bytearray, header: BatchHeader, first_delta: int) -> bytearray:
    body = bytearray()
    count = parse_header(batch).record_count
    for number in range(count):
        inner = b"\x00\x00" + varint(first_delta + number) + b"\x01" + varint(3) + b"new" + b"\x00"
        body += varint(len(inner)) + inner
    made = build_batch([Record(None, b"", NOW_MS)] * count, base_offset=header.base_offset)[:HEADER_BYTES] + body
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[23:27] = header.last_offset_delta.to_bytes(4, "big")
    return _with_crc(made)


def _with_crc(batch: bytearray) -> bytearray:
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


# --- damage


def test_damaged_batch_is_told_and_what_follows_can_be_read(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    for _ in range(3):
        append(partition, batch_of(5))
    (segment,) = log_of(partition).segments()
    start, _ = list(segment.batches())[1]
    with open(segment.path, "r+b") as file:
        file.seek(start + HEADER_BYTES + 5)
        file.write(b"\xff")
    reader = EventReader(stream_of(partition), 0)
    assert offsets(first_portion(reader)) == [0, 1, 2, 3, 4]
    for _ in range(2):
        with pytest.raises(Unreadable) as caught:
            reader.read()
        assert (caught.value.from_offset, caught.value.to_offset) == (5, 10)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    reader.next_offset = caught.value.to_offset
    assert offsets(read_all(reader)) == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("position", [9, 11, 16, 22, 26, 60])
def test_damaged_header_is_told_and_nothing_of_its_batch_is_passed_over_in_silence(
    tmp_path: Path, position: int
) -> None:
    partition = lone_partition(tmp_path)
    for _ in range(3):
        append(partition, batch_of(5))
    (segment,) = log_of(partition).segments()
    start, _ = list(segment.batches())[1]
    with open(segment.path, "r+b") as file:
        file.seek(start + position)
        file.write(b"\x2f")
    reader = EventReader(stream_of(partition), 0)
    assert offsets(first_portion(reader)) == [0, 1, 2, 3, 4]
    with pytest.raises(KafkaError) as caught:
        reader.read()
    assert caught.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
    if isinstance(caught.value, Unreadable):
        assert caught.value.from_offset == 5
        reader.next_offset = caught.value.to_offset
        assert offsets(read_all(reader)) in ([10, 11, 12, 13, 14], [])


def test_record_that_a_client_wrote_wrong_is_told_behind_those_that_are_right(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    batch = batch_of(3)
    batch[-1] = 50  # the last record has fewer headers
    append(partition, _with_crc(batch))
    append(partition, batch_of(1))
    reader = EventReader(stream_of(partition), 0)
    assert offsets(first_portion(reader)) == [0, 1]
    with pytest.raises(Unreadable) as caught:
        reader.read()
    assert (caught.value.from_offset, caught.value.to_offset) == (2, 3)
    reader.next_offset = 3
    assert offsets(read_all(reader)) == [3]


def test_gap_in_front_of_damage_does_not_look_like_the_head(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    partition = lone_partition(tmp_path, files=files)
    log = log_of(partition)
    for _ in range(4):
        append(partition, batch_of(5))
    log.roll(NOW_MS)
    append(partition, batch_of(5))
    sealed = [segment for segment in log.segments() if segment.is_sealed]
    new = write_new_segment(log, files, sealed, lambda header: header.base_offset != 5)
    log.replace_segments(sealed, [new], clean_upto=20)
    segment = next(iter(log.segments()))
    start, end = list(segment.batches())[1]
    log.quarantine(Quarantine(0, start, end - start, 10, 15, "test"))
    reader = EventReader(stream_of(partition), 5)
    with pytest.raises(Unreadable) as caught:
        reader.read()
    reader.next_offset = caught.value.to_offset
    assert offsets(read_all(reader)) == list(range(15, 25))


def test_reader_of_a_deleted_topic_is_told_even_at_the_head(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    append(partition, batch_of(2))
    reader = EventReader(stream_of(partition), 0)
    read_all(reader)
    log_of(partition).close()
    with pytest.raises(KafkaError) as caught:
        reader.read()
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- cold pages


class ColdFiles(UnsyncedFiles):
    """Pages are never in memory, except when a thread has just been asked for them."""

    def __init__(self) -> None:
        self.is_cold = True

    def is_cached(self, fd: int, start: int, end: int) -> bool | None:
        return not self.is_cold

    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        self.is_cold = False
        return super().preadv(fd, buffers, position)


def cold_partition(directory: Path, files: Files, count: int = 3) -> Partition:
    partition = lone_partition(directory, files=files)
    for _ in range(count):
        append(partition, batch_of(5))
        log_of(partition).roll(NOW_MS)
    append(partition, batch_of(1))
    return partition


def test_cold_pages_are_asked_for_and_then_read(tmp_path: Path) -> None:
    files = ColdFiles()
    partition = cold_partition(tmp_path, files)
    reader = EventReader(stream_of(partition), 0)
    needed = reader.read()
    assert isinstance(needed, NotReady)
    assert reader.next_offset == 0
    wait_here(needed)
    assert offsets(first_portion(reader)) == [0, 1, 2, 3, 4]


def test_pages_that_never_stay_are_read_in_the_end(tmp_path: Path) -> None:
    files = ColdFiles()
    partition = cold_partition(tmp_path, files)
    reader = EventReader(stream_of(partition), 0)
    for _ in range(WAITS_MAX):
        needed = reader.read()
        assert isinstance(needed, NotReady)
        wait_here(needed)
        files.is_cold = True
    assert offsets(first_portion(reader)) == [0, 1, 2, 3, 4]


# --- reading a range


def read_range(partition: Partition, offset: int, count_max: int, **how: int) -> list[int]:
    async def read() -> list[Event]:
        cold_reads = ColdReads(DiskLanes().read)
        try:
            return await asyncio.wait_for(read_events(stream_of(partition, cold_reads), offset, count_max, **how), 10)
        finally:
            cold_reads.close()

    return offsets(asyncio.run(read()))


@pytest.mark.proves("S0-17", "S0-47")
def test_range_has_both_its_ends(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    for _ in range(30):
        append(partition, batch_of(50))
    assert read_range(partition, 3, 100, to_offset=5) == [3, 4, 5]
    assert read_range(partition, 3, 2, to_offset=5) == [3, 4]
    assert read_range(partition, 5, 100, to_offset=4) == []
    assert read_range(partition, 0, 10_000) == list(range(1500))
    assert read_range(partition, 700, 600) == list(range(700, 1300))
    assert read_range(partition, 1499, 10, to_offset=9999) == [1499]
    assert read_range(partition, 1500, 10) == []
    assert read_range(partition, 9999, 10) == []
    assert len(read_range(partition, 0, 1000, bytes_max=1)) == 1


def test_range_of_cold_and_compressed_batches_is_read_whole(tmp_path: Path) -> None:
    partition = cold_partition(tmp_path, ColdFiles())
    append(partition, batch_of(2000, compression=ZSTD, size=1000))
    assert read_range(partition, 0, 10_000) == list(range(2016))


def test_range_ends_in_front_of_damage(tmp_path: Path) -> None:
    partition = lone_partition(tmp_path)
    for _ in range(2):
        append(partition, make_batch(5, timestamp_ms=NOW_MS))
    (segment,) = log_of(partition).segments()
    start, end = list(segment.batches())[1]
    log_of(partition).quarantine(Quarantine(0, start, end - start, 5, 10, "test"))
    assert read_range(partition, 0, 100) == [0, 1, 2, 3, 4]
    with pytest.raises(Unreadable):
        read_range(partition, 5, 100)
    log_of(partition).advance_log_start_offset(2)
    with pytest.raises(OffsetOutOfRange):
        read_range(partition, 0, 100)
