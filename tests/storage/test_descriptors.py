"""Running out of file descriptors loses nothing and ends nothing: each step may be taken again."""

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from storage.data_directory.store import LogStore
from storage.data_directory.unclean_logs import SPARE_LINES_MAX, UncleanList, decode_written
from storage.disk.journal import Journal
from storage.errors import DiskFailure, StorageFailed, disk_errors
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.log.syncing import sync_all
from tests.support.batches import append, make_batch, read_all, run_now
from tests.support.new_segments import write_new_segment
from tests.support.scarce_files import ScarceFiles

ID = bytes(range(16))
# Two batches fill a segment, so that a few appends roll, seal and make checkpoints.
SETTINGS = LogSettings(segment_bytes=400)
VALUE = bytes(100)
# More calls that take a descriptor than any scenario here makes.
CALLS_MAX = 200


def start(path: Path, files: ScarceFiles) -> tuple[LogStore, Log]:
    store = LogStore(str(path), files, run_now)
    store.lock()
    return store, store.open_log("orders", 0, ID, SETTINGS)


def each_shortage(scenario: Callable[[int], bool]) -> None:
    """Let descriptors run out at each call in turn, until the scenario, which tells, does not notice any more."""
    for count in range(CALLS_MAX):
        if not scenario(count):
            assert count > 0
            return
    raise AssertionError("the scenario takes more descriptors than it should")


def is_refused(call: Callable[[], object]) -> bool:
    """Whether it fails for want of descriptors, in a way that may be retried."""
    try:
        call()
    except DiskFailure as error:
        refusal = error
    else:
        return False
    assert not isinstance(refusal, StorageFailed)
    assert refusal.error_number == errno.EMFILE
    return True


@pytest.mark.parametrize("error_number", [errno.EMFILE, errno.ENFILE])
def test_a_log_lives_on_wherever_its_descriptors_run_out(tmp_path: Path, error_number: int) -> None:
    def write(count: int) -> bool:
        files = ScarceFiles(error_number)
        store, log = start(tmp_path / str(count), files)
        files.allow(count)
        for _ in range(5):
            with suppress(DiskFailure):
                append(log, make_batch(value=VALUE))
            with suppress(DiskFailure):
                log.flush()
        was_refused = files.refused_count > 0
        files.allow(None)
        assert (log.is_writable, log.gate.failure) == (True, None)
        log.retry_seals()
        append(log, make_batch(value=VALUE))
        log.flush()
        assert log.synced_offset == log.log_end_offset
        assert not any(segment.is_seal_pending for segment in log.segments())
        kept = read_all(log)
        store.close(is_clean=False)
        _, found = start(tmp_path / str(count), ScarceFiles())
        assert read_all(found) == kept
        return was_refused

    each_shortage(write)


def test_a_partition_can_be_deleted_without_descriptors(tmp_path: Path) -> None:
    files = ScarceFiles()
    store, log = start(tmp_path, files)
    append(log, make_batch(value=VALUE))
    files.allow(0)
    store.delete_log("orders", 0)
    assert [path.name for path in tmp_path.glob("orders-0*")] == ["orders-0.unknown.deleted"]
    assert list(store.removal.failed) == [str(tmp_path / "orders-0.unknown.deleted")]
    files.allow(None)
    store.removal.retry()
    assert list(tmp_path.glob("orders-0*")) == []
    assert store.open_log("orders", 0, ID, SETTINGS).log_end_offset == 0
    store.close()


def test_a_round_without_descriptors_syncs_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    def sync(count: int) -> bool:
        files = ScarceFiles()
        store, log = start(tmp_path / str(count), files)
        append(log, make_batch(value=VALUE))
        begun = log.begin_sync()
        assert begun is not None
        files.allow(count)
        (failure,) = sync_all(files, store.data_dirs, [begun])
        files.allow(None)
        if failure is None:
            begun.finish()
        else:
            assert not isinstance(failure, StorageFailed)
            assert failure.error_number == errno.EMFILE
            assert (log.synced_offset, log.gate.failure) == (0, None)
            log.flush()
        assert log.synced_offset == 1
        store.close()
        return failure is not None

    each_shortage(sync)


def test_a_replacement_without_descriptors_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    def swap(count: int) -> bool:
        files = ScarceFiles()
        store, log = start(tmp_path / str(count), files)
        for _ in range(6):
            append(log, make_batch(value=VALUE))
        log.flush()
        before = read_all(log)
        removed = list(log.segments())[:2]
        added = write_new_segment(log, files, removed, lambda header: True)
        files.allow(count)
        was_refused = is_refused(lambda: log.replace_segments(removed, [added], added.next_offset))
        files.allow(None)
        assert log.is_writable
        assert read_all(log) == before
        append(log, make_batch(value=VALUE))
        log.flush()
        kept = read_all(log)
        store.close(is_clean=False)
        _, found = start(tmp_path / str(count), ScarceFiles())
        assert read_all(found) == kept
        return was_refused

    each_shortage(swap)


def test_a_journal_goes_on_after_a_rewrite_without_descriptors(tmp_path: Path) -> None:
    def rewrite(count: int) -> bool:
        files = ScarceFiles()
        path = str(tmp_path / f"journal{count}")
        journal = Journal.open(path, files)
        journal.append([b"old"])
        files.allow(count)
        was_refused = is_refused(lambda: journal.rewrite([b"new"]))
        journal.append([b"next"])
        journal.close()
        found = Journal.open(path, ScarceFiles())
        assert list(found.replay()) == [b"old" if was_refused else b"new", b"next"]
        found.close()
        return was_refused

    each_shortage(rewrite)


def noted(written: UncleanList) -> None:
    with disk_errors("note a folder"):
        written.add("orders-0")
        written.sync()


def test_the_list_of_written_folders_goes_on_when_it_could_not_be_begun_anew(tmp_path: Path) -> None:
    def begin_anew(count: int) -> bool:
        files = ScarceFiles()
        folder = tmp_path / str(count)
        folder.mkdir()
        written = UncleanList(str(folder), files)
        written.start([])
        for number in range(SPARE_LINES_MAX + 1):
            written.add(f"gone-{number}")
            written.remove(f"gone-{number}")
        files.allow(count)
        was_refused = is_refused(lambda: noted(written))
        files.allow(None)
        written.add("orders-0")
        written.add("orders-1")
        written.sync()
        written.close()
        found = decode_written((folder / "written").read_bytes())
        assert found is not None
        assert {"orders-0", "orders-1"} <= found
        return was_refused

    each_shortage(begin_anew)
