"""Disk reserve: space kept for operations that free space. Without it nothing could be deleted on a full disk.

Before files of old records are removed, a checkpoint has to record the removal durably. Before files of a topic are
removed, the catalogue has to record the deletion. On a disk without a free block neither can be written. So each data
directory has a file of allocated blocks without content. :func:`run_with_reserve` releases these blocks, a piece at a
time. :meth:`DiskReserve.restore` allocates them again when there is space.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from storage.disk.files import Files
from storage.errors import DiskFailure

RESERVE_NAME: Final = "disk_reserve"
# The reserve is released in this many pieces. Other writers may use a released piece, so one may not be enough.
PIECES: Final = 8
# Bytes per write, if the file system cannot reserve space.
FILL_BYTES: Final = 1024 * 1024
FULL_DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

R = TypeVar("R")


class DiskReserve:
    """The reserve of one data directory, for any thread. Its file stays open, so a release needs no new descriptor."""

    def __init__(self, data_dir: str, files: Files, size_bytes: int) -> None:
        self.data_dir = data_dir
        self.size_bytes = size_bytes
        self._files = files
        self._lock = threading.Lock()
        self._fd = -1
        self._is_closed = True
        # The current size of the file.
        self.kept_bytes = 0

    @property
    def is_whole(self) -> bool:
        return self.kept_bytes >= self.size_bytes

    def open(self) -> None:
        """Allocate the reserve if there is space. A larger existing file is truncated to the configured size."""
        self._is_closed = False
        if self.size_bytes:
            self._files.add_reserve(self.data_dir, self.release)
            self.restore()
            return
        with suppress(OSError):
            self._files.unlink(os.path.join(self.data_dir, RESERVE_NAME))

    def close(self) -> None:
        """Close the file. The space stays reserved."""
        self._files.remove_reserve(self.data_dir)
        with self._lock:
            self._is_closed = True
            fd, self._fd = self._fd, -1
        if fd >= 0:
            self._files.close(fd)

    def restore(self) -> bool:
        """Allocate the missing part if that leaves at least the reserve's size free. Returns :attr:`is_whole`."""
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
            self._files.truncate(self._fd, self.kept_bytes)  # a part may be allocated
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

    def release(self) -> bool:
        """Release a piece of the reserve. Returns False if none is left."""
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
    """Whether the error means that the disk, or this user's quota, is full."""
    return (error.errno if isinstance(error, OSError) else error.error_number) in FULL_DISK_ERRORS


def run_with_reserve(files: Files, path: str, work: Callable[[], R]) -> R:
    """Run ``work``, which will free space on the disk of ``path``. On a full disk, release the disk reserve for it.

    ``work`` is repeated after each released piece of the reserve. Its error is raised when no piece is left.
    """
    while True:
        try:
            return work()
        except (OSError, DiskFailure) as error:
            if not is_full(error) or not files.free_reserve(path):
                raise
