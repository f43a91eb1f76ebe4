"""Which records may go: the rules of retention, without a log, a clock or a file.

Kafka's rules for age and size: whole segments, oldest first, up to the first one that stays. A segment is as old as
its newest record. The log stays at least as large as ``retention.bytes``: a segment goes only if what is left is not
below it. The bound on the number of records is exact: the newest ones stay, to the record, as in a ring.

The limits are independent; the tightest one wins. Whatever they say, records at or above the high watermark stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

NO_LIMIT: Final = -1
NEVER: Final = 2**63


class RetainedSegment(Protocol):
    """What retention asks of a segment. The last one of a log is the one that takes appends."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def newest_ms(self) -> int:
        """The largest time of its records; when the last of them came, if they have none; negative if unknown.

        Asked of the oldest segments only, up to the first that stays: it may have to be read from a file.
        """
        ...


class RetentionLimits(NamedTuple):
    """The settings of a topic that let records go; negative is no limit.

    ``is_deleted`` says that its policy has ``delete``, without which age and size do not count.
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
    """The log start offset that the limits ask for; never below the one there is, never above the high watermark.

    It lies at the end of the log when nothing is to stay, not even the last segment.
    """
    start = ring_start(extent.log_start_offset, extent.high_watermark, limits.retention_messages)
    if not limits.is_deleted:
        return start
    # What lies wholly below the log start is gone already, it only has not been removed yet.
    kept = [at for at in range(len(segments)) if _end(segments, at, extent) > start]
    return max(
        start,
        _unexpired_start(segments, kept, extent, limits.retention_ms, now_ms),
        _sized_start(segments, kept, extent, limits.retention_bytes),
    )


def ring_start(log_start_offset: int, high_watermark: int, retention_messages: int) -> int:
    """The log start offset that leaves at most this many readable records."""
    if retention_messages < 0:
        return log_start_offset
    return max(log_start_offset, high_watermark - retention_messages)


class RingLog(Protocol):
    log_start_offset: int


def hold_ring(log: RingLog, high_watermark: int, retention_messages: int) -> None:
    """Let the log begin where the ring does: for whoever raises the watermark of such a log, each time.

    Only in memory, for it costs nothing then; whoever opens the log finds the same place by the same rule.
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
    """Where the next segment begins: compaction can take the last records of this one, never its place."""
    return segments[at + 1].base_offset if at + 1 < len(segments) else extent.log_end_offset


def next_look_ms(oldest_ms: int, limits: RetentionLimits) -> int:
    """When a log that nobody appends to can next lose records, given the time of its oldest segment."""
    if not limits.is_deleted or limits.retention_ms < 0:
        return NEVER
    return oldest_ms + limits.retention_ms + 1
