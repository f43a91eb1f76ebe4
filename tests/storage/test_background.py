"""Background work of logs: what waits for the disk does not hold up what an append needs."""

import errno
import threading
from pathlib import Path

import pytest

from kwire.concurrency.disk_lanes import SETTLE_THREADS, DiskLanes, Lane
from storage.errors import DiskFailure
from storage.log.settings import LogSettings
from storage.segment.segment import STEP_BYTES_MIN
from tests.support.batches import append, make_batch, make_log
from tests.support.faulty_files import FaultyFiles

WAIT_SECONDS = 20.0


class WatchedFiles(FaultyFiles):
    """Notes in which thread space is reserved; with `may_end` a reservation waits for it."""

    def __init__(self, may_end: threading.Event | None = None) -> None:
        super().__init__()
        self._may_end = may_end
        self.threads: list[str] = []
        self.has_begun = threading.Event()
        self.has_reserved = threading.Semaphore(0)

    def fallocate(self, fd: int, position: int, size: int) -> None:
        self.threads.append(threading.current_thread().name)
        self.has_begun.set()
        if self._may_end is not None:
            assert self._may_end.wait(WAIT_SECONDS)
        super().fallocate(fd, position, size)
        self.has_reserved.release()


def in_order(lane: Lane) -> None:
    """Returns when the jobs of a lane with one thread that were submitted so far have ended."""
    is_over = threading.Event()
    lane.submit(is_over.set)
    assert is_over.wait(WAIT_SECONDS)


def test_space_is_reserved_while_all_seals_wait_for_the_disk(tmp_path: Path) -> None:
    lanes, files = DiskLanes(), WatchedFiles()
    is_over = threading.Event()
    waiting = [threading.Event() for _ in range(SETTLE_THREADS)]
    for one in waiting:

        def wait(begun: threading.Event = one) -> None:
            begun.set()
            assert is_over.wait(WAIT_SECONDS)

        lanes(wait)
    assert all(one.wait(WAIT_SECONDS) for one in waiting)
    log = make_log(tmp_path, files=files, background=lanes, settings=LogSettings())
    try:
        append(log, make_batch())
        assert files.has_reserved.acquire(timeout=WAIT_SECONDS)
        in_order(lanes.allocate)
        # The append that passes the middle of what is reserved asks for more, ahead of need.
        for _ in range(4):
            append(log, make_batch(value=bytes(15_000)))
        assert files.has_reserved.acquire(timeout=WAIT_SECONDS)
        assert threading.main_thread().name not in files.threads
    finally:
        is_over.set()
        lanes.close()
    log.close()


def test_appends_go_on_while_space_is_being_reserved(tmp_path: Path) -> None:
    may_end = threading.Event()
    lanes, files = DiskLanes(), WatchedFiles(may_end)
    log = make_log(tmp_path, files=files, background=lanes, settings=LogSettings())
    path = tmp_path / f"{0:020d}.log"
    try:
        append(log, make_batch(value=b"first"))
        assert files.has_begun.wait(WAIT_SECONDS)
        for _ in range(20):
            append(log, make_batch(value=bytes(15_000)))
        # The file is longer than what is in it, as it is where space is reserved, and a reader gets what was appended.
        assert path.stat().st_size > log.size_bytes > STEP_BYTES_MIN
        read = log.read(0, 2**30, log.log_end_offset)
        assert (len(read.view), read.next_offset) == (log.size_bytes, 21)
        whole = bytes(read.view)
        may_end.set()
        in_order(lanes.allocate)
        append(log, make_batch(value=b"next"))
        in_order(lanes.allocate)
        data = path.read_bytes()
        assert data[: len(whole)] == whole
        assert not any(data[log.size_bytes :])
    finally:
        may_end.set()
        lanes.close()
    log.close()
    assert path.stat().st_size == log.size_bytes


