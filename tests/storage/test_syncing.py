"""Syncing: durable is what a sync has answered for, and a sync that failed once is never believed again."""

import errno
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from storage.disk.files import Files
from storage.errors import DiskFailure, LogClosed, StorageFailed
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.log.syncing import FILES_ONE_BY_ONE_MAX, FILES_ONE_BY_ONE_MIN, UNWRITTEN_BYTES_MAX, LogSync, sync_all
from storage.recovery.crash_recovery import open_log
from tests.support.batches import BOOT_ID, LaterJobs, append, make_batch, make_log, read_all, run_now
from tests.support.faulty_files import FaultyFiles
from tests.support.simulated_disk import SimulatedDisk, SimulatedFiles

SMALL = LogSettings(segment_bytes=200)
FOLDER = "/data/orders-0"


def begin(log: Log) -> LogSync:
    sync = log.begin_sync()
    assert sync is not None
    return sync


def test_a_log_is_dirty_from_an_append_to_the_end_of_its_sync(tmp_path: Path) -> None:
    log = make_log(tmp_path, files=FaultyFiles())
    assert log.begin_sync() is None
    append(log)
    sync = begin(log)
    assert (sync.end_offset, log.synced_offset) == (1, 0)
    append(log)
    sync.run()
    assert log.synced_offset == 0
    sync.finish()
    assert log.synced_offset == 1
    sync = begin(log)
    sync.run()
    sync.finish()
    assert log.synced_offset == 2
    assert log.begin_sync() is None


def test_a_sync_of_a_log_in_full_swing_is_one_file(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files)
    append(log)
    log.flush()
    append(log)
    calls = dict(files.calls)
    sync = begin(log)
    assert sync.file_count == 1
    sync.run()
    sync.finish()
    done = {name: count - calls.get(name, 0) for name, count in files.calls.items() if count != calls.get(name, 0)}
    assert done == {"fdatasync": 1}


class Machine:
    """A simulated disk with one data directory and a log in a folder that its first append makes."""

    def __init__(self, background: LaterJobs | None = None) -> None:
        self.disk = SimulatedDisk()
        self.files = SimulatedFiles(self.disk)
        self.files.makedirs("/data")
        self.files.fsync_dir("/")
        self.log = Log(FOLDER, self.files, background or LaterJobs(), SMALL, "1", prepare_directory=self.make_folder)

    def make_folder(self) -> None:
        self.files.makedirs(FOLDER)
        self.files.replace_file(FOLDER + "/partition.metadata", b"whose records these are", sync=False)

    def after_power_cut(self, seed: int) -> tuple[SimulatedFiles, Log]:
        files = SimulatedFiles(self.disk.after_power_cut(Random(seed)))
        assert files.read_file(FOLDER + "/partition.metadata") == b"whose records these are"
        return files, open_log(FOLDER, files, run_now, SMALL, "2")


@pytest.mark.parametrize("seed", range(30))
def test_what_is_synced_survives_a_power_cut(seed: int) -> None:
    machine, chance = Machine(), Random(seed)
    for _ in range(chance.randint(1, 8)):
        append(machine.log)  # rolls every second one; the seals are never finished
    sync = begin(machine.log)
    for _ in range(chance.randint(0, 5)):
        append(machine.log)
    sync.run()
    sync.finish()
    synced = machine.log.synced_offset
    expected = b"".join(read_all(machine.log)[:synced])
    _, again = machine.after_power_cut(seed)
    assert again.log_end_offset >= synced > 0
    assert again.damage is None
    # What lies behind may be there, or damaged, or gone: nobody was told of it.
    found, offset = b"", 0
    while offset < synced:
        read = again.read(offset, 1_000_000, synced)
        found, offset = found + bytes(read.view), read.next_offset
    assert found == expected


@pytest.mark.parametrize("seed", range(10))
def test_one_sync_of_the_file_system_does_the_same(seed: int) -> None:
    machine = Machine()
    for _ in range(5):
        append(machine.log)
    syncs = [begin(machine.log) for _ in range(FILES_ONE_BY_ONE_MAX)]
    assert sync_all(machine.files, ["/data"], syncs) == [None] * len(syncs)
    syncs[-1].finish()
    _, again = machine.after_power_cut(seed)
    assert again.log_end_offset >= machine.log.synced_offset == 5
    assert len(read_all(again)) == again.log_end_offset


def test_a_seal_that_was_synced_is_not_synced_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files, settings=SMALL)
    for _ in range(4):
        append(log)
    assert begin(log).file_count == 1  # the segment in use; the seal job has synced its name as well


