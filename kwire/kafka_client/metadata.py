"""Metadata: the brokers of a cluster, and the leaders of the partitions of topics that were asked for. No I/O."""

from typing import Final, NamedTuple

from kwire.errors import ErrorCode
from kwire.kafka_client.settings import Address
from kwire.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from kwire.wire.types import ZERO_UUID

NO_NODE: Final = -1
NO_EPOCH: Final = -1


class Leader(NamedTuple):
    """The broker that leads a partition, NO_NODE if there is none, and its epoch."""

    node: int
    epoch: int


NO_LEADER: Final = Leader(NO_NODE, NO_EPOCH)


class TopicMetadata(NamedTuple):
    """A topic. `topic_id` is ZERO_UUID if the cluster has no topic ids (before Apache Kafka 2.8)."""

    name: str
    topic_id: bytes
    leaders: dict[int, Leader]
    replication_factor: int


class Metadata:
    """What the responses to Metadata requests have said. `missing` counts how often in a row a topic was not there."""

    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self.controller = NO_NODE
        self.cluster_id: str | None = None
        self.topics: dict[str, TopicMetadata] = {}
        self.missing: dict[str, int] = {}
        # Other errors of topics, such as a missing permission.
        self.errors: dict[str, int] = {}

    def update(self, response: MetadataResponse) -> None:
        if response.brokers:
            self.brokers = {one.node_id: Address(one.host, one.port) for one in response.brokers}
        self.controller = response.controller_id
        self.cluster_id = response.cluster_id
        for topic in response.topics:
            if topic.name is not None:
                self._update_topic(topic.name, topic)

    def leader(self, topic: str, partition: int) -> Leader:
        known = self.topics.get(topic)
        return NO_LEADER if known is None else known.leaders.get(partition, NO_LEADER)

    def has(self, topic: str, topic_id: bytes) -> bool:
        """Return whether the last response has described a topic with this id."""
        known = self.topics.get(topic)
        return known is not None and known.topic_id == topic_id and topic not in self.missing

    def forget(self, topic: str) -> None:
        """Forget a topic that is no longer in use."""
        for known in (self.topics, self.missing, self.errors):
            known.pop(topic, None)

    def lose_leader(self, topic: str, partition: int, node: int) -> None:
        """A broker has said that it does not lead this partition. Until the next response the leader is not known."""
        known = self.topics.get(topic)
        if known is not None and (leader := known.leaders.get(partition)) is not None and leader.node == node:
            known.leaders[partition] = Leader(NO_NODE, leader.epoch)

    def _update_topic(self, name: str, topic: MetadataResponseTopic) -> None:
        code = topic.error_code
        if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            self.missing[name] = self.missing.get(name, 0) + 1
            return
        if code == ErrorCode.LEADER_NOT_AVAILABLE:
            return
        if code:
            self.errors[name] = code
            return
        self.missing.pop(name, None)
        self.errors.pop(name, None)
        known = self.topics.get(name)
        before = known.leaders if known is not None and known.topic_id == topic.topic_id else {}
        leaders = {}
        for one in topic.partitions:
            leader = Leader(one.leader_id, one.leader_epoch)
            old = before.get(one.partition_index)
            # A broker that lags behind may still know an earlier leader.
            leaders[one.partition_index] = old if old is not None and leader.epoch < old.epoch != NO_EPOCH else leader
        replicas = max((len(one.replica_nodes) for one in topic.partitions), default=0)
        self.topics[name] = TopicMetadata(name, bytes(topic.topic_id) or ZERO_UUID, leaders, replicas)
