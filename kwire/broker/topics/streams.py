"""The part of a topic that hands out its partitions as `StreamLog`."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kwire.streams.log import StreamLog

if TYPE_CHECKING:
    from kwire.broker.partition import Partition

# Makes the StreamLog of a partition, given the id of its topic.
OpenStream = Callable[["Partition", bytes], StreamLog]


class TopicStreams:
    """One StreamLog per partition, made when it is first asked for: most topics are used by Kafka clients only."""

    __slots__ = ("_open_stream", "_streams", "partitions", "topic_id")

    partitions: "list[Partition]"
    topic_id: bytes

    def __init__(self, open_stream: OpenStream) -> None:
        self._open_stream = open_stream
        self._streams: dict[int, StreamLog] | None = None

    def stream(self, index: int = 0) -> StreamLog:
        """The log of a partition that exists, as rooms, subscriptions, webhooks and REST use it."""
        streams = self._streams
        if streams is None:
            streams = self._streams = {}
        stream = streams.get(index)
        if stream is None:
            stream = streams[index] = self._open_stream(self.partitions[index], self.topic_id)
        return stream

    @property
    def streams_in_use(self) -> Collection[StreamLog]:
        """The logs that `stream` has returned so far."""
        return self._streams.values() if self._streams is not None else ()
