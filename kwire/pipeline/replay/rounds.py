"""Events in rounds: what goes out together, one batch for each partition of the target.

A part of a round that fits in one batch lands whole or not at all. That is what makes an interrupted replay decidable.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kwire.pipeline.replay.event import ReplayEvent

ROUND_EVENTS_MAX = 5_000
# Well below what servers take as one batch (max.message.bytes, by default a little more than 1 MiB).
BATCH_BYTES_MAX = 256 * 1024
# However many partitions the target has, a round is in memory whole.
ROUND_BYTES_MAX = 16 * 1024 * 1024


@dataclass
class Round:
    """Events in their order, each with its partition of the target."""

    events: list[tuple[int, ReplayEvent]] = field(default_factory=list)
    size_bytes: int = 0
    bytes_of: dict[int, int] = field(default_factory=dict)

    def has_room(self, partition: int, event: ReplayEvent, batch_bytes: int) -> bool:
        """A round, and a batch, holds at least one event, however large it is."""
        if self.events and self.size_bytes + event.size_bytes > ROUND_BYTES_MAX:
            return False
        held = self.bytes_of.get(partition, 0)
        return not held or held + event.size_bytes <= batch_bytes

    def add(self, partition: int, event: ReplayEvent) -> None:
        self.events.append((partition, event))
        self.size_bytes += event.size_bytes
        self.bytes_of[partition] = self.bytes_of.get(partition, 0) + event.size_bytes

    def through(self) -> dict[int, int]:
        """By partition of the source: the offset behind the last event."""
        return {event.partition: event.offset + 1 for _, event in self.events}


def in_rounds(
    events: Iterable[ReplayEvent],
    place: Callable[[ReplayEvent], int],
    events_max: int = ROUND_EVENTS_MAX,
    batch_bytes: int = BATCH_BYTES_MAX,
) -> Iterator[Round]:
    """All of them, in their order. A round ends where a partition's batch is full: nobody overtakes anybody."""
    current = Round()
    for event in events:
        partition = place(event)
        is_full = len(current.events) >= events_max or not current.has_room(partition, event, batch_bytes)
        if is_full:
            yield current
            current = Round()
        current.add(partition, event)
    if current.events:
        yield current
