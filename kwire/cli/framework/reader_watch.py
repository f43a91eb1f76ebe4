"""Ends a command that waits for new data when the reader of its output has gone.

`kwire room tail lobby | head -1` must end after one line, also if no second event ever arrives. A write would fail, but
without a second event there is no write.
"""

import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kwire.cli.framework.errors import ReaderGone


@contextmanager
def reader_watched() -> Iterator[None]:
    """Raise ReaderGone in this block, which runs in the main thread, when nobody reads stdout any longer."""
    watched = _pipe_of_stdout()
    if watched is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    stop_read, stop_write = os.pipe()
    before = signal.signal(signal.SIGPIPE, _raise_reader_gone)
    thread = threading.Thread(target=_watch, args=(watched, stop_read), name="reader-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(stop_write)
        thread.join()
        os.close(stop_read)
        signal.signal(signal.SIGPIPE, before)


def _watch(watched: int, stop: int) -> None:
    poll = select.poll()
    # Errors are always reported. The end of a pipe without readers is such an error.
    poll.register(watched, 0)
    poll.register(stop, 0)
    if all(fd != stop for fd, _ in poll.poll()):
        # A signal to the main thread interrupts the system call that it waits in.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGPIPE)


def _raise_reader_gone(_number: int, _frame: FrameType | None) -> None:
    raise ReaderGone


def _pipe_of_stdout() -> int | None:
    """Return the descriptor of stdout if it is a pipe or a socket. Files and terminals have no reader that leaves."""
    try:
        fd = sys.stdout.fileno()
        mode = os.fstat(fd).st_mode
    except (OSError, ValueError):
        return None
    return fd if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
