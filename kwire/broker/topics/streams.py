"""The part of a topic that makes it a `StreamTopic`: its partitions as `StreamLog`, and facts of its settings."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from kwire.config.resources.topic import TopicSettings
from kwire.streams.log import StreamLog

if TYPE_CHECKING:
    from kwire.broker.partition import Partition

# A server keeps one copy of each partition.
REPLICATION_FACTOR: Final = 1
# Creates the StreamLog of a partition, given the id of its topic.
OpenStream = Callable[["Partition", bytes], StreamLog]


class TopicStreams:
    """The StreamLogs of a topic. They are created on first use, because most topics are used only by Kafka clients."""

    __slots__ = ("_open_stream", "_streams", "partitions", "topic_id")

    partitions: "list[Partition]"
    topic_id: bytes
    settings: TopicSettings

    def __init__(self, open_stream: OpenStream) -> None:
        self._open_stream = open_stream
        self._streams: dict[int, StreamLog] | None = None

    def stream(self, index: int = 0) -> StreamLog:
        """Return the StreamLog of an existing partition. Rooms, subscriptions, webhooks and the HTTP API use it."""
        streams = self._streams
        if streams is None:
            streams = self._streams = {}
        stream = streams.get(index)
        if stream is None:
            stream = streams[index] = self._open_stream(self.partitions[index], self.topic_id)
        return stream

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def replication_factor(self) -> int:
        return REPLICATION_FACTOR

    @property
    def is_room(self) -> bool:
        return self.settings.is_room

    @property
    def is_event_topic(self) -> bool:
        return self.settings.is_event_topic

    @property
    def max_message_bytes(self) -> int:
        return self.settings.max_message_bytes

    @property
    def streams_in_use(self) -> Collection[StreamLog]:
        """The StreamLogs that `stream` has returned so far."""
        return self._streams.values() if self._streams is not None else ()
