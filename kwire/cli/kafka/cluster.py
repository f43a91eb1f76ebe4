"""The brokers of a cluster, the leaders of its partitions, and the channels to them."""

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Self

from kwire.cli.connection.errors import Refused
from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.kafka.channel import Channel, Connect
from kwire.cli.kafka.errors import ServerError, is_retriable
from kwire.cli.kafka.retries import Retries
from kwire.errors import ErrorCode
from kwire.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire.wire.schema import Api

# How long a topic that is being created, or a partition without a leader, is waited for.
LEADER_TIMEOUT_SECONDS = 15.0

NO_LEADER = -1

# Errors of a topic in a Metadata response that pass while the server creates the topic.
_CREATING = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Cluster:
    """The metadata of the topics in use, and one channel to each broker. `connect` opens a connection and logs in."""

    def __init__(self, connect: Connect, bootstrap: Sequence[tuple[str, int]]) -> None:
        self._connect = connect
        self._bootstrap = list(bootstrap)
        self._nodes: dict[int, tuple[str, int]] = {}
        self._leaders: dict[str, dict[int, int]] = {}
        self._channels: dict[int, Channel] = {}
        self._any: Channel | None = None
        # Heartbeats of a group, which a thread sends, ask for the coordinator here.
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for channel in self._all_channels():
            channel.close()
        self._channels.clear()
        self._any = None

    # Metadata

    def load_topics(self, names: Iterable[str], *, may_create: bool = False) -> None:
        """Ask for the partitions and leaders of topics. Raises ServerError if one does not exist.

        With `may_create` a server that creates topics automatically creates a missing one.
        """
        missing = list(dict.fromkeys(names))
        retries = Retries(LEADER_TIMEOUT_SECONDS)
        while True:
            response = self._ask_metadata(missing, may_create)
            waits = []
            for topic in response.topics:
                name, code = topic.name or "", topic.error_code
                self._leaders[name] = {one.partition_index: one.leader_id for one in topic.partitions}
                if code and not (may_create and code in _CREATING) and code != ErrorCode.LEADER_NOT_AVAILABLE:
                    raise ServerError(f"topic {topic.name}", code)
                if code:
                    waits.append((name, code))
            if not waits:
                return
            if not retries.pause():
                raise ServerError(f"topic {waits[0][0]}", waits[0][1])
            missing = [name for name, _ in waits]

    def reload(self) -> None:
        """Ask again for the leaders of all topics in use."""
        response = self._ask_metadata(list(self._leaders), False)
        for topic in response.topics:
            if topic.error_code and not is_retriable(topic.error_code):
                raise ServerError(f"topic {topic.name}", topic.error_code)
            if topic.partitions:
                self._leaders[topic.name or ""] = {one.partition_index: one.leader_id for one in topic.partitions}

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic that `load_topics` has loaded."""
        return sorted(self._leaders[topic])

    def check_partition(self, topic: str, partition: int) -> None:
        if partition not in self._leaders[topic]:
            raise Refused(f"topic {topic} has no partition {partition}, only 0 to {len(self._leaders[topic]) - 1}")

    def leader(self, partition: TopicPartition) -> int:
        """Return the node that leads a partition, as far as it is known. NO_LEADER if there is none."""
        return self._leaders[partition.topic].get(partition.partition, NO_LEADER)

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by their leaders, and wait until all have one."""
        wanted = list(partitions)
        retries = Retries(LEADER_TIMEOUT_SECONDS)
        while True:
            groups: dict[int, list[TopicPartition]] = {}
            for partition in wanted:
                groups.setdefault(self.leader(partition), []).append(partition)
            if NO_LEADER not in groups:
                return groups
            if not retries.pause():
                raise ServerError(f"partition {groups[NO_LEADER][0]}", ErrorCode.LEADER_NOT_AVAILABLE)
            self.reload()

    def _ask_metadata(self, topics: Sequence[str], may_create: bool) -> MetadataResponse:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=may_create
        )
        response: MetadataResponse = self.ask_any(METADATA, request)
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        return response

    # Channels

    def ask_any(self, api: Api, message: Any) -> Any:
        """Send a request to any broker, and return the response. If one does not answer, the next is tried."""
        with self._lock:
            try:
                return self._any_channel().request(api, message)
            except ConnectionError:
                # The broker of this channel is gone. Another one may know where the leaders are now.
                self._drop_any()
            return self._any_channel().request(api, message)

    def channel(self, node: int) -> Channel:
        """Return the channel to a broker, which is opened on first use."""
        try:
            return self._channels[node]
        except KeyError:
            channel = self._channels[node] = self.open_channel(node)
            return channel

    def open_channel(self, node: int) -> Channel:
        """Open another channel to a broker. The caller closes it."""
        if node not in self._nodes:
            raise Refused(f"the server names node {node} as a leader, but not its address")
        return Channel(self._connect(*self._nodes[node]))

    def open_at(self, host: str, port: int) -> Channel:
        """Open a channel to an address that a response has named. The caller closes it."""
        return Channel(self._connect(host, port))

    def drop(self, node: int) -> None:
        """Close the channel to a broker, after an error. The next use opens a new one."""
        channel = self._channels.pop(node, None)
        if channel is not None:
            channel.close()

    def _any_channel(self) -> Channel:
        if self._any is not None:
            return self._any
        addresses = [*self._bootstrap, *(one for one in self._nodes.values() if one not in self._bootstrap)]
        last = len(addresses) - 1
        for number, (host, port) in enumerate(addresses):
            try:
                self._any = Channel(self._connect(host, port))
            except ConnectionError:
                if number == last:
                    raise
                continue
            return self._any
        raise Refused("no server is named: use --bootstrap-server HOST:PORT")

    def _drop_any(self) -> None:
        if self._any is not None:
            self._any.close()
            self._any = None

    def _all_channels(self) -> list[Channel]:
        return [*self._channels.values(), *([] if self._any is None else [self._any])]
