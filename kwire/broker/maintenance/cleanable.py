"""How dirty a log is: what compaction may look at, what it has not looked at yet, and when that can change by itself.

Kafka's rules. Dirty is what lies above the part that was compacted. Never cleaned: a segment that takes appends, what
is not safe yet (above the high watermark) or not decided yet (from the first open transaction on), what is younger than
`min.compaction.lag.ms`, and here also everything from a quarantined range on, so that no bytes that somebody may still
repair are dropped. A log is cleaned when more than `min.cleanable.dirty.ratio` of it is dirty, or when its oldest dirty
record is older than `max.compaction.lag.ms`.
"""

from typing import NamedTuple

from kwire.broker.partition import Partition
from kwire.topic_config import TopicSettings
from storage.batch_walk import SealedSegment
from storage.segment import LogSegment

NEVER_MS = 2**63 - 1


class Dirt(NamedTuple):
    """`segments` may be cleaned, the first ones of the log and without a hole; `due_ms` is when to look again."""

    segments: tuple[LogSegment, ...]
    first_dirty_offset: int
    uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    due_ms: int

    @property
    def ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def sealed(self) -> tuple[SealedSegment, ...]:
        """What a worker needs to know of the segments."""
        return tuple(SealedSegment(one.base_offset, one.next_offset, one.size_bytes) for one in self.segments)


def find_dirt(partition: Partition, now_ms: int) -> Dirt:
    """Look at an open log. Quick, except that the newest time of a segment may have to be read from its index file."""
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
    return Dirt(tuple(chosen), first_dirty, uncleanable, clean_bytes, dirty_bytes, due_ms)


def _uncleanable_offset(partition: Partition) -> int:
    # What is above the log's synced offset may be cleaned: a segment with a finished seal was synced with it.
    return min([partition.last_stable_offset, *(one.start_offset for one in partition.quarantined)])


def is_bounded(settings: TopicSettings) -> bool:
    """Whether records of the topic have to be looked at after some time."""
    return settings.compaction_lag_max_ms < NEVER_MS


def dirty_since(segments: list[LogSegment], first_dirty_offset: int) -> int:
    """The time of the oldest dirty segment's first records; `NEVER_MS` if none has a time."""
    dirty = [segment for segment in segments if segment.next_offset > first_dirty_offset]
    return min((segment.first_timestamp for segment in dirty if segment.first_timestamp > 0), default=NEVER_MS)
