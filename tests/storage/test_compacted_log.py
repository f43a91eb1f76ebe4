"""Compaction of a real log: the swap, what readers see before, during and after it, and crashes in between."""

import errno
from pathlib import Path

import pytest

from storage.batch.format import COMMIT
from storage.batch.markers import marker_record
from storage.batch.record_batch import Record, build_batch, parse_header, read_records
from storage.compaction.compaction import CompactionJob, CompactionResult, compact
from storage.disk.files import Files
from storage.errors import DiskFailure, StorageFailed
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.recovery.crash_recovery import open_log
from storage.segment.sealed_scan import SealedSegment
from tests.support.batches import BOOT_ID, NOW_MS, read_all, run_now
from tests.support.faulty_files import FaultyFiles

BUDGET_BYTES = 1024 * 1024
SETTINGS = LogSettings(segment_bytes=1500, index_interval_bytes=200)


def reopened(directory: Path, files: Files) -> Log:
    return open_log(str(directory), files, run_now, SETTINGS, BOOT_ID)


def write(log: Log, key: str, value: str | None, *, producer_id: int = -1, sequence: int = -1) -> None:
    record = Record(key.encode(), value.encode() if value is not None else None, NOW_MS)
    batch = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    log.append(memoryview(batch), parse_header(batch), 0, NOW_MS)


def fill(log: Log, rounds: int = 6) -> None:
    for number in range(rounds):
        for key in "abcdefgh":
            write(log, key, f"{key}{number}" + "x" * 100)
    log.flush()


def job_for(log: Log) -> CompactionJob:
    return CompactionJob(
        directory=log.directory,
        segments=tuple(
            SealedSegment(one.base_offset, one.next_offset, one.size_bytes) for one in log.segments() if one.is_sealed
        ),
        clean_upto=log.clean_upto,
        uncleanable_offset=log.synced_offset,
        producers=log.producers.encode(),
        now_ms=NOW_MS,
        delete_retention_ms=1000,
        keys_bytes_max=1024 * 1024,
        segment_bytes=1500,
        index_interval_bytes=200,
    )


def swap(log: Log, result: CompactionResult) -> None:
    for group in result.groups:
        bases = {source.base_offset for source in group.removed}
        removed = [segment for segment in log.segments() if segment.base_offset in bases]
        log.replace_segments(removed, [group.added], group.clean_upto)


def records_of(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for batch in read_all(log, max_bytes=400)
        for record in read_records(batch, BUDGET_BYTES)
    ]


def last_values(log: Log) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in records_of(log)}


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def log(tmp_path: Path, files: FaultyFiles) -> Log:
    made = reopened(tmp_path, files)
    fill(made)
    return made


def test_every_offset_can_be_read_from_before_and_after(log: Log) -> None:
    before = records_of(log)
    starts = range(log.log_start_offset, log.log_end_offset)
    swap(log, compact(job_for(log)))
    after = records_of(log)
    assert len(after) < len(before)
    assert [record for record in before if record in after] == after
    assert last_values(log) == {key: value for _, key, value in before}
    for start in starts:
        batches = read_all(log, start)
        found = [record.offset for batch in batches for record in read_records(batch, BUDGET_BYTES)]
        assert [offset for offset in found if offset >= start] == [offset for offset, _, _ in after if offset >= start]


def test_slices_that_readers_hold_stay_good(log: Log) -> None:
    reads = [log.read(segment.base_offset, 400, log.log_end_offset) for segment in log.segments()]
    before = [bytes(read.view) for read in reads]
    swap(log, compact(job_for(log)))
    assert [bytes(read.view) for read in reads] == before


def test_a_compacted_log_is_the_same_after_every_kind_of_start(tmp_path: Path, log: Log, files: FaultyFiles) -> None:
    swap(log, compact(job_for(log)))
    write(log, "a", "behind it")
    log.flush()
    expected, clean_upto, end = records_of(log), log.clean_upto, log.log_end_offset
    killed = reopened(tmp_path, files)
    assert (records_of(killed), killed.clean_upto, killed.log_end_offset) == (expected, clean_upto, end)
    killed.close()
    stopped = reopened(tmp_path, files)
    assert (records_of(stopped), stopped.clean_upto, stopped.quarantined) == (expected, clean_upto, ())
    stopped.flush()
    files.cut_power()
    powered = open_log(str(tmp_path), files, run_now, SETTINGS, files.boot_id())
    assert (records_of(powered), powered.clean_upto, powered.quarantined) == (expected, clean_upto, ())
    assert powered.is_writable


