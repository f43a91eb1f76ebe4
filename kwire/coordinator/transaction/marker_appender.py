"""Writing the markers that end a transaction, into every partition that it wrote to.

Partitions of `__consumer_offsets` are the business of the group coordinator: with the marker the offsets that waited
for it count, or are dropped. What cannot be written now is told, and whoever ordered it asks again.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from kwire.broker.partition import Partition, code_of
from kwire.broker.topics import OFFSETS_TOPIC, Topics
from kwire.broker.turns import OPENS_PER_TURN
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.transaction.markers import MarkersDone, WriteMarkers
from kwire.coordinator.transaction.states import TopicPartition
from kwire.errors import ErrorCode, KafkaError
from storage.errors import StorageError

logger = logging.getLogger(__name__)

# To append a marker takes tens of microseconds; after this many the loop gets its turn. A log that has to be opened for
# it, as after a restart, counts for many.
MARKERS_PER_TURN: Final = 100
_OPEN_WEIGHT: Final = MARKERS_PER_TURN // OPENS_PER_TURN

# The log knows better: another producer of that id, or another coordinator, has been there since. There is nothing left
# to end.
_OVERTAKEN: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
# The topic is gone, and with it what was written.
_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


Written = Callable[[ErrorCode], None]


class Markers:
    """Given to the transaction coordinator, and to whoever writes markers by hand."""

    def __init__(self, topics: Topics, groups: GroupCoordinator, call_soon: Callable[[Callable[[], None]], object]):
        self._topics = topics
        self._groups = groups
        self._call_soon = call_soon

    def write_all(self, order: WriteMarkers, done: MarkersDone) -> None:
        """Write every marker of a transaction; `done` gets the partitions whose marker is not durable."""
        marker = Marker(order.producer_id, order.producer_epoch, order.coordinator_epoch, order.is_commit)
        left = len(order.partitions)
        failed: list[TopicPartition] = []
        if not left:
            done(failed)
            return

        def written(place: TopicPartition, error: ErrorCode) -> None:
            nonlocal left
            left -= 1
            if error in _OVERTAKEN:
                logger.warning("%s: the end of a transaction of %s came too late: %s", place, marker, error.name)
            elif error is not ErrorCode.NONE and error not in _GONE:
                failed.append(place)
            if not left:
                done(failed)

        def some(places: Iterator[TopicPartition]) -> None:
            weight = 0
            for place in places:
                weight += 1 if self._is_open(place) else _OPEN_WEIGHT
                try:
                    self.write(place, marker, partial(written, place))
                except Exception:
                    # In a later turn nobody else is there to hear of it, and the transaction would wait for ever.
                    logger.exception("%s: the end of a transaction of %s", place, marker)
                    written(place, ErrorCode.UNKNOWN_SERVER_ERROR)
                if weight >= MARKERS_PER_TURN:
                    self._call_soon(partial(some, places))
                    return

        some(iter(order.partitions))

    def _is_open(self, place: TopicPartition) -> bool:
        topic = self._topics.get(place[0])
        partition = topic.partition(place[1]) if topic is not None else None
        return partition is None or partition.is_open

    def write(self, place: TopicPartition, marker: Marker, written: Written) -> None:
        """Write one marker; `written` is called once, with NONE when it is durable."""
        name, index = place
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
            # These take no transactional records, so nothing waits for an end.
            written(ErrorCode.NONE)
        else:
            _append(partition, marker, written)


def _append(partition: Partition, marker: Marker, written: Written) -> None:
    try:
        appended = partition.append_marker(*marker)
    except StorageError as error:
        written(code_of(error))
    except KafkaError as error:
        written(error.code)
    else:
        # On disk, whatever the topic promises: once the coordinator has forgotten the transaction, a power cut that
        # takes the marker and leaves the records would leave it open for ever.
        partition.on_synced(
            appended.last_offset + 1, lambda error: written(ErrorCode.NONE if error is None else error.code)
        )
