"""Background work of logs: what waits for the disk does not hold up what an append needs."""

import threading
from pathlib import Path

from storage.background import SLOW_THREADS, BackgroundThreads
from storage.settings import LogSettings
from tests.support.batches import append, make_batch, make_log
from tests.support.faulty_files import FaultyFiles

WAIT_SECONDS = 20.0


class WatchedFiles(FaultyFiles):
    """Tells in which thread space was reserved."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []
        self.has_reserved_ahead = threading.Event()

    def fallocate(self, fd: int, position: int, size: int) -> None:
        super().fallocate(fd, position, size)
        self.threads.append(threading.current_thread().name)
        if threading.current_thread() is not threading.main_thread():
            self.has_reserved_ahead.set()


def test_space_is_reserved_ahead_while_all_seals_wait_for_the_disk(tmp_path: Path) -> None:
    threads, files = BackgroundThreads(lambda job: job()), WatchedFiles()
    is_over = threading.Event()
    waiting = [threading.Event() for _ in range(SLOW_THREADS)]
    for one in waiting:

        def wait(begun: threading.Event = one) -> None:
            begun.set()
            assert is_over.wait(WAIT_SECONDS)

        threads(wait)
    assert all(one.wait(WAIT_SECONDS) for one in waiting)
    log = make_log(tmp_path, files=files, background=threads, settings=LogSettings())
    try:
        # The first append reserves 64 KiB where it is; the one that passes the middle asks for more, ahead of need.
        for _ in range(4):
            append(log, make_batch(value=bytes(15_000)))
        assert files.has_reserved_ahead.wait(WAIT_SECONDS)
        append(log, make_batch(value=bytes(15_000)))
        assert [name == threading.main_thread().name for name in files.threads] == [True, False]
    finally:
        is_over.set()
        threads.close()
    log.close()


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
