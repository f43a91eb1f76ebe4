"""A file of lines that only grows, until a shorter one takes its place while lines are still added.

The logs' thread adds lines. Another thread writes the new file and renames it. Meanwhile each line goes into both
files, so that whichever of them has the name after a kill holds all lines, and the logs' thread does not wait for the
rename.
"""

from __future__ import annotations

import threading
from typing import Final

from storage.files import Files

TEMPORARY_SUFFIX: Final = ".new"


class LineFile:
    """``lock`` guards the descriptors and the counts. It is held for moments while the server runs."""

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
        """With ``lock`` held. Raises ``OSError``: then the line does not count, and may be added again."""
        self._files.write_all(self.fd, line, self.size_bytes)
        if self._next_fd >= 0:
            self._files.write_all(self._next_fd, line, self._next_size_bytes)
            self._next_size_bytes += len(line)
        self.size_bytes += len(line)
        self.line_count += 1

    def shorten(self, content: bytes, line_count: int, copied_bytes: int, copied_lines: int, *, sync: bool) -> bool:
        """Put ``content``, of ``line_count`` lines, in the place of the first ``copied_bytes``, of ``copied_lines``.

        In any thread but the logs' own, one at a time. False if the file was closed meanwhile; raises ``OSError``.
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
