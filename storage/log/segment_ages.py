"""How old the segments of a log are, told so that a thread can find out: it stands in files that nobody has open.

An :class:`AgingLog` is what retention needs to know of a log, taken down at one moment. That moment is on the log's
thread for an open one; a log that is not open does not change, so its folder tells. The times of its segments are read
from their files only when somebody asks, which is for a thread to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from storage.checkpoint import CheckpointFile
from storage.copies import sealed_segment
from storage.errors import StorageError, disk_errors
from storage.files import Files
from storage.log import Log
from storage.retention import NEVER, LogExtent, RetentionLimits, next_look_ms, retained_start
from storage.settings import LogSettings

_SEGMENT_NAME: Final = re.compile(r"(\d{20})\.log")
_UNKNOWN_TIME: Final = -1


class _Folder(NamedTuple):
    directory: str
    files: Files
    index_interval_bytes: int


class AgingSegment:
    """A segment whose time, if it is not at hand, is looked up when it is first asked for.

    ``written_ms`` is when its last record came at the latest, by the broker's clock: it counts for a segment whose
    records have no times.
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
        """Whether its time is at hand."""
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
            self._written_ms = _UNKNOWN_TIME  # nobody can tell how old it is, so it stays
            return _UNKNOWN_TIME
        finally:
            copy.close()


class Verdict(NamedTuple):
    """Where the log is to begin; ``next_look_ms`` is when it can next lose records if nobody appends to it."""

    log_start_offset: int
    has_leftovers: bool
    next_look_ms: int


class AgingLog(NamedTuple):
    extent: LogExtent
    segments: Sequence[AgingSegment]

    def is_known(self, limits: RetentionLimits) -> bool:
        """Whether nothing has to be read to judge it by these limits."""
        return next_look_ms(0, limits) == NEVER or all(segment.is_known for segment in self.segments)

    def judge(self, limits: RetentionLimits, now_ms: int) -> Verdict:
        """Unless everything is known it waits for the disk, so it belongs in a thread."""
        start = retained_start(self.segments, self.extent, limits, now_ms)
        return Verdict(start, self.has_leftovers, self._next_look_ms(limits, now_ms))

    @property
    def has_leftovers(self) -> bool:
        """Whether a segment lies wholly below the log start and only waits to be removed."""
        if not self.segments:
            return False
        end = self.segments[1].base_offset if len(self.segments) > 1 else self.extent.log_end_offset
        return end <= self.extent.log_start_offset

    def _next_look_ms(self, limits: RetentionLimits, now_ms: int) -> int:
        if not self.segments or next_look_ms(0, limits) == NEVER:
            return NEVER
        oldest_ms = self.segments[0].newest_ms
        return next_look_ms(oldest_ms, limits) if oldest_ms >= 0 else now_ms


def age_open_log(log: Log, high_watermark: int, files: Files) -> AgingLog:
    """Called by the log's thread; nothing is read."""
    folder = _Folder(log.directory, files, log.settings.index_interval_bytes)
    segments = list(log.segments())
    written = _written([segment.created_ms for segment in segments], log.settings.segment_ms)
    aging = [
        AgingSegment(
            folder,
            segment.base_offset,
            segment.next_offset,
            segment.size_bytes,
            written_ms,
            # What has no seal on file yet has its time in memory.
            segment.max_timestamp if not segment.is_sealed or segment.is_seal_pending else None,
            segment.holes,
        )
        for segment, written_ms in zip(segments, written, strict=True)
    ]
    return AgingLog(LogExtent(log.log_start_offset, log.log_end_offset, high_watermark), aging)


def age_closed_log(directory: str, files: Files, settings: LogSettings) -> AgingLog | None:
    """What the folder tells; None when it was not put away cleanly, so that it has to be opened. Called in a thread."""
    with disk_errors(f"look at {directory}"):
        checkpoint = CheckpointFile(directory, files).read()
        if checkpoint is None or not checkpoint.is_clean:
            return None
        matches = filter(None, map(_SEGMENT_NAME.fullmatch, files.listdir(directory)))
        sizes = sorted((int(match[1]), files.size_of(os.path.join(directory, match[0]))) for match in matches)
    folder = _Folder(directory, files, settings.index_interval_bytes)
    bases = [base_offset for base_offset, _ in sizes]
    created = [checkpoint.created_ms if base == checkpoint.segment_base else 0 for base in bases]
    ends = [*bases, checkpoint.offset][1:]
    aging = [
        AgingSegment(
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
    return AgingLog(LogExtent(checkpoint.log_start_offset, checkpoint.offset, checkpoint.offset), aging)


def _written(created: Sequence[int], segment_ms: int) -> Sequence[int]:
    """When the last record of each segment came at the latest: before the next segment was made."""
    return list(_written_backwards(created, segment_ms))[::-1]


def _written_backwards(created: Sequence[int], segment_ms: int) -> Iterator[int]:
    # The last segment would have been closed after segment.ms.
    written_ms = created[-1] + segment_ms if created and created[-1] > 0 else _UNKNOWN_TIME
    for created_ms in reversed(created):
        yield written_ms
        if created_ms > 0:
            written_ms = created_ms
