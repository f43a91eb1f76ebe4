"""Replacing segments: a crash leaves the old ones or the new ones, and readers notice nothing."""

import errno
import os
import struct
import threading
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c
from msgspec.structs import replace

from storage.batch.format import CRC_POSITION, CRC_START, HEADER, LENGTH_OVERHEAD
from storage.batch.record_batch import BatchHeader, parse_header
from storage.disk.files import Files
from storage.errors import DamagedLog, DiskFailure, LogClosed, StorageFailed
from storage.log.log import Log
from storage.log.segment_replacement import REPLACEMENT_NAME, finish_replacement, new_index_path, new_log_path
from storage.log.settings import LogSettings
from storage.recovery.checkpoint import CheckpointFile
from storage.recovery.crash_recovery import open_log
from storage.segment.segment import segment_name
from tests.support.batches import BOOT_ID, NOW_MS, LaterJobs, append, headers, make_batch, make_log, read_all, run_now
from tests.support.faulty_files import FaultyFiles
from tests.support.new_segments import write_new_segment
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)
FOLDER = "/data/orders-0"


def is_even(header: BatchHeader) -> bool:
    return header.base_offset % 4 == 0


def fill(log: Log, count: int = 30) -> None:
    """Batches of two records."""
    for number in range(count):
        append(log, make_batch(2, timestamp_ms=NOW_MS + number * 10))


def bases_of(log: Log) -> list[int]:
    return [parse_header(batch).base_offset for batch in read_all(log)]


def compact(log: Log, files: Files, first: int = 0, count: int = 4) -> None:
    segments = list(log.segments())[first : first + count]
    half = count // 2
    added = [write_new_segment(log, files, part, is_even) for part in (segments[:half], segments[half:])]
    log.replace_segments(segments, added, segments[-1].next_offset)


def test_new_segments_take_the_place_of_old_ones(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    before, end = bases_of(log), log.log_end_offset
    limit = list(log.segments())[4].base_offset
    compact(log, Files())
    expected = [base for base in before if base >= limit or base % 4 == 0]
    assert bases_of(log) == expected
    assert (log.log_end_offset, log.clean_upto) == (end, limit)
    names = {name for name in os.listdir(tmp_path) if name.endswith(".log")}
    assert names == {segment_name(segment.base_offset) for segment in log.segments()}
    log.close()
    again = open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)
    assert (bases_of(again), again.log_end_offset, again.clean_upto) == (expected, end, limit)


def test_reads_and_searches_step_over_gaps(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    for is_reopened in (False, True):
        if is_reopened:
            # What is known of a segment now comes from the names: each seems to reach to the next one.
            log.close()
            log = open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)
        else:
            compact(log, Files())
        bases = bases_of(log)
        for offset in range(log.log_end_offset):
            expected = next(base for base in bases if base + 1 >= offset)
            for max_bytes in (1, 200, 1_000_000):
                read = log.read(offset, max_bytes, log.log_end_offset)
                assert headers(read.view)[0].base_offset == expected
                assert read.next_offset > expected
        for base in bases:
            found = log.offset_for_timestamp(NOW_MS + base * 5)
            assert found == (NOW_MS + base * 5, base)
        # Records that are gone are not found, the next one is.
        assert log.offset_for_timestamp(NOW_MS + 2 * 5) == (NOW_MS + 4 * 5, 4)
        assert log.max_timestamp_offset() == (NOW_MS + 58 * 5 + 1, 59)


