"""A read-only copy of a segment object for another thread: the same files, up to their current end.

A copy has its own descriptors, maps and read positions. If the index is not on disk yet, the copy shares the index
object, which any thread may read. The caller that creates a copy has to close it.
"""

from __future__ import annotations

from collections.abc import Callable

from storage.disk.files import Files
from storage.log.settings import LogSettings
from storage.segment.segment import LogSegment


def copy_segment(segment: LogSegment, directory: str, files: Files, settings: LogSettings) -> LogSegment:
    """Create a read-only copy of ``segment``, on the log's thread. The copy does not have later appends."""
    copy = sealed_segment(
        directory, segment.base_offset, segment.next_offset, segment.size_bytes, files, settings.index_interval_bytes
    )
    copy.holes = segment.holes
    if not segment.is_sealed or segment.is_seal_pending:
        copy.adopt(segment.index, segment.max_timestamp)
    return copy


def sealed_segment(
    directory: str, base_offset: int, next_offset: int, size_bytes: int, files: Files, index_interval_bytes: int
) -> LogSegment:
    """A segment object for a file that takes no appends. Nothing is read yet."""
    return LogSegment.existing(
        directory,
        base_offset,
        files,
        _no_work,
        limit_bytes=size_bytes,
        index_interval_bytes=index_interval_bytes,
        next_offset=next_offset,
        size_bytes=size_bytes,
        is_sealed=True,
    )


def _no_work(work: Callable[[], None]) -> None:
    raise AssertionError("a read-only copy has no background work")
