"""TopicDirectory: finds topics, wherever their logs are stored. HTTP handlers and streams use topics through it.

`local_directory` finds the topics of this server, `remote/directory` those of a cluster.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from kwire.streams.log import StreamLog


class StreamTopic(Protocol):
    """A topic, and its partitions as `StreamLog`."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partition_count(self) -> int: ...

    @property
    def replication_factor(self) -> int: ...

    @property
    def is_room(self) -> bool: ...

    @property
    def is_event_topic(self) -> bool: ...

    @property
    def is_protected(self) -> bool:
        """Whether every change by a client is refused with TOPIC_AUTHORIZATION_FAILED."""
        ...

    @property
    def max_message_bytes(self) -> int: ...

    def stream(self, index: int = 0) -> StreamLog:
        """Return the log of an existing partition, without I/O. Await its `ready` before its bounds are used."""
        ...


class PlacedPartition(NamedTuple):
    """The broker ids of a partition. `leader` is -1 if the partition has none."""

    partition: int
    leader: int
    replicas: Sequence[int]
    in_sync: Sequence[int]


class TopicFinder(Protocol):
    async def find(self, name: str) -> StreamTopic | None:
        """Return a topic; None if it does not exist or is internal. Raises KafkaError."""
        ...


class TopicDirectory(TopicFinder, Protocol):
    """Every method may raise KafkaError."""

    async def names_from(self, start: str, limit: int) -> Sequence[str]:
        """Return up to `limit` names of topics that do not sort before `start`, in order."""
        ...

    async def configs(self, topic: StreamTopic) -> Mapping[str, str | None]:
        """Return the effective values of all settings of a topic. The value of a secret is None."""
        ...

    async def placement(self, topic: StreamTopic) -> Sequence[PlacedPartition]:
        """Return the brokers of all partitions, in their order."""
        ...

    async def sizes(self, topic: StreamTopic) -> Sequence[int]:
        """Return the bytes of all partitions on their leaders, in their order. A size that is not known is 0."""
        ...

    async def broker_ids(self) -> Sequence[int]: ...
