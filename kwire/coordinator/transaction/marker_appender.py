"""Appends the markers that end a transaction to every partition of the transaction.

The group coordinator appends the markers for `__consumer_offsets`, and then applies or drops the pending offsets. The
partitions whose marker cannot be written are returned to the caller, which retries.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from kwire.broker.chunked_answers import OPENS_PER_CHUNK
from kwire.broker.partition import Partition, code_of
from kwire.broker.topics.topics import OFFSETS_TOPIC, Topics
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.transaction.marker_effect import MarkersDone, WriteMarkers
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import ErrorCode, KafkaError
from storage.errors import StorageError

logger = logging.getLogger(__name__)

# The maximum number of markers that are appended in one iteration of the event loop. Each takes tens of microseconds.
# If the log must be opened first, as after a restart, the marker is counted as _OPEN_WEIGHT markers.
MARKERS_PER_CHUNK: Final = 100
_OPEN_WEIGHT: Final = MARKERS_PER_CHUNK // OPENS_PER_CHUNK

# Errors after which the marker is not needed: a newer producer or a newer coordinator has written to the partition, so
# the transaction has already ended in the partition.
_SUPERSEDED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
# Errors for a deleted topic. The records of the transaction were deleted too, so the marker is not needed.
_DELETED: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)


class TransactionMarker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


Written = Callable[[ErrorCode], None]


class MarkerAppender:
    """Appends transaction markers. Used by the transaction coordinator and by the WriteTxnMarkers handler."""

    def __init__(self, topics: Topics, groups: GroupCoordinator, call_soon: Callable[[Callable[[], None]], object]):
        self._topics = topics
        self._groups = groups
        self._call_soon = call_soon

    def write_all(self, request: WriteMarkers, done: MarkersDone) -> None:
        """Write all markers of a transaction. Then call `done` with the partitions whose marker was not written."""
        marker = TransactionMarker(
            request.producer_id, request.producer_epoch, request.coordinator_epoch, request.is_commit
        )
        left = len(request.partitions)
        failed: list[TopicPartition] = []
        if not left:
            done(failed)
            return

        def written(topic_partition: TopicPartition, error: ErrorCode) -> None:
            nonlocal left
            left -= 1
            if error in _SUPERSEDED:
                logger.warning("%s-%d: the marker %s was refused: %s", *topic_partition, marker, error.name)
            elif error is not ErrorCode.NONE and error not in _DELETED:
                failed.append(topic_partition)
            if not left:
                done(failed)

        def write_next(topic_partitions: Iterator[TopicPartition]) -> None:
            weight = 0
            for topic_partition in topic_partitions:
                weight += 1 if self._is_open(topic_partition) else _OPEN_WEIGHT
                try:
                    self.write(topic_partition, marker, partial(written, topic_partition))
                except Exception:
                    # In a later iteration of the event loop, no caller would handle the exception. The transaction
                    # would then never be completed.
                    logger.exception("%s-%d: the marker %s cannot be written", *topic_partition, marker)
                    written(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
                if weight >= MARKERS_PER_CHUNK:
                    self._call_soon(partial(write_next, topic_partitions))
                    return

        write_next(iter(request.partitions))

    def _is_open(self, topic_partition: TopicPartition) -> bool:
        topic = self._topics.get(topic_partition[0])
        partition = topic.partition(topic_partition[1]) if topic is not None else None
        return partition is None or partition.is_open

    def write(self, topic_partition: TopicPartition, marker: TransactionMarker, written: Written) -> None:
        """Write one marker. Calls `written` once: with NONE when the marker is durable, or with the error."""
        name, index = topic_partition
        topic = self._topics.get(name)
        partition = topic.partition(index) if topic is not None else None
        if topic is None or partition is None:
            written(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic.name == OFFSETS_TOPIC:
            self._groups.end_transaction(
                index,
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.is_commit,
                lambda error: written(ErrorCode.NONE if error is None else error.code),
            )
        elif topic.settings.is_event_topic:
            # Event topics accept no transactional records, so they need no marker.
            written(ErrorCode.NONE)
        else:
            _append(partition, marker, written)


def _append(partition: Partition, marker: TransactionMarker, written: Written) -> None:
    try:
        appended = partition.append_marker(*marker)
    except StorageError as error:
        written(code_of(error))
    except KafkaError as error:
        written(error.code)
    else:
        # Wait until the marker is on disk, whatever the topic's settings are. Otherwise the coordinator could complete
        # the transaction, and a power failure could then lose the marker but not the records. In this partition, the
        # transaction would stay open forever.
        partition.on_synced(
            appended.last_offset + 1, lambda error: written(ErrorCode.NONE if error is None else error.code)
        )
