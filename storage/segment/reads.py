"""What a read hands out: a view, where to go on, and how to find out whether touching it would wait for the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.segment_reading import ReadableSegment


class LogRead:
    """Whole batches of one segment, as a view of the page cache.

    ``next_offset`` is where the next read continues. Before the view is written to a socket from the event loop, ask
    :meth:`is_warm`; if it is not, run :meth:`warm_up` in a thread first.
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
        """Whether the bytes are in memory, as far as can be told without waiting."""
        segment = self.segment
        return segment is None or segment.is_warm(self.position, self.position + len(self.view))

    def warm_up(self) -> None:
        """Read the bytes into the page cache; waits for the disk, so it belongs in a thread."""
        if self.segment is not None:
            self.segment.warm_up(self.position, self.position + len(self.view))