def test_an_append_whose_space_no_thread_reserves_is_stored(tmp_path: Path) -> None:
    lanes, files = DiskLanes(), FaultyFiles()
    lanes.allocate.close()
    log = make_log(tmp_path, files=files, background=lanes, settings=LogSettings())
    for _ in range(10):
        append(log, make_batch(value=bytes(15_000)))
    assert files.calls["fallocate"] == 0
    assert (tmp_path / f"{0:020d}.log").stat().st_size > log.size_bytes
    lanes.close()
    log.close()


def test_a_seal_cuts_what_is_being_reserved(tmp_path: Path) -> None:
    may_end = threading.Event()
    lanes, files = DiskLanes(), WatchedFiles(may_end)
    log = make_log(tmp_path, files=files, background=lanes, settings=LogSettings())
    append(log, make_batch())
    assert files.has_begun.wait(WAIT_SECONDS)
    log.roll(0)
    may_end.set()
    lanes.close()
    assert (tmp_path / f"{0:020d}.log").stat().st_size == log.size_bytes
    log.close()


def test_a_file_system_that_cannot_reserve_space_takes_appends(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.break_down("fallocate", errno.EOPNOTSUPP)
    log = make_log(tmp_path, files=files)
    for _ in range(10):
        append(log, make_batch(value=bytes(15_000)))
    assert files.calls["fallocate"] == 1
    assert (tmp_path / f"{0:020d}.log").stat().st_size > log.size_bytes
    log.close()


def test_a_full_disk_refuses_appends_and_spoils_nothing(tmp_path: Path) -> None:
    lanes, files = DiskLanes(), FaultyFiles()
    log = make_log(tmp_path, files=files, background=lanes, settings=LogSettings())
    append(log, make_batch())
    in_order(lanes.allocate)
    files.break_down("fallocate")
    files.break_down("pwrite")
    for _ in range(3):
        with pytest.raises(DiskFailure) as refused:
            append(log, make_batch(value=bytes(STEP_BYTES_MIN)))
        assert refused.value.error_number == errno.ENOSPC
    files.repair()
    append(log, make_batch(value=bytes(STEP_BYTES_MIN)))
    assert (log.log_end_offset, log.segment_count) == (2, 1)
    lanes.close()
    log.close()


def test_a_log_whose_space_is_being_reserved_is_not_parked(tmp_path: Path) -> None:
    may_end = threading.Event()
    lanes, files = DiskLanes(), WatchedFiles(may_end)
    log = make_log(tmp_path, files=files, background=lanes, settings=LogSettings())
    append(log, make_batch())
    log.flush()
    assert files.has_begun.wait(WAIT_SECONDS)
    lanes.settle.close()
    assert not log.park()
    may_end.set()
    in_order(lanes.allocate)
    assert log.park()
    assert (tmp_path / f"{0:020d}.log").stat().st_size == log.size_bytes
    lanes.close()


def test_a_log_whose_checkpoint_is_being_written_is_not_parked_on_the_loop(tmp_path: Path) -> None:
    log = make_log(tmp_path, background=lambda job: job(), settings=LogSettings())
    append(log, make_batch())
    log.flush()
    is_held, may_end = threading.Event(), threading.Event()

    def write() -> None:
        with log._checkpoint_file.held():
            is_held.set()
            may_end.wait(WAIT_SECONDS)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        assert is_held.wait(WAIT_SECONDS)
        assert not log.park()
    finally:
        may_end.set()
        writing.join(WAIT_SECONDS)
    assert log.park()


def test_a_seal_that_no_thread_takes_is_tried_again(tmp_path: Path) -> None:
    refuses = False

    def background(job: object) -> None:
        if refuses:
            raise RuntimeError("the queue is full")
        assert callable(job)
        job()

    log = make_log(tmp_path, background=background, settings=LogSettings())
    append(log, make_batch())
    refuses = True
    log.roll(0)
    assert [one.is_seal_pending for one in log.segments()] == [True]
    refuses = False
    log.retry_seals()
    assert [one.is_seal_pending for one in log.segments()] == [False]
    log.close()
