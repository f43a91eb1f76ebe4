"""A segment once more, for another thread: the same files as far as they are written now, read-only.

A copy has descriptors, maps and read positions of its own, which nobody else closes or moves. Of the original it
shares only an index that is not on file yet, which anybody may read. Whoever made it closes it.
"""

from __future__ import annotations

from collections.abc import Callable

from storage.files import Files
from storage.segment import LogSegment
from storage.settings import LogSettings


def copy_segment(segment: LogSegment, directory: str, files: Files, settings: LogSettings) -> LogSegment:
    """Made by the log's thread: what is appended later lies behind the copy's end."""
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
    """A segment known by its file alone, to which nobody appends."""
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
    raise AssertionError("a copy leaves nothing to do")
