"""Read-only maps of parts of one file, made where somebody reads.

Not one map of the whole file: replacing that one at each extension would unmap everything readers ever touched, which
takes ten milliseconds per gigabyte, on the event loop. A window covers what a reader goes through next, so a tailing
reader makes one per extension and a reader that catches up one per :data:`WINDOW_BYTES`. Windows are dropped by
reference; a slice keeps its own window alive. Used by one thread.
"""

from __future__ import annotations

import mmap
from typing import Final

from storage.files import Files

WINDOW_BYTES: Final = 64 * 1024 * 1024
# Enough for a few readers; each window holds one descriptor.
WINDOWS_MAX: Final = 4
# Every partition has a file that still grows, so there it is the tail and one reader behind it.
GROWING_WINDOWS_MAX: Final = 2

EMPTY: Final = memoryview(b"")

_PAGE_MASK: Final = ~(mmap.ALLOCATIONGRANULARITY - 1)


class MapWindows:
    """The last few windows, the newest first."""

    __slots__ = ("_files", "_windows")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._windows: list[tuple[int, int, memoryview]] = []

    def find(self, start: int, end: int) -> tuple[int, memoryview] | None:
        """(where the window begins, its view) of a window that covers these bytes."""
        for window_start, window_end, view in self._windows:
            if window_start <= start and end <= window_end:
                return window_start, view
        return None

    def open(self, fd: int, start: int, end: int, file_end: int, *, is_growing: bool) -> tuple[int, memoryview]:
        """A new window that covers these bytes and goes on towards ``file_end``."""
        window_start = start & _PAGE_MASK
        window_end = min(max(end, window_start + WINDOW_BYTES), file_end)
        view = self._files.map_readonly(fd, window_start, window_end - window_start)
        self._files.forbid_readahead(view)
        del self._windows[(GROWING_WINDOWS_MAX if is_growing else WINDOWS_MAX) - 1 :]
        self._windows.insert(0, (window_start, window_end, view))
        return window_start, view

    def clear(self) -> None:
        self._windows.clear()
