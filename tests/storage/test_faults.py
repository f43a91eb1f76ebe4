"""A disk that fills up or breaks: an append works or changes nothing, and a failed sync is believed."""

import errno
import shutil
from pathlib import Path

import pytest

from storage.disk.files import Files
from storage.errors import DiskFailure, StorageFailed
from storage.log.log import Appended, Log
from storage.log.settings import LogSettings
from storage.recovery.crash_recovery import open_log
from tests.support.batches import BOOT_ID, LaterJobs, append, make_batch, make_log, read_all, run_now
from tests.support.faulty_files import FaultyFiles


def assert_found_after_a_kill(log: Log, target: Path) -> None:
    shutil.copytree(log.directory, target)
    again = open_log(str(target), Files(), run_now, LogSettings(), BOOT_ID)
    assert again.damage is None
    assert read_all(again) == read_all(log)


@pytest.mark.parametrize("operation", ["create", "fallocate", "pwrite"])
def test_a_full_disk_refuses_the_first_append_and_leaves_nothing(tmp_path: Path, operation: str) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files)
    files.break_down(operation)
    for _ in range(3):
        with pytest.raises(DiskFailure) as caught:
            append(log, make_batch(producer_id=1, producer_epoch=0, base_sequence=0))
        assert caught.value.error_number == errno.ENOSPC
    assert log.log_end_offset == 0
    assert list(tmp_path.iterdir()) == []
    files.repair()
    assert append(log, make_batch(producer_id=1, producer_epoch=0, base_sequence=0)) == Appended(0, 0, -1, False)
    assert len(read_all(log)) == 1


@pytest.mark.parametrize("operation", ["create", "fallocate", "pwrite"])
def test_a_full_disk_at_a_roll_leaves_the_old_segment_in_use(tmp_path: Path, operation: str) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files, settings=LogSettings(segment_bytes=1000))
    append(log, make_batch(value=bytes(700)))
    files.break_down(operation)
    with pytest.raises(DiskFailure):
        append(log, make_batch(value=bytes(700)))
    assert (log.log_end_offset, log.segment_count) == (1, 1)
    files.repair()
    append(log, make_batch(value=bytes(10)))
    append(log, make_batch(value=bytes(700)))
    assert (log.log_end_offset, log.segment_count) == (3, 2)
    assert len(read_all(log)) == 3


class UnreadableFiles(FaultyFiles):
    """Files can also fail to open for reading, as when the process has no descriptors left."""

    def open_read(self, path: str) -> int:
        self._enter("open_read")
        return super().open_read(path)


@pytest.mark.parametrize("error_number", [errno.EMFILE, errno.EIO])
def test_a_roll_that_cannot_read_the_index_of_the_segment_before_changes_nothing(
    tmp_path: Path, error_number: int
) -> None:
    (tmp_path / "p").mkdir()
    settings = LogSettings(segment_bytes=1000, index_interval_bytes=1)
    log = make_log(tmp_path / "p", settings=settings)
    for _ in range(3):
        append(log, make_batch(value=bytes(200), producer_id=1, producer_epoch=0, base_sequence=log.log_end_offset))
    log.close()
    files = UnreadableFiles()
    log = open_log(str(tmp_path / "p"), files, run_now, settings, BOOT_ID)
    expected = [(path.name, path.stat().st_size) for path in sorted((tmp_path / "p").iterdir())]
    files.break_down("open_read", error_number)
    for _ in range(3):
        with pytest.raises(DiskFailure):
            append(log, make_batch(value=bytes(700), producer_id=1, producer_epoch=0, base_sequence=3))
        assert (log.log_end_offset, log.segment_count, log.is_writable) == (3, 1, True)
        assert [(path.name, path.stat().st_size) for path in sorted((tmp_path / "p").iterdir())] == expected
    files.repair()
    assert_found_after_a_kill(log, tmp_path / "q")
    again = make_batch(value=bytes(700), producer_id=1, producer_epoch=0, base_sequence=3)
    assert append(log, again) == Appended(3, 3, -1, False)
    append(log, make_batch(value=bytes(700), producer_id=1, producer_epoch=0, base_sequence=4))
    assert (log.log_end_offset, log.segment_count) == (5, 3)
    assert len(read_all(log)) == 5
    assert_found_after_a_kill(log, tmp_path / "r")