def test_a_failed_sync_poisons_for_ever(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files)
    append(log)
    sync = begin(log)
    files.fail_next("fdatasync")
    with pytest.raises(StorageFailed) as caught:
        sync.run()
    sync.fail(caught.value)
    # The next sync would succeed: the kernel has told of the loss once. Nobody asks it.
    calls = files.calls["fdatasync"]
    for _ in range(3):
        with pytest.raises(StorageFailed):
            append(log)
        assert log.begin_sync() is None
        with pytest.raises(StorageFailed):
            log.flush()
    assert log.synced_offset == 0
    assert not log.is_writable
    log.close()
    assert files.calls["fdatasync"] == calls


def test_a_sync_that_fails_once_and_then_lies_is_never_believed(tmp_path: Path) -> None:
    files, jobs = FaultyFiles(), LaterJobs()
    log = make_log(tmp_path, files=files, background=jobs, settings=SMALL)
    for _ in range(3):
        append(log)
    sync = begin(log)
    # The background seal meets the loss; the round that comes after it would be told that all is well.
    files.fail_next("fdatasync")
    jobs.run()
    with pytest.raises(StorageFailed):
        sync.run()
    assert log.synced_offset == 0


def test_a_sync_that_worked_is_not_believed_when_a_seal_failed_meanwhile(tmp_path: Path) -> None:
    files, jobs = FaultyFiles(), LaterJobs()
    log = make_log(tmp_path, files=files, background=jobs, settings=SMALL)
    for _ in range(3):
        append(log)
    sync = begin(log)
    sync.run()
    files.fail_next("fdatasync")
    jobs.run()
    sync.finish()
    assert log.synced_offset == 0
    assert not log.is_writable


def test_a_folder_whose_names_cannot_be_synced_poisons(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files, background=LaterJobs())
    append(log)
    sync = begin(log)
    files.fail_next("fsync_dir")
    with pytest.raises(StorageFailed) as caught:
        sync.run()
    sync.fail(caught.value)
    assert log.begin_sync() is None


def test_a_log_that_is_deleted_meanwhile_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    log = make_log(tmp_path / "p", files=Files(), background=LaterJobs())
    append(log)
    sync = begin(log)
    log.close(is_clean=False)
    shutil.rmtree(tmp_path / "p")
    sync.run()
    sync.finish()
    assert log.begin_sync() is None
    with pytest.raises(LogClosed):
        append(log)


def test_a_folder_that_vanishes_under_a_log_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    log = make_log(tmp_path / "p", files=Files(), background=LaterJobs())
    append(log)
    sync = begin(log)
    shutil.rmtree(tmp_path / "p")
    with pytest.raises(StorageFailed):
        sync.run()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = make_log(tmp_path, files=files, background=LaterJobs(), settings=SMALL)
    append(log)
    before = open_descriptors()
    sync = begin(log)
    assert open_descriptors() == before + 1
    sync.run()
    assert open_descriptors() == before
    append(log)
    begin(log).close()
    files.fail_next("fdatasync")
    with pytest.raises(StorageFailed):
        begin(log).run()
    assert open_descriptors() == before


class PoorFiles(FaultyFiles):
    """Descriptors can run out."""

    def duplicate(self, fd: int) -> int:
        self._enter("duplicate")
        return super().duplicate(fd)


def test_a_sync_that_finds_no_descriptor_is_asked_for_again(tmp_path: Path) -> None:
    files = PoorFiles()
    log = make_log(tmp_path, files=files, background=LaterJobs(), settings=SMALL)
    for _ in range(3):
        append(log)
    before = open_descriptors()
    files.fail_next("duplicate", errno.EMFILE, after=1)
    with pytest.raises(DiskFailure):
        log.begin_sync()
    assert open_descriptors() == before
    log.flush()
    assert log.synced_offset == 3


def test_what_a_killed_process_wrote_is_synced_before_it_is_called_durable(tmp_path: Path) -> None:
    log = make_log(tmp_path, background=LaterJobs(), settings=SMALL)
    for _ in range(5):
        append(log)
    log.close(is_clean=False)
    files = FaultyFiles()
    again = open_log(str(tmp_path), files, LaterJobs(), SMALL, BOOT_ID)
    assert (again.log_end_offset, again.synced_offset) == (5, 0)
    again.flush()
    assert again.synced_offset == 5
    assert files.calls["fdatasync"] >= 3
    again.close()
    assert open_log(str(tmp_path), files, run_now, SMALL, BOOT_ID).begin_sync() is None


# --- the first append of a run


