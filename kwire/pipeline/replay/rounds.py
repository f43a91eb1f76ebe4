"""Groups events into rounds. The events of a round are sent together, as one batch per target partition.

The server appends a batch completely or not at all. So after an interruption, a search in the target finds all events
of a batch or none of them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kwire.pipeline.replay.event import ReplayEvent

ROUND_EVENTS_MAX = 5_000
# The maximum size of a batch. The server's limit, max.message.bytes, is by default a little more than 1 MiB.
BATCH_BYTES_MAX = 256 * 1024
# The maximum size of a round. A complete round is held in memory, with one batch for each partition of the target.
ROUND_BYTES_MAX = 16 * 1024 * 1024


@dataclass
class Round:
    """The events of a round in order, each with its target partition."""

    events: list[tuple[int, ReplayEvent]] = field(default_factory=list)
    size_bytes: int = 0
    bytes_of: dict[int, int] = field(default_factory=dict)

    def has_space_for(self, partition: int, event: ReplayEvent, batch_bytes: int) -> bool:
        """Return whether the event can be added without exceeding the maximum size of the round or of the batch.

        An empty round and an empty batch accept an event of any size.
        """
        if self.events and self.size_bytes + event.size_bytes > ROUND_BYTES_MAX:
            return False
        held = self.bytes_of.get(partition, 0)
        return not held or held + event.size_bytes <= batch_bytes

    def add(self, partition: int, event: ReplayEvent) -> None:
        self.events.append((partition, event))
        self.size_bytes += event.size_bytes
        self.bytes_of[partition] = self.bytes_of.get(partition, 0) + event.size_bytes

    def through(self) -> dict[int, int]:
        """Return the offset after the last event of the round, by source partition."""
        return {event.partition: event.offset + 1 for _, event in self.events}


def in_rounds(
    events: Iterable[ReplayEvent],
    partition_for: Callable[[ReplayEvent], int],
    events_max: int = ROUND_EVENTS_MAX,
    batch_bytes: int = BATCH_BYTES_MAX,
) -> Iterator[Round]:
    """Yield the events as rounds, in order. To keep the order, a round ends when the batch of one partition is full."""
    current = Round()
    for event in events:
        partition = partition_for(event)
        is_full = len(current.events) >= events_max or not current.has_space_for(partition, event, batch_bytes)
        if is_full:
            yield current
            current = Round()
        current.add(partition, event)
    if current.events:
        yield current
