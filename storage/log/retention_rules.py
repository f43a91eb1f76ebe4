"""The rules of retention: computes the new log start offset. This module does no I/O and reads no clock.

The limits of age and size remove whole segments, as in Kafka: oldest first, up to the first one to keep. A segment is
as old as its newest record. A segment is removed by size only if the rest of the log is not smaller than
``retention.bytes``. The limit of the number of records is exact: the newest records are kept, as in a ring buffer.

The limits are independent. The tightest one applies. Records at or above the high watermark are always kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

NO_LIMIT: Final = -1
NEVER: Final = 2**63


class RetainedSegment(Protocol):
    """The properties of a segment that retention needs. The last segment of a log is the active one."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def newest_ms(self) -> int:
        """The largest record timestamp, else the time at which the last record was written; negative if unknown.

        Retention uses this for the oldest segments only, up to the first one that it keeps, because the value may have
        to be read from a file.
        """
        ...


class RetentionLimits(NamedTuple):
    """The retention settings of a topic; negative means no limit.

    ``is_deleted``: the cleanup policy includes ``delete``. Otherwise the limits of age and size are ignored.
    """

    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT
    retention_messages: int = NO_LIMIT
    is_deleted: bool = True


class LogExtent(NamedTuple):
    log_start_offset: int
    log_end_offset: int
    high_watermark: int


def retained_start(segments: Sequence[RetainedSegment], extent: LogExtent, limits: RetentionLimits, now_ms: int) -> int:
    """The new log start offset; never below the current one, never above the high watermark.

    If not even the last segment is kept, it is the log end offset.
    """
    start = message_limit_start(extent.log_start_offset, extent.high_watermark, limits.retention_messages)
    if not limits.is_deleted:
        return start
    # Segments entirely below the log start offset are ignored: they only wait for their removal.
    kept = [at for at in range(len(segments)) if _end(segments, at, extent) > start]
    return max(
        start,
        _unexpired_start(segments, kept, extent, limits.retention_ms, now_ms),
        _sized_start(segments, kept, extent, limits.retention_bytes),
    )


def message_limit_start(log_start_offset: int, high_watermark: int, retention_messages: int) -> int:
    """The log start offset that leaves at most ``retention_messages`` readable records."""
    if retention_messages < 0:
        return log_start_offset
    return max(log_start_offset, high_watermark - retention_messages)


class MessageLimitedLog(Protocol):
    log_start_offset: int


def apply_message_limit(log: MessageLimitedLog, high_watermark: int, retention_messages: int) -> None:
    """Keep only the last ``retention_messages`` readable records. Called whenever the high watermark rises.

    The log start offset changes only in memory. After a restart the same rule computes the same offset.
    """
    start = high_watermark - retention_messages
    if start > log.log_start_offset:
        log.log_start_offset = start


def _unexpired_start(
    segments: Sequence[RetainedSegment], kept: Sequence[int], extent: LogExtent, retention_ms: int, now_ms: int
) -> int:
    start = extent.log_start_offset
    if retention_ms < 0:
        return start
    for at in kept:
        newest_ms = segments[at].newest_ms
        end = _end(segments, at, extent)
        if newest_ms < 0 or now_ms - newest_ms <= retention_ms or end > extent.high_watermark:
            break
        start = end
    return start


def _sized_start(
    segments: Sequence[RetainedSegment], kept: Sequence[int], extent: LogExtent, retention_bytes: int
) -> int:
    start = extent.log_start_offset
    if retention_bytes < 0:
        return start
    excess_bytes = sum(segments[at].size_bytes for at in kept) - retention_bytes
    for at in kept:
        excess_bytes -= segments[at].size_bytes
        end = _end(segments, at, extent)
        if excess_bytes < 0 or end > extent.high_watermark:
            break
        start = end
    return start


def _end(segments: Sequence[RetainedSegment], at: int, extent: LogExtent) -> int:
    """The end offset of a segment: the base offset of the next one, since compaction may remove its last records."""
    return segments[at + 1].base_offset if at + 1 < len(segments) else extent.log_end_offset


def next_check_ms(oldest_ms: int, limits: RetentionLimits) -> int:
    """The time at which retention can next remove records of a log without appends.

    ``oldest_ms`` is the :attr:`RetainedSegment.newest_ms` of the oldest segment.
    """
    if not limits.is_deleted or limits.retention_ms < 0:
        return NEVER
    return oldest_ms + limits.retention_ms + 1