def test_an_append_that_finds_no_thread_for_its_late_work_is_stored(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    log = make_log(tmp_path / "p", background=refuse, settings=LogSettings(segment_bytes=200))
    for number in range(3):
        assert append(log).base_offset == number
    assert log.segment_count == 2
    assert_found_after_a_kill(log, tmp_path / "q")
    expected = read_all(log)
    log.close()
    assert read_all(open_log(str(tmp_path / "p"), Files(), run_now, LogSettings(), BOOT_ID)) == expected


def test_a_disk_that_fills_up_during_extension_recovers(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path / "p", files=files)
    (tmp_path / "p").mkdir()
    append(log)
    files.break_down("fallocate")
    appended = 1

    def append_until_full() -> None:
        nonlocal appended
        for _ in range(100):
            append(log, make_batch(value=bytes(9000)))
            appended += 1

    with pytest.raises(DiskFailure):
        append_until_full()
    assert log.log_end_offset == appended
    assert log.is_writable
    files.repair()
    append(log, make_batch(value=bytes(9000)))
    assert len(read_all(log)) == appended + 1
    assert_found_after_a_kill(log, tmp_path / "q")


@pytest.mark.parametrize("torn_bytes", [0, 1, 30, 61, 3000, 9000])
def test_a_torn_append_leaves_no_trace(tmp_path: Path, torn_bytes: int) -> None:
    files = FaultyFiles()
    (tmp_path / "p").mkdir()
    log = make_log(tmp_path / "p", files=files)
    append(log)
    files.tear_next_write(torn_bytes)
    with pytest.raises(DiskFailure):
        append(log, make_batch(value=b"x" * 9000))
    assert log.log_end_offset == 1
    # Killed now, or after a smaller batch took the place: both are a clean log.
    assert_found_after_a_kill(log, tmp_path / "q")
    append(log)
    assert len(read_all(log)) == 2
    assert_found_after_a_kill(log, tmp_path / "r")


def test_an_index_that_cannot_be_written_does_not_hurt(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files, settings=LogSettings(index_interval_bytes=1))
    append(log)
    files.break_down("open_write")
    for _ in range(600):
        append(log)
    assert len(read_all(log)) == 601
    files.repair()
    for _ in range(300):
        append(log)
    (segment,) = log.segments()
    assert segment.index.written_count > 600


def test_a_failed_sync_stops_the_log_and_is_not_tried_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files)
    append(log)
    files.fail_next("fdatasync", errno.EIO)
    with pytest.raises(StorageFailed):
        log.flush()
    with pytest.raises(StorageFailed):
        append(log)
    assert len(read_all(log)) == 1
    syncs = files.calls["fdatasync"]
    log.close()
    assert files.calls["fdatasync"] == syncs


def test_a_seal_that_cannot_be_synced_stops_the_log(tmp_path: Path) -> None:
    files, jobs = FaultyFiles(), LaterJobs()
    log = make_log(tmp_path, files=files, background=jobs, settings=LogSettings(segment_bytes=200))
    append(log)
    jobs.run()
    append(log)
    append(log)
    files.fail_next("fdatasync", errno.EIO)
    jobs.run()
    assert not log.is_writable
    with pytest.raises(StorageFailed):
        append(log)
    assert len(read_all(log)) == 3


def test_a_seal_that_finds_no_space_is_made_up_for(tmp_path: Path) -> None:
    files, jobs = FaultyFiles(), LaterJobs()
    log = make_log(tmp_path, files=files, background=jobs, settings=LogSettings(segment_bytes=200))
    append(log)
    append(log)
    files.break_down("open_write")
    jobs.run()
    files.repair()
    assert log.is_writable
    append(log)
    log.release()
    assert len(read_all(log)) == 3
    expected = read_all(log)
    log.close()
    again = open_log(str(tmp_path), files, run_now, LogSettings(), BOOT_ID)
    assert read_all(again) == expected


def test_a_stop_that_cannot_sync_is_not_clean(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files)
    append(log)
    files.fail_next("fdatasync", errno.EIO)
    with pytest.raises(DiskFailure):
        log.close()
    again = open_log(str(tmp_path), files, run_now, LogSettings(), BOOT_ID)
    assert len(read_all(again)) == 1


@pytest.mark.parametrize("torn_bytes", [1, 30, 61, 3000])
def test_a_torn_append_before_a_roll_leaves_no_trace(tmp_path: Path, torn_bytes: int) -> None:
    files, jobs = FaultyFiles(), LaterJobs()
    (tmp_path / "p").mkdir()
    log = make_log(tmp_path / "p", files=files, background=jobs, settings=LogSettings(segment_bytes=10_000))
    append(log)
    log.flush()
    files.tear_next_write(torn_bytes)
    with pytest.raises(DiskFailure):
        append(log, make_batch(value=b"x" * 5000))
    append(log, make_batch(value=b"x" * 11_000))
    assert log.segment_count == 2
    # The seal of the first one is not done yet; the torn bytes are gone, from the disk too once that is synced.
    assert_found_after_a_kill(log, tmp_path / "q")
    sync = log.begin_sync()
    assert sync is not None
    assert [segment.base_offset for segment, _, _ in sync.dirty] == [0, 1]
    sync.close()


def test_behind_a_write_that_failed_halfway_nothing_is_written(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files)
    append(log)
    files.tear_next_write(100)
    with pytest.raises(DiskFailure):
        append(log, make_batch(value=b"x" * 300))
    for _ in range(2):
        append(log)
    assert [(segment.base_offset, segment.next_offset) for segment in log.segments()] == [(0, 1), (1, 3)]
    log.flush()
    assert log.synced_offset == 3
