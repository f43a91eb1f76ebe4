"""The twin of :class:`storage.disk.files.Files` of a process that runs out of file descriptors."""

import errno
import os

from storage.disk.files import Files


class ScarceFiles(Files):
    """Real files; after `allow(n)` the next `n` calls that take a descriptor work, and all later ones fail."""

    def __init__(self, error_number: int = errno.EMFILE) -> None:
        self._error_number = error_number
        self._left: int | None = None
        self.refused_count = 0

    def allow(self, count: int | None) -> None:
        """None: descriptors are no longer scarce."""
        self._left = count

    def _take(self, path: str) -> None:
        if self._left is None:
            return
        if self._left <= 0:
            self.refused_count += 1
            raise OSError(self._error_number, os.strerror(self._error_number), path)
        self._left -= 1

    def create(self, path: str) -> int:
        self._take(path)
        return super().create(path)

    def open_write(self, path: str) -> int:
        self._take(path)
        return super().open_write(path)

    def open_read(self, path: str) -> int:
        self._take(path)
        return super().open_read(path)

    def open_dir(self, path: str) -> int:
        self._take(path)
        return super().open_dir(path)

    def duplicate(self, fd: int) -> int:
        self._take(f"descriptor {fd}")
        return super().duplicate(fd)

    def listdir(self, path: str) -> list[str]:
        self._take(path)
        return super().listdir(path)
