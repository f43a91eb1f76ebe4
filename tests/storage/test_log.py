"""The log: batches come out as they went in, at the offsets they were given."""

import os
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from storage.batch.format import LOG_APPEND_TIME, NONE, ZSTD
from storage.batch.record_batch import Record, build_batch, check_batch, parse_header, read_records
from storage.disk.files import Files
from storage.errors import LogClosed, OffsetOutOfRange, OutOfOrderSequence
from storage.log.log import Appended, Log
from storage.log.settings import LogSettings
from storage.recovery.crash_recovery import open_log
from storage.segment.segment import index_name
from tests.support.batches import (
    BOOT_ID,
    NOW_MS,
    LaterJobs,
    append,
    headers,
    make_batch,
    make_log,
    read_all,
    run_now,
)

SMALL = LogSettings(segment_bytes=2000, index_interval_bytes=256)


def test_an_append_gives_the_next_offsets_and_sets_them_in_the_batch(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    first, second = make_batch(3), make_batch(2)
    assert append(log, first, leader_epoch=4) == Appended(0, 2, -1, False)
    assert append(log, second, leader_epoch=4) == Appended(3, 4, -1, False)
    assert log.log_end_offset == 5
    read = log.read(0, 10_000, 5)
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers(read.view)] == [(0, 4), (3, 4)]
    assert bytes(read.view) == bytes(first) + bytes(second)
    assert read.next_offset == 5
    check_batch(memoryview(bytearray(read.view[: len(first)])))


