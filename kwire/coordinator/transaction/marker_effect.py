"""The effect that requests the writing of a transaction's markers."""

from collections.abc import Callable, Collection

from msgspec import Struct

from kwire.coordinator.transaction.states import TopicPartition

# The minimum and maximum delay before the markers that could not be written are retried. The delay is doubled after
# each attempt.
RETRY_MS_MIN = 100
RETRY_MS_MAX = 5_000


class WriteMarkers(Struct, frozen=True, kw_only=True):
    """An effect of a committed decision: write the marker that ends the transaction to each of these partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: frozenset[TopicPartition]


# A callback that is called once for each `WriteMarkers`, with the partitions whose marker could not be written. Deleted
# partitions are not included.
MarkersDone = Callable[[Collection[TopicPartition]], None]
MarkerWriter = Callable[[WriteMarkers, MarkersDone], None]