class Notes:
    def __init__(self) -> None:
        self.taken = 0
        self.durable = 0
        self.error: OSError | None = None
        self.sync_error: OSError | None = None

    def take(self) -> "Notes":
        if self.error is not None:
            raise self.error
        self.taken += 1
        return self

    def __call__(self) -> None:
        if self.sync_error is not None:
            raise self.sync_error
        self.durable += 1


def noted_log(path: Path, notes: Notes, files: Files | None = None) -> Log:
    return Log(str(path), files or FaultyFiles(), run_now, SMALL, BOOT_ID, on_first_append=notes.take)


def test_the_first_append_of_a_run_is_noted_and_the_first_sync_makes_the_note_durable(tmp_path: Path) -> None:
    notes = Notes()
    log = noted_log(tmp_path, notes)
    assert notes.taken == 0
    for _ in range(5):
        append(log)
    assert (notes.taken, notes.durable) == (1, 0)
    sync = begin(log)
    sync.run()
    sync.finish()
    assert notes.durable == 1
    append(log)
    log.flush()
    assert (notes.taken, notes.durable) == (1, 1)


def test_a_log_of_an_earlier_run_is_noted_too_and_goes_on_in_its_segment(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=LogSettings())
    append(log)
    log.close()
    notes = Notes()
    again = open_log(str(tmp_path), Files(), run_now, LogSettings(), BOOT_ID, on_first_append=notes.take)
    append(again)
    append(again)
    assert (notes.taken, again.segment_count, again.log_end_offset) == (1, 1, 3)


def test_an_append_that_cannot_be_noted_is_refused(tmp_path: Path) -> None:
    notes = Notes()
    log = noted_log(tmp_path, notes)
    notes.error = OSError(errno.ENOSPC, "full")
    for _ in range(2):
        with pytest.raises(DiskFailure):
            append(log)
    assert log.log_end_offset == 0
    notes.error = None
    append(log)
    append(log)
    assert (notes.taken, log.log_end_offset) == (1, 2)


def test_a_note_that_cannot_be_made_durable_fails_the_sync(tmp_path: Path) -> None:
    notes = Notes()
    log = noted_log(tmp_path, notes)
    append(log)
    notes.sync_error = OSError(errno.EIO, "broken")
    sync = begin(log)
    with pytest.raises(StorageFailed) as caught:
        sync.run()
    sync.fail(caught.value)
    assert not log.is_writable


# --- many logs


def many_logs(path: Path, files: Files, count: int) -> list[Log]:
    logs = []
    for number in range(count):
        folder = path / f"t{number}-0"
        folder.mkdir(parents=True)
        logs.append(make_log(folder, files=files))
        append(logs[-1])
        logs[-1].flush()
        append(logs[-1])
    return logs


def test_few_files_are_synced_one_by_one_and_one_failure_is_one_log_s(tmp_path: Path) -> None:
    files = FaultyFiles()
    logs = many_logs(tmp_path, files, FILES_ONE_BY_ONE_MAX)
    syncs = [begin(log) for log in logs]
    files.fail_next("fdatasync", after=2)
    outcomes = sync_all(files, [str(tmp_path)], syncs)
    assert [outcome is None for outcome in outcomes] == [number != 2 for number in range(len(logs))]
    assert files.calls["syncfs"] == 0


@pytest.mark.parametrize(
    ("count", "unwritten", "syncfs_calls"),
    [
        (FILES_ONE_BY_ONE_MIN, 0, 0),
        (FILES_ONE_BY_ONE_MIN + 1, UNWRITTEN_BYTES_MAX, 1),
        (FILES_ONE_BY_ONE_MIN + 1, UNWRITTEN_BYTES_MAX + 1, 0),
        (FILES_ONE_BY_ONE_MAX, UNWRITTEN_BYTES_MAX, 1),
        (FILES_ONE_BY_ONE_MAX, UNWRITTEN_BYTES_MAX + 1, 0),
        (FILES_ONE_BY_ONE_MAX + 1, UNWRITTEN_BYTES_MAX + 1, 1),
    ],
)
def test_some_files_are_synced_at_once_while_others_have_left_little_to_write(
    tmp_path: Path, count: int, unwritten: int, syncfs_calls: int
) -> None:
    files = FaultyFiles()
    files.unwritten = unwritten
    logs = many_logs(tmp_path, files, count)
    calls = files.calls["fdatasync"]
    syncs = [begin(log) for log in logs]
    assert sync_all(files, [str(tmp_path)], syncs) == [None] * count
    assert (files.calls["syncfs"], files.calls["fdatasync"] - calls) == (syncfs_calls, 0 if syncfs_calls else count)


