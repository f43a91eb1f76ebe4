"""Detects changes of a topic while a job reads it.

| the topic | the job |
|---|---|
| lost records before they were read | stops; with `--data-loss continue` it stores the lost offsets and continues |
| was deleted and created again | stops: the table holds events of another topic |
| ends before the offset that the table has reached | stops: the log is not the one that was read |
| was deleted | stops |
| has more partitions | reads the new ones from their first record |
| has schemas with more fields | adds columns to the table, before the first event that has them |

Spark detects only some of these changes, because it compares only offsets. If a topic was created again and has as many
records as before, all offsets are valid. So a job requests the topic's id and its offsets before each batch. A change
during a batch is detected before the next batch, or by Spark.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kwire.pipeline.topic_facts import LogBounds, TopicFactsReader, TopicState

# Spark's notation for the earliest offset.
EARLIEST_OFFSET = -2

_log = logging.getLogger(__name__)


class TopicChanged(ValueError):
    """The topic changed, so that the job cannot continue to write to its table."""


class TopicRecreated(TopicChanged):
    """The topic was deleted, and another topic with the same name was created."""


class LogTruncated(TopicChanged):
    """The end offset of the log is lower than offsets that were already read."""


class RecordsLost(TopicChanged):
    """Records were deleted before they were read."""


class Gap(NamedTuple):
    """The offsets of lost records of a partition, from `first` to `end` (exclusive)."""

    partition: int
    first: int
    end: int

    def __str__(self) -> str:
        return f"partition {self.partition} offsets {self.first} to {self.end - 1}"


class TopicChangeDetector:
    """Checks that a topic is the one from which a table was filled, and that it still has the next records to read.

    `topic_id` and `offsets` are from the table's last batch mark (see lake/tables.py), or None if it has no mark yet.
    """

    def __init__(
        self, reader: TopicFactsReader, topic: str, topic_id: str | None, offsets: str | None, *, stops_at_loss: bool
    ) -> None:
        self._reader = reader
        self._topic = topic
        self.topic_id = topic_id or reader.state(topic).topic_id
        self._next = next_offsets(offsets, topic)
        self._stops_at_loss = stops_at_loss

    def check(self) -> None:
        """Check the topic. Raises TopicChanged if the job cannot continue, TopicMissing if the topic does not exist."""
        self._find_gaps(self._next)

    def check_batch(self, begun: str, end: str) -> list[Gap]:
        """Check the topic before a batch, like `check`. If data loss is allowed, return the gaps of the batch.

        `begun` has the start offsets of the query, which are used if the table is empty. `end` has the end offsets of
        the batch. Both are in Spark's notation.
        """
        self._next = self._next or next_offsets(begun, self._topic)
        ends = next_offsets(end, self._topic)
        # The part of a gap beyond the end of this batch is reported with the next batch.
        clipped = [
            Gap(gap.partition, gap.first, min(gap.end, ends.get(gap.partition, 0))) for gap in self._find_gaps(ends)
        ]
        lost = [gap for gap in clipped if gap.first < gap.end]
        for gap in lost:
            _log.warning("topic %s lost records before they were read: %s", self._topic, gap)
        return lost

    def starting_offsets(self) -> str:
        """Return the start offsets of a query without a checkpoint, in Spark's notation.

        Partitions start after the last record that the table contains, new partitions at their first record.
        """
        return starting_offsets(self._topic, self._next, self._reader.state(self._topic))

    def has_read(self, offsets: str) -> None:
        """Store that all records up to these offsets, in Spark's notation, were read."""
        self._next = next_offsets(offsets, self._topic)

    def _find_gaps(self, seen: Mapping[int, int]) -> list[Gap]:
        state = self._reader.state(self._topic)
        if state.topic_id != self.topic_id:
            raise TopicRecreated(
                f"topic {self._topic} was deleted and created again (id {state.topic_id}, before {self.topic_id}): "
                "the table holds events of the old topic. To start again, delete the table and its checkpoint"
            )
        check_ends(self._topic, seen, state.bounds)
        lost = list(gaps(self._next, state.bounds))
        if lost and self._stops_at_loss:
            raise RecordsLost(
                f"topic {self._topic} lost records before they were read: {', '.join(map(str, lost))}; "
                "use --data-loss continue to continue without them"
            )
        return lost


def next_offsets(offsets: str | None, topic: str) -> dict[int, int]:
    """Convert offsets in Spark's notation to the next offset of each partition."""
    by_partition: Mapping[str, int] = json.loads(offsets).get(topic, {}) if offsets else {}
    return {int(partition): offset for partition, offset in by_partition.items()}


def starting_offsets(topic: str, next_by_partition: Mapping[int, int], state: TopicState) -> str:
    """Return start offsets in Spark's notation, which must have an offset for each partition."""
    found = {
        str(partition): max(next_by_partition[partition], bounds.first)
        if partition in next_by_partition
        else EARLIEST_OFFSET
        for partition, bounds in state.bounds.items()
    }
    return json.dumps({topic: found})


def check_ends(topic: str, seen: Mapping[int, int], bounds: Mapping[int, LogBounds]) -> None:
    """Raise LogTruncated if the end offset of a partition is lower than the offset up to which it was read."""
    for partition, offset in sorted(seen.items()):
        if partition not in bounds:
            raise LogTruncated(f"topic {topic} no longer has partition {partition}")
        if offset > bounds[partition].end:
            raise LogTruncated(
                f"topic {topic}: partition {partition} ends at offset {bounds[partition].end}, but records up to "
                f"{offset} were read: the log is not the one that the table was filled from"
            )


def gaps(next_by_partition: Mapping[int, int], bounds: Mapping[int, LogBounds]) -> Iterator[Gap]:
    """Yield the gap between the next offset and the first record of each partition.

    A partition that was added later has the next offset 0. If `next_by_partition` is empty, nothing was read yet, and
    there are no gaps.
    """
    for partition, (first, _) in sorted(bounds.items() if next_by_partition else ()):
        offset = next_by_partition.get(partition, 0)
        if offset < first:
            yield Gap(partition, offset, first)
