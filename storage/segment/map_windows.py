"""Windows: read-only memory maps of those parts of one file that readers read.

There is no map of the whole file. Such a map would have to be replaced each time the file is extended. That would unmap
all pages that readers have touched, which takes ten milliseconds per gigabyte on the event loop. A window covers the
bytes that a reader reads next. So a tailing reader creates one window per extension, and a reader that catches up
creates one per :data:`WINDOW_BYTES`. A window is unmapped when no slice refers to it. Used by one thread.
"""

from __future__ import annotations

import mmap
from typing import Final

from storage.disk.files import Files

WINDOW_BYTES: Final = 64 * 1024 * 1024
# The most windows of one sealed segment. Each window holds one descriptor.
WINDOWS_MAX: Final = 4
# For the active segment, which every partition has: one window for the tail and one for a reader that catches up.
GROWING_WINDOWS_MAX: Final = 2

EMPTY: Final = memoryview(b"")

_PAGE_MASK: Final = ~(mmap.ALLOCATIONGRANULARITY - 1)


class MapWindows:
    """The newest windows of one file, newest first."""

    __slots__ = ("_files", "_windows")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._windows: list[tuple[int, int, memoryview]] = []

    def find(self, start: int, end: int) -> tuple[int, memoryview] | None:
        """(start, view) of a window that covers these bytes."""
        for window_start, window_end, view in self._windows:
            if window_start <= start and end <= window_end:
                return window_start, view
        return None

    def open(self, fd: int, start: int, end: int, file_end: int, *, is_growing: bool) -> tuple[int, memoryview]:
        """(start, view) of a new window that covers these bytes and extends towards ``file_end``."""
        window_start = start & _PAGE_MASK
        window_end = min(max(end, window_start + WINDOW_BYTES), file_end)
        view = self._files.map_readonly(fd, window_start, window_end - window_start)
        self._files.forbid_readahead(view)
        del self._windows[(GROWING_WINDOWS_MAX if is_growing else WINDOWS_MAX) - 1 :]
        self._windows.insert(0, (window_start, window_end, view))
        return window_start, view

    def clear(self) -> None:
        self._windows.clear()
