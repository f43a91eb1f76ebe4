"""The result of a read: a view of whole batches, the next offset, and whether the view's pages are in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.segment.reading import ReadableSegment


class LogRead:
    """Whole batches of one segment, as a view of the page cache.

    The next read continues at ``next_offset``. Before the view is written to a socket from the event loop, check
    :meth:`is_warm`. If it returns False, run :meth:`warm_up` in a thread first.
    """

    __slots__ = ("next_offset", "position", "segment", "view")

    def __init__(self, view: memoryview, next_offset: int, segment: ReadableSegment | None, position: int) -> None:
        self.view = view
        self.next_offset = next_offset
        self.segment = segment
        self.position = position

    @property
    def size_bytes(self) -> int:
        return len(self.view)

    def is_warm(self) -> bool:
        """Whether the bytes are in memory, as far as the kernel can report it without waiting."""
        segment = self.segment
        return segment is None or segment.is_warm(self.position, self.position + len(self.view))

    def warm_up(self) -> None:
        """Read the bytes into the page cache. Waits for the disk, so it is called in a thread."""
        if self.segment is not None:
            self.segment.warm_up(self.position, self.position + len(self.view))
