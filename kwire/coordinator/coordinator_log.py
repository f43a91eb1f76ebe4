"""The interface of a coordinator's log: the operations on an internal topic that the runtime needs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from kwire.coordinator.log_records import KeyValue, Paused, ProducerIdAndEpoch, Replayed
from kwire.errors import KafkaError
from storage.batch.record_batch import BatchHeader


class CoordinatorLog(Protocol):
    """The log of an internal topic. A shard is one of its partitions. `InternalTopicLog` implements the operations."""

    def append(self, shard: int, records: Sequence[KeyValue], now_ms: int) -> int:
        """Append the records as one batch. Returns the offset after the last record.

        Raises StorageError, KafkaError, or LookupError if the topic does not exist. After an exception, no record was
        appended.
        """
        ...

    def append_batch(self, shard: int, batch: memoryview, header: BatchHeader, now_ms: int) -> tuple[int, int]:
        """Append a batch that the coordinator has built. Raises as `append` does.

        Returns the offset after its last record, and the offset below which all records are committed.
        """
        ...

    def append_pending(
        self, shard: int, transaction: ProducerIdAndEpoch, records: Sequence[KeyValue], now_ms: int
    ) -> int:
        """Append the records as `append` does, but as part of a producer's transaction.

        Also raises InvalidProducerEpoch, if the producer has been fenced.
        """
        ...

    def append_marker(
        self, shard: int, transaction: ProducerIdAndEpoch, coordinator_epoch: int, is_commit: bool
    ) -> int:
        """Append the marker that ends a producer's transaction. Returns and raises as `append_pending` does."""
        ...

    def committed_offset(self, shard: int) -> int:
        """Return the offset below which all records are committed."""
        ...

    def on_committed(self, shard: int, offset: int, call: Callable[[KafkaError | None], None]) -> None:
        """Call `call(None)` when all records below `offset` are committed, or `call(error)` on failure.

        If the records are already committed, `call` is called before this returns.
        """
        ...

    def on_synced(self, shard: int, offset: int, call: Callable[[KafkaError | None], None]) -> None:
        """Call `call` as `on_committed` does, but wait until the records are on disk, whatever the topic's settings."""
        ...

    def replay(self, shard: int) -> Iterator[Replayed | Paused]: ...
