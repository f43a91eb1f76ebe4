"""The ages of the segments of a log, for retention. A thread can read them from files, also for closed logs.

A :class:`LogAges` is a snapshot of the facts about a log that retention needs. For an open log, the snapshot is taken
on the log's thread. For a closed log, which does not change, the snapshot is read from the log's folder. The timestamps
of the segments are read from their files on first use, in a thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from storage.disk.files import Files
from storage.errors import StorageError, disk_errors
from storage.log.log import Log
from storage.log.retention_rules import NEVER, LogExtent, RetentionLimits, next_check_ms, retained_start
from storage.log.settings import LogSettings
from storage.recovery.checkpoint import CheckpointFile
from storage.segment.read_only_copy import sealed_segment

_SEGMENT_NAME: Final = re.compile(r"(\d{20})\.log")
_UNKNOWN_TIME: Final = -1


class _Folder(NamedTuple):
    directory: str
    files: Files
    index_interval_bytes: int


class SegmentAge:
    """A segment. Its max timestamp is read from its file on first use, unless the caller passes it.

    ``written_ms`` is an upper bound of the time at which its last record was written, by the broker's clock. It is used
    if the records have no timestamps.
    """

    __slots__ = ("_folder", "_holes", "_max_timestamp", "_next_offset", "_written_ms", "base_offset", "size_bytes")

    def __init__(
        self,
        folder: _Folder,
        base_offset: int,
        next_offset: int,
        size_bytes: int,
        written_ms: int,
        max_timestamp: int | None = None,
        holes: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self._folder = folder
        self._next_offset = next_offset
        self._written_ms = written_ms
        self._max_timestamp = max_timestamp
        self._holes = holes
        self.base_offset = base_offset
        self.size_bytes = size_bytes

    @property
    def is_known(self) -> bool:
        """Whether the max timestamp is in memory."""
        return self._max_timestamp is not None

    @property
    def newest_ms(self) -> int:
        if self._max_timestamp is None:
            self._max_timestamp = self._read()
        return self._max_timestamp if self._max_timestamp >= 0 else self._written_ms

    def _read(self) -> int:
        directory, files, interval_bytes = self._folder
        copy = sealed_segment(directory, self.base_offset, self._next_offset, self.size_bytes, files, interval_bytes)
        copy.holes = self._holes
        try:
            return copy.max_timestamp
        except StorageError:
            self._written_ms = _UNKNOWN_TIME  # the age of the segment is unknown, so retention keeps it
            return _UNKNOWN_TIME
        finally:
            copy.close()


class RetentionResult(NamedTuple):
    """The new log start offset that retention has computed.

    ``has_leftovers``: segments below the current log start offset wait for removal. Without appends, retention can next
    remove records at ``next_check_ms``.
    """

    log_start_offset: int
    has_leftovers: bool
    next_check_ms: int


class LogAges(NamedTuple):
    """A snapshot of a log: its offsets and the ages of its segments."""

    extent: LogExtent
    segments: Sequence[SegmentAge]

    def is_known(self, limits: RetentionLimits) -> bool:
        """Whether :meth:`apply` with these limits reads no files."""
        return next_check_ms(0, limits) == NEVER or all(segment.is_known for segment in self.segments)

    def apply(self, limits: RetentionLimits, now_ms: int) -> RetentionResult:
        """Apply the limits. Waits for the disk unless :meth:`is_known` is true, so it is called in a thread."""
        start = retained_start(self.segments, self.extent, limits, now_ms)
        return RetentionResult(start, self.has_leftovers, self._next_check_ms(limits, now_ms))

    @property
    def has_leftovers(self) -> bool:
        """Whether a segment is entirely below the log start offset and waits for its removal."""
        if not self.segments:
            return False
        end = self.segments[1].base_offset if len(self.segments) > 1 else self.extent.log_end_offset
        return end <= self.extent.log_start_offset

    def _next_check_ms(self, limits: RetentionLimits, now_ms: int) -> int:
        if not self.segments or next_check_ms(0, limits) == NEVER:
            return NEVER
        oldest_ms = self.segments[0].newest_ms
        return next_check_ms(oldest_ms, limits) if oldest_ms >= 0 else now_ms


def open_log_ages(log: Log, high_watermark: int, files: Files) -> LogAges:
    """Take a snapshot of an open log, on the log's thread. Reads no files."""
    folder = _Folder(log.directory, files, log.settings.index_interval_bytes)
    segments = list(log.segments())
    written = _written([segment.created_ms for segment in segments], log.settings.segment_ms)
    ages = [
        SegmentAge(
            folder,
            segment.base_offset,
            segment.next_offset,
            segment.size_bytes,
            written_ms,
            # A segment without a seal on disk has its max timestamp in memory.
            segment.max_timestamp if not segment.is_sealed or segment.is_seal_pending else None,
            segment.holes,
        )
        for segment, written_ms in zip(segments, written, strict=True)
    ]
    return LogAges(LogExtent(log.log_start_offset, log.log_end_offset, high_watermark), ages)


def closed_log_ages(directory: str, files: Files, settings: LogSettings) -> LogAges | None:
    """A snapshot of a closed log, read from its folder, in any thread; None if the log was not closed cleanly."""
    with disk_errors(f"read {directory}"):
        checkpoint = CheckpointFile(directory, files).read()
        if checkpoint is None or not checkpoint.is_clean:
            return None
        matches = filter(None, map(_SEGMENT_NAME.fullmatch, files.listdir(directory)))
        sizes = sorted((int(match[1]), files.size_of(os.path.join(directory, match[0]))) for match in matches)
    folder = _Folder(directory, files, settings.index_interval_bytes)
    bases = [base_offset for base_offset, _ in sizes]
    created = [checkpoint.created_ms if base == checkpoint.segment_base else 0 for base in bases]
    ends = [*bases, checkpoint.offset][1:]
    ages = [
        SegmentAge(
            folder,
            base_offset,
            end,
            size_bytes,
            written_ms,
            checkpoint.max_timestamp if base_offset == checkpoint.segment_base else None,
        )
        for (base_offset, size_bytes), end, written_ms in zip(
            sizes, ends, _written(created, settings.segment_ms), strict=True
        )
    ]
    return LogAges(LogExtent(checkpoint.log_start_offset, checkpoint.offset, checkpoint.offset), ages)


def _written(created: Sequence[int], segment_ms: int) -> Sequence[int]:
    """Upper bounds of the time of each segment's last record: the creation time of the next segment."""
    return list(_written_backwards(created, segment_ms))[::-1]


def _written_backwards(created: Sequence[int], segment_ms: int) -> Iterator[int]:
    # An append later than segment.ms after the creation would have rolled the last segment.
    written_ms = created[-1] + segment_ms if created and created[-1] > 0 else _UNKNOWN_TIME
    for created_ms in reversed(created):
        yield written_ms
        if created_ms > 0:
            written_ms = created_ms
