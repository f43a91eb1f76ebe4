"""Space that is kept for the work which frees space: on a full disk nothing could be deleted without it.

Before the files of old records go, a checkpoint has to say durably that they are gone; before a topic's files go, the
catalogue has to. On a disk without a single free block neither can be written. So each data directory has a file of
allocated blocks that holds nothing. :func:`freeing` gives it up, a piece at a time, and :meth:`DiskReserve.restore`
takes it again when there is space.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from storage.errors import DiskFailure
from storage.files import Files

RESERVE_NAME: Final = "disk_reserve"
# Given up in this many pieces: whoever else waits for space may take what the first one frees.
PIECES: Final = 8
# Written at a time where the file system cannot reserve space.
FILL_BYTES: Final = 1024 * 1024
FULL_DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

R = TypeVar("R")


class DiskReserve:
    """The reserve of one data directory; its file stays open, so giving up needs no descriptor. For any thread."""

    def __init__(self, data_dir: str, files: Files, size_bytes: int) -> None:
        self.data_dir = data_dir
        self.size_bytes = size_bytes
        self._files = files
        self._lock = threading.Lock()
        self._fd = -1
        self._is_closed = True
        # What the file holds at present.
        self.kept_bytes = 0

    @property
    def is_whole(self) -> bool:
        return self.kept_bytes >= self.size_bytes

    def open(self) -> None:
        """Take the reserve, as far as there is space for it. The size of one that is there is made to fit."""
        self._is_closed = False
        if self.size_bytes:
            self._files.add_reserve(self.data_dir, self.give_up)
            self.restore()
            return
        with suppress(OSError):
            self._files.unlink(os.path.join(self.data_dir, RESERVE_NAME))

    def close(self) -> None:
        """Let go of the file; the space stays reserved."""
        self._files.remove_reserve(self.data_dir)
        with self._lock:
            self._is_closed = True
            fd, self._fd = self._fd, -1
        if fd >= 0:
            self._files.close(fd)

    def restore(self) -> bool:
        """Take again what is missing, once the disk has more than that to spare. True: the reserve is whole."""
        with self._lock, suppress(OSError):
            if not self._is_closed and not self.is_whole:
                self._open_file()
                missing_bytes = self.size_bytes - self.kept_bytes
                if self._files.space(self.data_dir)[1] >= missing_bytes + self.size_bytes:
                    self._take(missing_bytes)
        return self.is_whole

    def _open_file(self) -> None:
        if self._fd >= 0:
            return
        fd = self._files.open_write(os.path.join(self.data_dir, RESERVE_NAME))
        try:
            kept_bytes = min(self._files.size(fd), self.size_bytes)
            self._files.truncate(fd, kept_bytes)
        except OSError:
            self._files.close(fd)
            raise
        self._fd, self.kept_bytes = fd, kept_bytes

    def _take(self, missing_bytes: int) -> None:
        if not missing_bytes:
            return
        try:
            self._fill(missing_bytes)
        except OSError:
            self._files.truncate(self._fd, self.kept_bytes)  # it may have got a part
            raise
        self.kept_bytes += missing_bytes

    def _fill(self, missing_bytes: int) -> None:
        try:
            self._files.fallocate(self._fd, self.kept_bytes, missing_bytes)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            zeros = bytes(min(missing_bytes, FILL_BYTES))
            for start in range(0, missing_bytes, FILL_BYTES):
                self._files.write_all(self._fd, zeros[: missing_bytes - start], self.kept_bytes + start)

    def give_up(self) -> bool:
        """Free a piece of it; False when nothing is left."""
        with self._lock:
            if self._fd < 0 or not self.kept_bytes:
                return False
            left_bytes = max(self.kept_bytes - max(self.size_bytes // PIECES, 1), 0)
            try:
                self._files.truncate(self._fd, left_bytes)
            except OSError:
                return False
            self.kept_bytes = left_bytes
            return True


def is_full(error: OSError | DiskFailure) -> bool:
    """Whether the disk, or what this user may have of it, is full."""
    return (error.errno if isinstance(error, OSError) else error.error_number) in FULL_DISK_ERRORS


def freeing(files: Files, path: str, work: Callable[[], R]) -> R:
    """Run ``work``, which leads to more free space where ``path`` is: on a full disk, at the expense of the reserve.

    It is run again after each piece that was given up, and raises what ``work`` raises when nothing is left.
    """
    while True:
        try:
            return work()
        except (OSError, DiskFailure) as error:
            if not is_full(error) or not files.make_way(path):
                raise
