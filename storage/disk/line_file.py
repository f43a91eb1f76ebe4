"""An append-only file of lines that can be rewritten while lines are added.

The logs' thread adds lines. For a rewrite, another thread writes the new file and renames it. Meanwhile each line is
written to both files. So after a kill, the file that has the final name, old or new, holds all lines. The logs'
thread does not wait for the rename.
"""

from __future__ import annotations

import threading
from typing import Final

from storage.disk.files import Files

TEMPORARY_SUFFIX: Final = ".new"


class LineFile:
    """An append-only file of lines. ``lock`` guards descriptors and counts. Syncs and renames run without the lock."""

    __slots__ = ("_files", "_next_fd", "_next_size_bytes", "fd", "line_count", "lock", "path", "size_bytes")

    def __init__(self, path: str, files: Files) -> None:
        self.path = path
        self._files = files
        self.lock = threading.Lock()
        self.fd = -1
        self.size_bytes = 0
        self.line_count = 0
        self._next_fd = -1
        self._next_size_bytes = 0

    def add(self, line: bytes) -> None:
        """Append a line. The caller holds ``lock``. After an ``OSError`` the line is not stored and may be retried."""
        self._files.write_all(self.fd, line, self.size_bytes)
        if self._next_fd >= 0:
            self._files.write_all(self._next_fd, line, self._next_size_bytes)
            self._next_size_bytes += len(line)
        self.size_bytes += len(line)
        self.line_count += 1

    def rewrite(self, content: bytes, line_count: int, copied_bytes: int, copied_lines: int, *, sync: bool) -> bool:
        """Replace the first ``copied_bytes`` (``copied_lines`` lines) by ``content`` (``line_count`` lines).

        Call it in any thread except the logs' thread, one call at a time. Returns False if the file was closed
        meanwhile. Raises ``OSError``.
        """
        temporary = self.path + TEMPORARY_SUFFIX
        fd = self._files.create(temporary)
        is_switched = False
        try:
            self._files.write_all(fd, content, 0)
            if sync:
                self._files.fsync(fd)
            with self.lock:
                if self.fd < 0:
                    return False
                added = self._files.pread(self.fd, self.size_bytes - copied_bytes, copied_bytes)
                self._files.write_all(fd, added, len(content))
                self._next_fd, self._next_size_bytes = fd, len(content) + len(added)
            self._files.rename(temporary, self.path)
            with self.lock:
                if self.fd >= 0:
                    is_switched = True
                    self.fd, fd = fd, self.fd
                    self.size_bytes = self._next_size_bytes
                    self.line_count += line_count - copied_lines
            return is_switched
        finally:
            with self.lock:
                self._next_fd = -1
            self._files.close(fd)

    def close(self) -> None:
        with self.lock:
            fd, self.fd = self.fd, -1
        if fd >= 0:
            self._files.close(fd)
