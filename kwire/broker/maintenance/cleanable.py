"""Selects the segments of a log that compaction may clean, by Kafka's rules, and computes the log's dirty ratio.

The dirty part of a log is the part that has not been compacted yet. The following records are not cleaned: records in
the active segment, above the high watermark, from the first open transaction on, or younger than
`min.compaction.lag.ms`. kwire also does not clean from the first quarantined range on, because an operator may still
repair its bytes. A log is cleaned if its dirty ratio exceeds `min.cleanable.dirty.ratio`, or if its oldest dirty record
is older than `max.compaction.lag.ms`.
"""

from typing import NamedTuple

from kwire.broker.partition import Partition
from kwire.config.resources.topic import TopicSettings
from storage.segment.sealed_scan import SealedSegment
from storage.segment.segment import LogSegment

NEVER_MS = 2**63 - 1


class CleanableRange(NamedTuple):
    """The cleanable segments of a log: consecutive segments from the start of the log on.

    `due_ms` is the time at which a further segment becomes older than `min.compaction.lag.ms`.
    """

    segments: tuple[LogSegment, ...]
    first_dirty_offset: int
    uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    due_ms: int

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def sealed(self) -> tuple[SealedSegment, ...]:
        """Return descriptions of the segments. They can be sent to the worker process."""
        return tuple(SealedSegment(one.base_offset, one.next_offset, one.size_bytes) for one in self.segments)


def find_cleanable(partition: Partition, now_ms: int) -> CleanableRange:
    """Return the cleanable range of an open log.

    This may read the largest timestamp of a segment from its index file.
    """
    log, settings = partition.maintenance(), partition.settings
    first_dirty = max(log.clean_upto, log.log_start_offset)
    uncleanable = _uncleanable_offset(partition)
    lag_min_ms = settings.compaction_lag_min_ms
    chosen: list[LogSegment] = []
    clean_bytes = dirty_bytes = 0
    due_ms = NEVER_MS
    for segment in log.segments():
        if not segment.is_sealed or segment.is_seal_pending or segment.next_offset > uncleanable:
            break
        if segment.next_offset > first_dirty:
            if lag_min_ms > 0 and segment.max_timestamp > now_ms - lag_min_ms:
                due_ms = segment.max_timestamp + lag_min_ms
                break
            dirty_bytes += segment.size_bytes
        else:
            clean_bytes += segment.size_bytes
        chosen.append(segment)
    return CleanableRange(tuple(chosen), first_dirty, uncleanable, clean_bytes, dirty_bytes, due_ms)


def _uncleanable_offset(partition: Partition) -> int:
    # The synced offset need not be checked, because only sealed segments are cleaned, and sealing syncs a segment.
    return min([partition.last_stable_offset, *(one.start_offset for one in partition.quarantined)])


def has_lag_limit(settings: TopicSettings) -> bool:
    """Whether the topic has a `max.compaction.lag.ms`."""
    return settings.compaction_lag_max_ms < NEVER_MS


def dirty_since(segments: list[LogSegment], first_dirty_offset: int) -> int:
    """Return the smallest first timestamp of the dirty segments, or `NEVER_MS` if none of them has a timestamp."""
    dirty = [segment for segment in segments if segment.next_offset > first_dirty_offset]
    return min((segment.first_timestamp for segment in dirty if segment.first_timestamp > 0), default=NEVER_MS)
