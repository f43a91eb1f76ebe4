"""The files of a server whose disk is slow or fails when a test says so."""

import errno
import os
import threading

from storage.disk.files import BytesLike, Files

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}


class FaultyFiles(Files):
    """Real files. Syncs can be slow; syncs, writes and allocations can fail."""

    def __init__(self) -> None:
        self._sync_delay_s = 0.0
        self._error: int | None = None
        # Ends the waits of slow syncs when the disk is repaired.
        self._repaired = threading.Event()

    def slow_down(self, seconds: float) -> None:
        if not seconds > 0:
            raise ValueError(f"seconds must be positive, got {seconds}")
        self._repaired.clear()
        self._sync_delay_s = seconds

    def fail(self, error: str) -> None:
        if error not in ERRORS:
            raise ValueError(f'the error of a failing disk is one of {", ".join(ERRORS)}, got "{error}"')
        self._error = ERRORS[error]

    def repair(self) -> None:
        self._sync_delay_s, self._error = 0.0, None
        self._repaired.set()

    def fsync(self, fd: int) -> None:
        self._before_sync()
        super().fsync(fd)

    def fdatasync(self, fd: int) -> None:
        self._before_sync()
        super().fdatasync(fd)

    def syncfs(self, path: str) -> None:
        self._before_sync()
        super().syncfs(path)

    def pwrite(self, fd: int, data: BytesLike, position: int) -> int:  # type: ignore[override]
        self._check()
        return os.pwrite(fd, data, position)

    def fallocate(self, fd: int, position: int, size: int) -> None:
        self._check()
        super().fallocate(fd, position, size)

    def _before_sync(self) -> None:
        if self._sync_delay_s:
            self._repaired.wait(self._sync_delay_s)
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise OSError(self._error, os.strerror(self._error))