def test_a_reader_s_slices_and_place_survive(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    reads = [log.read(segment.base_offset, 10_000, log.log_end_offset) for segment in log.segments()]
    expected = [bytes(read.view) for read in reads]
    segments = list(log.segments())[:4]
    new = write_new_segment(log, Files(), segments, is_even)
    old = log.replace_segments(segments, [new], segments[-1].next_offset)
    assert old == segments
    assert [bytes(read.view) for read in reads] == expected
    for segment in old:
        segment.delete_files()
        segment.delete_files()
    assert [bytes(read.view) for read in reads] == expected
    assert all(read.is_warm() for read in reads)
    # The old segments' names are the new ones' by now.
    assert (tmp_path / segment_name(0)).stat().st_size == new.size_bytes
    assert bases_of(log)[:2] == [0, 4]


def test_a_swap_runs_in_a_thread_while_the_log_goes_on(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    log.release()
    segments = list(log.segments())[:4]
    new = write_new_segment(log, Files(), segments, is_even)
    swap = log.begin_replacement(segments, [new], segments[-1].next_offset)
    thread = threading.Thread(target=swap.run)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    # The names mean the new files, the log still serves the old ones.
    log.release()
    assert bases_of(log) == list(range(0, 60, 2))
    append(log, make_batch(2))
    log.advance_log_start_offset(segments[1].next_offset)
    assert log.drop_segments() == []
    assert not log.park()
    with pytest.raises(DiskFailure):
        log.truncate(4)
    with pytest.raises(DiskFailure):
        log.begin_replacement(segments, [new], 0)
    swap.finish()
    start, limit = segments[1].next_offset, segments[-1].next_offset
    assert bases_of(log) == [base for base in range(start, 62, 2) if base >= limit or base % 4 == 0]
    log.advance_log_start_offset(limit)
    assert [segment.base_offset for segment in log.drop_segments()] == [0]
    assert bases_of(log) == list(range(limit, 62, 2))


class Stage:
    """A log on a simulated disk, ready to have its segments replaced."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.files = SimulatedFiles(self.disk)
        self.files.makedirs(FOLDER)
        self.log = Log(FOLDER, self.files, run_now, SMALL, self.files.boot_id())
        fill(self.log, 20)
        self.log.flush()
        self.files.fsync_dir("/data")
        self.files.fsync_dir("/")
        self.old = read_all(self.log)
        limit = list(self.log.segments())[4].base_offset
        self.new = [
            batch
            for batch in self.old
            if parse_header(batch).base_offset >= limit or parse_header(batch).base_offset % 4 == 0
        ]

    def assert_whole(self, disk: SimulatedDisk) -> bool:
        """Whether the new ones are there; nothing in between is."""
        files = SimulatedFiles(disk)
        log = open_log(FOLDER, files, run_now, SMALL, files.boot_id())
        assert (log.damage, log.quarantined, log.log_end_offset) == (None, (), 40)
        found = read_all(log)
        assert found in (self.old, self.new)
        assert not any(name.endswith(".new") or name == REPLACEMENT_NAME for name in files.listdir(FOLDER))
        append(log, make_batch(2))
        assert log.log_end_offset == 42
        return found == self.new


def test_a_crash_at_any_step_leaves_the_old_or_the_new() -> None:
    rehearsal = Stage()
    start = rehearsal.disk.call_count
    compact(rehearsal.log, rehearsal.files)
    steps = rehearsal.disk.call_count - start
    assert read_all(rehearsal.log) == rehearsal.new
    assert steps > 20
    for is_power_cut in (False, True):
        outcomes = []
        for step in range(1, steps + 1):
            stage = Stage()
            stage.disk.crash_at = stage.disk.call_count + step
            with pytest.raises(Crashed):
                compact(stage.log, stage.files)
            disk = stage.disk.after_power_cut(Random(step)) if is_power_cut else stage.disk.restarted()
            outcomes.append(stage.assert_whole(disk))
        assert {False, True} == set(outcomes)
        if not is_power_cut:
            assert outcomes == sorted(outcomes)


def test_a_replacement_that_was_interrupted_twice_is_finished() -> None:
    rehearsal = Stage()
    rehearsal.disk.trace = []
    compact(rehearsal.log, rehearsal.files)
    committed = next(
        number
        for number, call in enumerate(rehearsal.disk.trace)
        if call.startswith("rename") and "replacement" in call
    )
    for step in range(1, 12):
        stage = Stage()
        stage.disk.crash_at = stage.disk.call_count + committed + 3
        with pytest.raises(Crashed):
            compact(stage.log, stage.files)
        disk = stage.disk.restarted()
        disk.crash_at = disk.call_count + step
        with suppress(Crashed):  # it has fewer steps than the last of these
            finish_replacement(FOLDER, SimulatedFiles(disk))
        assert stage.assert_whole(disk.restarted())


@pytest.mark.parametrize("operation", ["create", "pwrite", "fsync", "rename", "fsync_dir"])
@pytest.mark.parametrize("after", range(5))
def test_a_disk_that_refuses_leaves_the_log_as_it_was_or_stops_it(tmp_path: Path, operation: str, after: int) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files, settings=SMALL)
    fill(log)
    before = read_all(log)
    segments = list(log.segments())[:4]
    new = write_new_segment(log, files, segments, is_even)
    files.fail_next(operation, errno.ENOSPC, after=after)
    try:
        log.replace_segments(segments, [new], segments[-1].next_offset)
    except StorageFailed:
        assert not log.is_writable
        assert read_all(log) == before
    except DiskFailure:
        assert log.is_writable
        assert read_all(log) == before
        assert log.clean_upto == 0
        append(log)
        log.replace_segments(segments, [new], segments[-1].next_offset)
    files.repair()
    expected, end = bases_of(log), log.log_end_offset
    log.close()
    again = open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)
    assert (again.damage, again.log_end_offset) == (None, end)
    limit = segments[-1].next_offset
    assert bases_of(again) in (expected, [base for base in expected if base >= limit or base % 4 == 0])


def test_a_log_that_is_deleted_meanwhile_is_left_alone(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    segments = list(log.segments())[:4]
    new = write_new_segment(log, Files(), segments, is_even)
    swap = log.begin_replacement(segments, [new], segments[-1].next_offset)
    log.close(is_clean=False)
    names = sorted(os.listdir(tmp_path))
    with pytest.raises(LogClosed):
        swap.run()
    assert sorted(os.listdir(tmp_path)) == names


def test_files_of_a_replacement_that_was_never_decided_are_removed(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    write_new_segment(log, Files(), list(log.segments())[:2], is_even)
    expected = read_all(log)
    log.close()
    assert Path(new_log_path(str(tmp_path), 0)).exists()
    assert finish_replacement(str(tmp_path), Files()) is None
    assert not any(name.endswith(".new") for name in os.listdir(tmp_path))
    assert read_all(open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)) == expected


def test_a_manifest_that_cannot_be_read_touches_nothing(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    log.close()
    (tmp_path / REPLACEMENT_NAME).write_bytes(b'{"remove": [0')
    names = sorted(os.listdir(tmp_path))
    with pytest.raises(DamagedLog):
        finish_replacement(str(tmp_path), Files())
    assert sorted(os.listdir(tmp_path)) == names


def test_only_what_fits_is_taken(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    segments = list(log.segments())
    new = write_new_segment(log, Files(), segments[:2], is_even)
    with pytest.raises(ValueError, match="neighbours"):
        log.replace_segments([segments[0], segments[2]], [new], 0)
    with pytest.raises(ValueError, match="in use"):
        log.replace_segments(segments[-1:], [], 0)
    with pytest.raises(ValueError, match="beyond"):
        log.replace_segments(segments[:1], [new], 0)
    with pytest.raises(ValueError, match="not in this log"):
        log.replace_segments([], [new], 0)
    log.roll(NOW_MS)
    with pytest.raises(ValueError, match="log end"):
        log.replace_segments(segments[-1:], [], 0)
    # All of a rolled log may go, as long as something holds its end.
    whole = write_new_segment(log, Files(), segments, lambda header: header.base_offset in (0, 58))
    log.replace_segments(segments, [whole], 60)
    assert bases_of(log) == [0, 58]
    append(log)
    assert bases_of(log) == [0, 58, 60]
    log.close(is_clean=False)
    again = open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)
    assert (bases_of(again), again.damage) == ([0, 58, 60], None)


def without_records(header: BatchHeader) -> bytes:
    """What compaction leaves of a batch whose producer's sequence is still needed."""
    emptied = replace(
        header,
        batch_length=HEADER.size - LENGTH_OVERHEAD,
        record_count=0,
        base_timestamp=-1,
        max_timestamp=-1,
        crc=0,
    )
    batch = bytearray(emptied.pack())
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(bytes(batch[CRC_START:])))
    return bytes(batch)


def test_a_batch_without_records_is_read_and_passed_by(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    segments = list(log.segments())[:2]
    new = write_new_segment(
        log,
        Files(),
        segments,
        lambda header: True,
        rewrite=lambda header, batch: without_records(header) if header.base_offset % 4 else bytes(batch),
    )
    log.replace_segments(segments, [new], segments[-1].next_offset)
    bases = bases_of(log)
    assert bases == list(range(0, 60, 2))
    for offset in range(60):
        assert headers(log.read(offset, 1, 60).view)[0].base_offset == offset // 2 * 2
    assert log.offset_for_timestamp(NOW_MS + 2 * 5) == (NOW_MS + 4 * 5, 4)
    assert log.max_timestamp_offset() == (NOW_MS + 58 * 5 + 1, 59)
    log.close(is_clean=False)
    again = open_log(str(tmp_path), Files(), run_now, SMALL, "another boot")
    assert (bases_of(again), again.damage, again.quarantined) == (bases, None, ())


def test_a_roll_while_segments_are_replaced_does_not_make_damage_of_gaps(tmp_path: Path) -> None:
    jobs = LaterJobs()
    log = make_log(tmp_path, background=jobs, settings=SMALL)
    fill(log)
    jobs.run()
    segments = list(log.segments())[:4]
    new = write_new_segment(log, Files(), segments, is_even)
    swap = log.begin_replacement(segments, [new], segments[-1].next_offset)
    log.roll(NOW_MS)
    append(log, make_batch(2))
    swap.run()
    jobs.run()
    # Killed here, or after the swap was taken in: the newest checkpoint knows of the gaps.
    found = CheckpointFile(str(tmp_path), Files()).read()
    assert found is not None
    assert found.clean_upto == segments[-1].next_offset
    swap.finish()
    expected = bases_of(log)
    log.close(is_clean=False)
    again = open_log(str(tmp_path), Files(), run_now, SMALL, "another boot")
    assert (bases_of(again), again.quarantined, again.damage) == (expected, (), None)


@pytest.mark.parametrize("loss", ["no file", "no index", "a short file", "a bad index"])
def test_nothing_is_replaced_by_files_that_are_not_there_or_not_whole(tmp_path: Path, loss: str) -> None:
    log = make_log(tmp_path, settings=SMALL)
    fill(log)
    before = read_all(log)
    removed = list(log.segments())[:2]
    new = write_new_segment(log, Files(), removed, is_even)
    path = Path(new_log_path(str(tmp_path), new.base_offset))
    index_path = Path(new_index_path(str(tmp_path), new.base_offset))
    if loss == "no file":
        path.unlink()
    elif loss == "no index":
        index_path.unlink()
    elif loss == "a short file":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        index_path.write_bytes(bytes(len(index_path.read_bytes())))
    with pytest.raises(DiskFailure):
        log.replace_segments(removed, [new], removed[-1].next_offset)
    assert not (tmp_path / REPLACEMENT_NAME).exists()
    assert read_all(log) == before
    append(log)
    again = open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)
    assert read_all(again)[:-1] == before