def test_an_empty_log_makes_no_file(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    assert len(log.read(0, 1000, 0).view) == 0
    assert log.size_bytes == 0
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_a_read_inside_a_batch_begins_with_that_batch(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for _ in range(3):
        append(log, make_batch(10))
    assert [header.base_offset for header in headers(log.read(15, 10_000, 30).view)] == [10, 20]


def test_a_read_never_goes_beyond_upto(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for _ in range(4):
        append(log, make_batch(10))
    read = log.read(0, 10_000, 20)
    assert [header.base_offset for header in headers(read.view)] == [0, 10]
    assert read.next_offset == 20
    assert len(log.read(20, 10_000, 20).view) == 0
    assert len(log.read(30, 10_000, 20).view) == 0
    # Inside a batch the whole batch is held back.
    read = log.read(0, 10_000, 25)
    assert (len(headers(read.view)), read.next_offset) == (2, 20)
    assert len(log.read(20, 10_000, 25).view) == 0


def test_the_first_batch_comes_even_when_it_is_too_large(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    batch = make_batch(value=bytes(5000))
    append(log, batch)
    append(log)
    assert len(log.read(0, 100, 2).view) == len(batch)
    assert log.read(0, 100, 2).next_offset == 1
    assert len(log.read(0, 100, 2, at_least_one=False).view) == 0
    assert log.read(0, 100, 2, at_least_one=False).next_offset == 0


def test_reads_outside_the_log_are_refused(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for _ in range(5):
        append(log)
    log.advance_log_start_offset(2)
    for offset in (-1, 1, 6):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(offset, 1000, 5)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (2, 5)
    assert len(log.read(5, 1000, 5).view) == 0


def test_segments_roll_by_size_and_are_read_across(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    batches = [make_batch(random.randint(1, 3), value=bytes(random.randint(0, 300))) for _ in range(60)]
    for batch in batches:
        append(log, batch)
    assert log.segment_count > 5
    assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments())
    for max_bytes in (1, 300, 100_000):
        assert read_all(log, max_bytes=max_bytes) == [bytes(batch) for batch in batches]
    assert log.size_bytes == sum(len(batch) for batch in batches)


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=LogSettings(segment_bytes=1000))
    sizes = [10, 5000, 10, 200_000, 10]
    for size in sizes:
        append(log, make_batch(value=bytes(size)))
    assert log.segment_count == 5
    assert len(read_all(log)) == 5


def test_segments_roll_by_record_time(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=LogSettings(segment_ms=1000))
    append(log, make_batch(timestamp_ms=NOW_MS))
    append(log, make_batch(timestamp_ms=NOW_MS + 1000))
    assert log.segment_count == 1
    append(log, make_batch(timestamp_ms=NOW_MS + 1001))
    assert log.segment_count == 2


def test_segments_without_timestamps_roll_by_the_clock(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=LogSettings(segment_ms=1000))
    for now_ms in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001):
        batch = memoryview(build_batch([Record(None, b"")]))
        append(log, batch, now_ms=now_ms)
    assert log.segment_count == 2


def test_a_segment_holds_only_offsets_that_fit_its_index(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    header = replace(check_batch(make_batch()), last_offset_delta=2**30 - 1)
    for _ in range(3):
        log.append(make_batch(), header, 0, NOW_MS)
    assert log.segment_count == 2


def test_settings_change_while_the_log_is_open(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log)
    log.settings = LogSettings(segment_bytes=10, timestamp_type=LOG_APPEND_TIME)
    assert append(log, now_ms=NOW_MS + 5).log_append_time_ms == NOW_MS + 5
    assert log.segment_count == 2


def test_sealed_files_end_with_their_last_batch(tmp_path: Path) -> None:
    jobs = LaterJobs()
    log = make_log(tmp_path, settings=SMALL, background=jobs)
    for _ in range(60):
        append(log)
    before = log.read(0, 100_000, log.log_end_offset)
    expected = bytes(before.view)
    jobs.run()
    for segment in list(log.segments())[:-1]:
        assert Path(segment.path).stat().st_size == segment.size_bytes
    assert bytes(before.view) == expected
    assert len(read_all(log)) == 60


def test_extending_the_file_does_not_disturb_readers(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    batches, views = [], []
    for number in range(40):
        batches.append(make_batch(value=bytes([number]) * 50_000))
        append(log, batches[-1])
        views.append(log.read(number, 1_000_000, number + 1).view)
    assert [bytes(view) for view in views] == [bytes(batch) for batch in batches]
    log.close()
    assert [bytes(view) for view in views] == [bytes(batch) for batch in batches]


def test_a_step_that_is_not_ready_is_made_in_place(tmp_path: Path) -> None:
    jobs = LaterJobs()
    log = make_log(tmp_path, background=jobs)
    for number in range(60):
        append(log, make_batch(value=bytes(9000)))
        if number == 40:
            jobs.run()
    jobs.run()
    assert len(read_all(log)) == 60


def test_a_full_file_was_extended_before_it_was_full(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for _ in range(20):
        append(log, make_batch(value=bytes(9000)))
    (segment,) = log.segments()
    assert Path(segment.path).stat().st_size >= segment.size_bytes


def test_a_file_is_never_reserved_beyond_the_segment_limit(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=LogSettings(segment_bytes=100_000))
    for _ in range(10):
        append(log, make_batch(value=bytes(9000)))
    (segment,) = log.segments()
    assert Path(segment.path).stat().st_size == 100_000


def test_a_repeated_batch_gets_its_first_answer(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log)
    batch = make_batch(3, producer_id=9, producer_epoch=0, base_sequence=0)
    assert append(log, batch) == Appended(1, 3, -1, False)
    assert append(log, make_batch(3, producer_id=9, producer_epoch=0, base_sequence=0)) == Appended(1, 3, -1, True)
    assert log.log_end_offset == 4
    with pytest.raises(OutOfOrderSequence):
        append(log, make_batch(1, producer_id=9, producer_epoch=0, base_sequence=7))
    assert log.log_end_offset == 4


def test_the_broker_stamps_its_time_when_the_topic_asks(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=LogSettings(timestamp_type=LOG_APPEND_TIME))
    batch = make_batch(3, timestamp_ms=5, producer_id=1, producer_epoch=0, base_sequence=0, compression=ZSTD)
    assert append(log, batch, now_ms=NOW_MS) == Appended(0, 2, NOW_MS, False)
    view = log.read(0, 1000, 3).view
    assert parse_header(view).timestamp_type == LOG_APPEND_TIME
    assert [record.timestamp_ms for record in read_records(view, 10_000)] == [NOW_MS] * 3
    assert log.offset_for_timestamp(NOW_MS) == (NOW_MS, 0)
    again = make_batch(3, timestamp_ms=5, producer_id=1, producer_epoch=0, base_sequence=0, compression=ZSTD)
    assert append(log, again, now_ms=NOW_MS + 9) == Appended(0, 2, NOW_MS, True)


def test_leader_epochs_are_written_down(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for epoch in (0, 0, 3, 3, 4):
        append(log, leader_epoch=epoch)
    assert log.epochs.entries == [(0, 0), (3, 2), (4, 4)]
    assert log.epochs.latest == 4


@pytest.mark.parametrize("compression", [NONE, ZSTD])
def test_offsets_are_found_by_timestamp(tmp_path: Path, compression: int) -> None:
    log = make_log(tmp_path, settings=LogSettings(segment_bytes=3000, index_interval_bytes=256))
    for number in range(50):
        append(log, make_batch(3, timestamp_ms=1000 + 10 * number, compression=compression))
    assert log.segment_count > 1
    assert log.offset_for_timestamp(0) == (1000, 0)
    assert log.offset_for_timestamp(1001) == (1001, 1)
    assert log.offset_for_timestamp(1003) == (1010, 3)
    assert log.offset_for_timestamp(1492) == (1492, 149)
    assert log.offset_for_timestamp(1493) is None
    assert log.max_timestamp_offset() == (1492, 149)
    log.advance_log_start_offset(5)
    assert log.offset_for_timestamp(0) == (1012, 5)


class ReadFiles(Files):
    """Counts what is read from files."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def pread(self, fd: int, size: int, position: int) -> bytes:
        data = super().pread(fd, size, position)
        self.read_bytes += len(data)
        return data


def test_segments_too_old_for_a_timestamp_are_passed_by_without_their_index(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=LogSettings(segment_bytes=3000, index_interval_bytes=1))
    for number in range(300):
        append(log, make_batch(timestamp_ms=1000 + number))
    log.close()
    files = ReadFiles()
    log = open_log(str(tmp_path), files, run_now, LogSettings(), BOOT_ID)
    assert log.segment_count > 5
    last_index = Path(list(log.segments())[-1].index_path)
    files.read_bytes = 0
    assert log.offset_for_timestamp(5000) is None
    assert log.max_timestamp_offset() == (1299, 299)
    assert files.read_bytes <= 16 * (log.segment_count - 1) + last_index.stat().st_size
    # What is found is what the whole index says, and a missing index is made up for.
    assert log.offset_for_timestamp(1077) == (1077, 77)
    log.close()
    (tmp_path / index_name(0)).write_bytes(b"")
    log = open_log(str(tmp_path), Files(), run_now, LogSettings(), BOOT_ID)
    assert log.offset_for_timestamp(1004) == (1004, 4)


def test_an_older_record_does_not_hide_the_first_of_a_time(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    for timestamp_ms in (100, 300, 200, 300, 50):
        append(log, make_batch(timestamp_ms=timestamp_ms))
    assert log.offset_for_timestamp(150) == (300, 1)
    assert log.max_timestamp_offset() == (300, 1)


def test_a_log_without_timestamps_has_no_largest_one(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    assert log.max_timestamp_offset() is None
    append(log, memoryview(build_batch([Record(None, b"")])))
    assert log.max_timestamp_offset() is None
    assert log.offset_for_timestamp(0) is None


def test_released_segments_come_back(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    for _ in range(60):
        append(log)
    expected = read_all(log)
    for _ in range(2):
        log.release()
        assert read_all(log) == expected
    log.release()
    assert log.offset_for_timestamp(0) == (NOW_MS, 0)


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    append(log)
    log.close()
    log.close()
    with pytest.raises(LogClosed):
        append(log)
    with pytest.raises(LogClosed):
        log.read(0, 1000, 1)


def test_recent_reads_are_warm_and_old_ones_are_looked_at(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    for _ in range(60):
        append(log)
    for offset in (0, 59):
        read = log.read(offset, 10_000, 60)
        read.warm_up()
        assert read.is_warm()
    assert log.read(60, 1000, 60).is_warm()


def drop_from_memory(path: str) -> None:
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def test_pages_that_are_not_in_memory_are_noticed_and_fetched(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=LogSettings(segment_bytes=600_000))
    for _ in range(30):
        append(log, make_batch(value=bytes(50_000)))
    log.close()
    log = open_log(str(tmp_path), Files(), run_now, LogSettings(), BOOT_ID)
    first = next(log.segments())
    # Nothing of the segment is known before the first read; what the read needs can be fetched by a thread.
    drop_from_memory(first.path)
    assert not log.is_start_warm(3)
    log.warm_start(3)
    assert log.is_start_warm(3)
    assert log.is_start_warm(log.log_end_offset)
    read = log.read(3, 400_000, log.log_end_offset)
    first.warm_up(0, first.size_bytes)
    assert read.is_warm()
    del read
    log.release()
    read = log.read(3, 400_000, log.log_end_offset)
    drop_from_memory(first.path)
    assert not read.is_warm()
    read.warm_up()
    assert read.is_warm()
    log.close()


def descriptors(path: str) -> int:
    names = os.listdir("/proc/self/fd")
    return sum(os.path.realpath(f"/proc/self/fd/{name}") == os.path.realpath(path) for name in names)


class MappingFiles(Files):
    def __init__(self) -> None:
        self.map_count = 0

    def map_readonly(self, fd: int, position: int, size: int) -> memoryview:
        self.map_count += 1
        return super().map_readonly(fd, position, size)


def test_readers_of_a_segment_in_use_hold_few_descriptors(tmp_path: Path) -> None:
    files = MappingFiles()
    log = make_log(tmp_path, files=files)
    (tail, behind) = (0, 0)
    for number in range(400):
        append(log, make_batch(value=bytes(10_000)))
        tail = log.read(tail, 20_000, log.log_end_offset).next_offset
        if number % 3 == 0:
            behind = log.read(behind, 11_000, log.log_end_offset).next_offset
    assert (tail, behind) == (400, 134)
    (segment,) = log.segments()
    # The segment's own and one for each of two maps; a new map is made per extension, not per read.
    assert descriptors(segment.path) <= 3
    assert files.map_count <= 20


def tail_positions(log: Log) -> list[int]:
    return [header.base_offset for header in headers(log.read(log.log_end_offset - 1, 1000, log.log_end_offset).view)]


def test_a_tailing_reader_sees_each_append(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    offset = 0
    for number in range(300):
        assert len(log.read(offset, 1000, log.log_end_offset).view) == 0
        append(log)
        read = log.read(offset, 1000, log.log_end_offset)
        assert [header.base_offset for header in headers(read.view)] == [number]
        offset = read.next_offset
        assert tail_positions(log) == [number]
