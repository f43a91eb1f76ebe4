"""What the partitions of a transaction are told when it ends."""

from collections.abc import Callable, Collection

from msgspec import Struct

from kwire.coordinator.transaction.states import TopicPartition

# Between two attempts to write the markers that could not be written, twice as long after each.
RETRY_MS_MIN = 100
RETRY_MS_MAX = 5_000


class WriteMarkers(Struct, frozen=True, kw_only=True):
    """The decision is committed: write it into each of these partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: frozenset[TopicPartition]


# Told once for each `WriteMarkers`: the partitions whose marker could not be written. One that is gone needs none.
MarkersDone = Callable[[Collection[TopicPartition]], None]
MarkerWriter = Callable[[WriteMarkers, MarkersDone], None]