def test_a_log_can_be_compacted_again_and_again(tmp_path: Path, log: Log, files: FaultyFiles) -> None:
    for number in range(5):
        before = last_values(log)
        swap(log, compact(job_for(log)))
        assert last_values(log) == before
        fill(log, 2 + number)
        if number % 2:
            log.close()
            log = reopened(tmp_path, files)
    before_bytes = log.size_bytes
    log.roll(NOW_MS)
    swap(log, compact(job_for(log)))
    assert len(records_of(log)) == 8
    assert log.size_bytes < before_bytes
    assert log.clean_upto == log.log_end_offset


def test_a_log_that_is_compacted_whole_goes_on_at_its_end(tmp_path: Path, log: Log, files: FaultyFiles) -> None:
    log.roll(NOW_MS)
    end = log.log_end_offset
    swap(log, compact(job_for(log)))
    assert log.log_end_offset == end
    write(log, "a", "next")
    assert records_of(log)[-1] == (end, b"a", b"next")
    log.flush()
    assert records_of(reopened(tmp_path, files)) == records_of(log)


def test_a_producer_is_known_after_its_records_are_gone(tmp_path: Path, files: FaultyFiles) -> None:
    log = reopened(tmp_path, files)
    for sequence in range(3):
        write(log, "a", "x" * 600, producer_id=7, sequence=sequence)
    fill(log)
    log.roll(NOW_MS)
    swap(log, compact(job_for(log)))
    log.close()
    (tmp_path / "checkpoint").unlink()
    log = reopened(tmp_path, files)
    state = log.producers.get(7)
    assert state is not None
    assert state.next_sequence == 3


def test_a_marker_and_an_open_transaction_survive(tmp_path: Path, files: FaultyFiles) -> None:
    log = reopened(tmp_path, files)

    def add(record: Record, producer_id: int, sequence: int, *, is_control: bool = False) -> None:
        batch = build_batch(
            [record],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
            is_control=is_control,
        )
        log.append(memoryview(batch), parse_header(batch), 0, NOW_MS)

    add(Record(b"a", b"committed", NOW_MS), 1, 0)
    add(marker_record(COMMIT, 0, NOW_MS), 1, -1, is_control=True)
    write(log, "b", "1")
    write(log, "b", "2")
    add(Record(b"open", b"", NOW_MS), 2, 0)
    fill(log)
    result = compact(job_for(log))
    swap(log, result)
    assert result.clean_upto == log.clean_upto == 4
    assert [offset for offset, _, _ in records_of(log)][:4] == [0, 1, 3, 4]
    assert len(records_of(log)) == log.log_end_offset - 1, "nothing behind the open transaction was touched"


# --- crashes


def test_new_files_without_a_decision_are_forgotten(tmp_path: Path, log: Log, files: FaultyFiles) -> None:
    before = records_of(log)
    compact(job_for(log))
    assert any(path.suffix == ".new" for path in tmp_path.iterdir())
    again = reopened(tmp_path, files)
    assert records_of(again) == before
    assert again.clean_upto == 0
    assert not any(path.suffix == ".new" for path in tmp_path.iterdir())


@pytest.mark.parametrize("after", range(12))
@pytest.mark.parametrize("operation", ["rename", "fsync", "fsync_dir", "create"])
def test_a_swap_that_fails_anywhere_leaves_the_old_or_the_new(
    tmp_path: Path, log: Log, files: FaultyFiles, operation: str, after: int
) -> None:
    expected = last_values(log)
    result = compact(job_for(log))
    files.fail_next(operation, errno.EIO, after=after)
    try:
        swap(log, result)
    except StorageFailed:
        assert not log.is_writable
    except DiskFailure:
        assert log.is_writable
    files.repair()
    assert last_values(log) == expected
    again = reopened(tmp_path, files)
    assert last_values(again) == expected
    assert again.quarantined == ()
    assert not any(path.suffix == ".new" or path.name == "replacement" for path in tmp_path.iterdir())
    swap(again, compact(job_for(again)))
    assert last_values(again) == expected
    assert again.clean_upto == job_for(again).segments[-1].next_offset