def test_many_files_are_synced_at_once(tmp_path: Path) -> None:
    files = FaultyFiles()
    logs = many_logs(tmp_path / "a", files, FILES_ONE_BY_ONE_MAX + 1) + many_logs(tmp_path / "b", files, 2)
    calls = files.calls["fdatasync"]
    before = open_descriptors()
    syncs = [begin(log) for log in logs]
    assert sync_all(files, [str(tmp_path / "a"), str(tmp_path / "b")], syncs) == [None] * len(logs)
    # The other directory has few, and its files are synced for themselves.
    assert (files.calls["syncfs"], files.calls["fdatasync"] - calls) == (1, 2)
    assert open_descriptors() == before
    for sync, log in zip(syncs, logs, strict=True):
        sync.finish()
        assert log.synced_offset == 2


def test_a_file_system_that_cannot_be_synced_fails_all_logs_on_it(tmp_path: Path) -> None:
    files = FaultyFiles()
    logs = many_logs(tmp_path / "a", files, FILES_ONE_BY_ONE_MAX + 1) + many_logs(tmp_path / "b", files, 1)
    syncs = [begin(log) for log in logs]
    files.fail_next("syncfs")
    outcomes = sync_all(files, [str(tmp_path / "a"), str(tmp_path / "b")], syncs)
    assert [outcome is None for outcome in outcomes] == [False] * (len(logs) - 1) + [True]
    for log, outcome in zip(logs, outcomes, strict=True):
        assert (log.begin_sync() is None) == (outcome is not None)


def test_a_sync_of_the_file_system_does_not_heal_a_log(tmp_path: Path) -> None:
    files = FaultyFiles()
    logs = many_logs(tmp_path, files, FILES_ONE_BY_ONE_MAX + 1)
    syncs = [begin(log) for log in logs]
    logs[3].gate.close_gate(StorageFailed("a seal could not be synced"))
    outcomes = sync_all(files, [str(tmp_path)], syncs)
    assert [outcome is not None for outcome in outcomes] == [number == 3 for number in range(len(logs))]


# --- with threads


def test_rounds_and_seals_at_the_same_time_agree(tmp_path: Path) -> None:
    """Appends and rolls on one thread, seals on another, sync rounds on a third."""
    with ThreadPoolExecutor(1) as seals, ThreadPoolExecutor(1) as rounds:
        log = Log(str(tmp_path), Files(), lambda job: void(seals.submit(job)), SMALL, BOOT_ID)
        append(log)
        for _ in range(40):
            sync = begin(log)
            done = rounds.submit(sync.run)
            for _ in range(5):
                append(log)
            done.result(30)
            sync.finish()
            assert log.synced_offset == sync.end_offset
        log.flush()
    assert log.synced_offset == log.log_end_offset == 201
    assert not any(segment.is_seal_pending for segment in log.segments())
    expected = read_all(log)
    log.close(is_clean=False)
    assert read_all(open_log(str(tmp_path), Files(), run_now, SMALL, BOOT_ID)) == expected


def void(_: object) -> None:
    pass


def disk_that_lost_a_record(seed: int) -> SimulatedDisk:
    """A log of two records of which one is durable, and a durable checkpoint that speaks of both."""
    machine = Machine()
    for number in range(2):
        append(machine.log, make_batch(producer_id=7, producer_epoch=0, base_sequence=number))
        if number == 0:
            machine.log.flush()
    machine.log.checkpoint()
    fd = machine.files.open_read(FOLDER + "/checkpoint")
    machine.files.fsync(fd)
    machine.files.close(fd)
    machine.files.fsync_dir(FOLDER)
    return machine.disk.after_power_cut(Random(seed))


def test_a_checkpoint_of_records_that_are_gone_is_replaced_before_others_get_their_offsets() -> None:
    tried = 0
    for seed in range(20):
        disk = disk_that_lost_a_record(seed)
        files = SimulatedFiles(disk)
        log = open_log(FOLDER, files, LaterJobs(), SMALL, files.boot_id())
        if log.log_end_offset == 2:
            continue
        tried += 1
        append(log, make_batch(producer_id=8, producer_epoch=0, base_sequence=0))
        # Killed before anything was done in the background.
        files = SimulatedFiles(disk.restarted())
        again = open_log(FOLDER, files, run_now, SMALL, files.boot_id())
        assert again.log_end_offset == 2
        assert append(again, make_batch(producer_id=8, producer_epoch=0, base_sequence=0)).is_duplicate
        assert append(again, make_batch(producer_id=7, producer_epoch=0, base_sequence=1)).base_offset == 2
    assert tried
