"""What may happen to a topic while a job reads it, and what the job does then.

| the topic | the job |
|---|---|
| lost records before they were read | stops and names them; with `--data-loss continue` it notes them and goes on |
| was deleted and made again | stops: the table holds the events of another topic |
| ends before the place where the table has come to | stops: the log is not the one that was read |
| was deleted | stops |
| has more partitions | reads the new ones from their first record |
| has schemas with more fields | gives the table more columns, before the first event that has them |

Spark notices some of this by itself, in its own words, and some not at all: it knows offsets only, and the offsets of
a topic that was made again and has grown look like any others. So a job asks for the topic's id and ends before each
batch. What becomes of a topic while a batch is being read is noticed by the next one, or by Spark.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kwire.pipeline.topic_facts import LogBounds, TopicFactsReader, TopicState

# As Spark writes it in its offsets.
EARLIEST_OFFSET = -2

_log = logging.getLogger(__name__)


class TopicChanged(ValueError):
    """The table cannot go on from where it is."""


class TopicRecreated(TopicChanged):
    """It was deleted and made again: another topic under the same name."""


class LogWentBack(TopicChanged):
    """It holds less than what was read of it."""


class RecordsGone(TopicChanged):
    """Records were deleted before they were read."""


class Gap(NamedTuple):
    """Records `first` up to, not including, `end` of a partition."""

    partition: int
    first: int
    end: int

    def __str__(self) -> str:
        return f"partition {self.partition} offsets {self.first} to {self.end - 1}"


class TopicWatch:
    """Looks whether a topic is still the one that a table was filled from, and still holds what comes next.

    `topic_id` and `offsets` are what the table's last mark says; none if there is no mark yet.
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
        """TopicChanged if the table cannot go on, TopicMissing if the topic is gone."""
        self._lost(self._next)

    def check_batch(self, begun: str, end: str) -> list[Gap]:
        """What a batch that ends there will lack, if that may be; else, and for other changes, as `check`.

        `begun` is where the query began, which counts if the table is empty. Both as Spark writes them.
        """
        self._next = self._next or next_offsets(begun, self._topic)
        ends = next_offsets(end, self._topic)
        # What lies behind the batch is for the next one to tell.
        lacking = [Gap(gap.partition, gap.first, min(gap.end, ends.get(gap.partition, 0))) for gap in self._lost(ends)]
        lost = [gap for gap in lacking if gap.first < gap.end]
        for gap in lost:
            _log.warning("%s: lost before it was read: %s", self._topic, gap)
        return lost

    def starting_offsets(self) -> str:
        """Where a query without a checkpoint begins: where the table ends, and at the beginning of what is new."""
        return starting_offsets(self._topic, self._next, self._reader.state(self._topic))

    def has_read(self, offsets: str) -> None:
        """Up to these offsets, as Spark writes them."""
        self._next = next_offsets(offsets, self._topic)

    def _lost(self, seen: Mapping[int, int]) -> list[Gap]:
        state = self._reader.state(self._topic)
        if state.topic_id != self.topic_id:
            raise TopicRecreated(
                f"{self._topic} was deleted and made again (its id is {state.topic_id}, it was {self.topic_id}): the "
                "table holds events of the one before; delete the table and its checkpoint to begin anew"
            )
        check_ends(self._topic, seen, state.bounds)
        lost = list(gaps(self._next, state.bounds))
        if lost and self._stops_at_loss:
            raise RecordsGone(
                f"{self._topic} lost records before they were read: {', '.join(map(str, lost))}; "
                "--data-loss continue goes on without them"
            )
        return lost


def next_offsets(offsets: str | None, topic: str) -> dict[int, int]:
    """The offset that comes next in each partition, of offsets as Spark writes them."""
    told: Mapping[str, int] = json.loads(offsets).get(topic, {}) if offsets else {}
    return {int(partition): offset for partition, offset in told.items()}


def starting_offsets(topic: str, next_ones: Mapping[int, int], state: TopicState) -> str:
    """As Spark takes them; it wants one for each partition there is."""
    found = {
        str(partition): max(next_ones[partition], bounds.first) if partition in next_ones else EARLIEST_OFFSET
        for partition, bounds in state.bounds.items()
    }
    return json.dumps({topic: found})


def check_ends(topic: str, seen: Mapping[int, int], bounds: Mapping[int, LogBounds]) -> None:
    """LogWentBack if the log does not reach the places up to which records have been seen."""
    for partition, offset in sorted(seen.items()):
        if partition not in bounds:
            raise LogWentBack(f"{topic} has no partition {partition} any more")
        if offset > bounds[partition].end:
            raise LogWentBack(
                f"{topic} partition {partition} ends at offset {bounds[partition].end}, but records up to {offset} "
                "were seen: the log is not the one that the table was filled from"
            )


def gaps(next_ones: Mapping[int, int], bounds: Mapping[int, LogBounds]) -> Iterator[Gap]:
    """What lies between the place that comes next and the first record there is.

    A partition that was added since is lacking from its offset 0 on. Before anything was read nothing is lost.
    """
    for partition, (first, _) in sorted(bounds.items() if next_ones else ()):
        offset = next_ones.get(partition, 0)
        if offset < first:
            yield Gap(partition, offset, first)
