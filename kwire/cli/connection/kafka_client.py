"""A blocking client of a Kafka cluster: sends each request to the server that can answer it.

with kafka_client_of(options) as client:
    client.request(API, message)                        any server
    client.controller().request(API, message)           the controller
    client.ask_coordinator(group_id, API, message)      the coordinator of a group
    for node, partitions in client.by_leader(wanted):   the leaders of partitions
        node.request(API, message)
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from kwire.cli.connection.error_texts import check, refusal
from kwire.cli.connection.errors import Refused, Unreachable
from kwire.cli.connection.kafka_connection import KafkaConnection
from kwire.cli.connection.settings import ClientSettings
from kwire.errors import ErrorCode
from kwire.kafka_client.settings import Address
from kwire.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from kwire.wire.schema import Api

GROUP, TRANSACTION = 0, 1
# How long to wait for a coordinator that is being loaded, and between two attempts.
COORDINATOR_SECONDS_MAX = 5.0
COORDINATOR_PAUSE_SECONDS = 0.1
_LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class KafkaClient:
    """Connections to the servers of one cluster, opened when they are needed."""

    def __init__(self, settings: ClientSettings) -> None:
        """Connect to a bootstrap server and log in. Raises Unreachable or LoginRefused."""
        self.settings = settings
        self._bootstrap = KafkaConnection(settings)
        self._nodes: dict[int, KafkaConnection] = {}
        self._addresses: dict[int, Address] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._bootstrap.close()
        for node in self._nodes.values():
            node.close()

    @property
    def address(self) -> Address:
        """The address of the bootstrap server that accepted the connection."""
        return self._bootstrap.address

    @property
    def bootstrap(self) -> KafkaConnection:
        return self._bootstrap

    def request(self, api: Api, message: Any, *, version_min: int = 0, version_max: int | None = None) -> Any:
        """Send a request that any server can answer. Raises Unreachable or NotSupported."""
        return self._bootstrap.request(api, message, version_min=version_min, version_max=version_max)

    # Topics and servers

    def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Return the brokers, and these topics or all. A topic that does not exist has an error code."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        found: MetadataResponse = self.request(METADATA, request, version_min=4)
        check(str(self.address), found.error_code)
        self._addresses = {one.node_id: Address(one.host, one.port) for one in found.brokers}
        return found

    def nodes(self) -> Iterator[KafkaConnection]:
        """Yield a connection to every server of the cluster."""
        for _, node in self.numbered_nodes():
            yield node

    def numbered_nodes(self) -> Iterator[tuple[int, KafkaConnection]]:
        """Yield the id of every server of the cluster, with a connection to it."""
        for node_id in sorted(self._known_addresses()):
            yield node_id, self.node(node_id)

    def node(self, node_id: int) -> KafkaConnection:
        """Return a connection to a server. Raises Refused if the server does not exist, or Unreachable."""
        addresses = self._known_addresses()
        if node_id not in addresses:
            raise Refused(f"{self.address} knows no server with the id {node_id}")
        address = addresses[node_id]
        # With a single server, the connection that works is used, even if the server names another address.
        if len(addresses) == 1 or address == self.address:
            return self._bootstrap
        if node_id not in self._nodes:
            try:
                self._nodes[node_id] = KafkaConnection(self.settings, [address])
            except Unreachable as error:
                raise Unreachable(
                    f"{self.address} says that server {node_id} is at {address}, but: {error}; "
                    "check advertised.listeners of the server"
                ) from error
        return self._nodes[node_id]

    def controller(self) -> KafkaConnection:
        """Return a connection to the controller, which changes topics and settings."""
        controller_id = self.metadata([]).controller_id
        return self._bootstrap if controller_id < 0 else self.node(controller_id)

    def by_leader(
        self, partitions: Iterable[TopicPartition], *, skips_missing: bool = False
    ) -> Iterator[tuple[KafkaConnection, dict[str, list[int]]]]:
        """Yield each leader with its partitions, by topic.

        Raises Refused if a partition does not exist or has no leader, unless `skips_missing`.
        """
        wanted = list(partitions)
        leaders: dict[TopicPartition, int] = {}
        for topic in self.metadata(sorted({one.topic for one in wanted})).topics:
            if not skips_missing:
                check(f"topic {topic.name}", topic.error_code)
            for found in topic.partitions:
                leaders[TopicPartition(topic.name or "", found.partition_index)] = found.leader_id
        chosen: dict[int, dict[str, list[int]]] = {}
        for one in wanted:
            if skips_missing and leaders.get(one, -1) < 0:
                continue
            if one not in leaders:
                raise Refused(f"topic {one.topic} has no partition {one.partition}")
            if leaders[one] < 0:
                raise Refused(refusal(f"partition {one}", ErrorCode.LEADER_NOT_AVAILABLE))
            chosen.setdefault(leaders[one], {}).setdefault(one.topic, []).append(one.partition)
        for node_id, topics in sorted(chosen.items()):
            yield self.node(node_id), topics

    def coordinator(self, key: str, key_type: int = GROUP) -> KafkaConnection:
        """Return a connection to the coordinator of a group or a transactional id. Raises Refused."""
        from kwire.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest

        request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        deadline = time.monotonic() + COORDINATOR_SECONDS_MAX
        while True:
            response = self.request(FIND_COORDINATOR, request, version_min=1)
            found = response.coordinators[0] if response.coordinators else response
            if found.error_code not in _LOADING or time.monotonic() > deadline:
                break
            time.sleep(COORDINATOR_PAUSE_SECONDS)
        check(f"group {key}" if key_type == GROUP else f"transactional id {key}", found.error_code, found.error_message)
        self._known_addresses().setdefault(found.node_id, Address(found.host, found.port))
        return self.node(found.node_id)

    def ask_coordinator(
        self,
        key: str,
        api: Api,
        message: Any,
        *,
        key_type: int = GROUP,
        version_min: int = 0,
        version_max: int | None = None,
    ) -> Any:
        """Send a request to the coordinator of a group or a transactional id, again while it is being loaded.

        Raises Refused if no coordinator is available. Other errors are in the response.
        """
        deadline = time.monotonic() + COORDINATOR_SECONDS_MAX
        while True:
            node = self.coordinator(key, key_type)
            response = node.request(api, message, version_min=version_min, version_max=version_max)
            if time.monotonic() > deadline or not any(code in _LOADING for code in _error_codes(response)):
                return response
            time.sleep(COORDINATOR_PAUSE_SECONDS)

    def _known_addresses(self) -> dict[int, Address]:
        if not self._addresses:
            self.metadata([])
        return self._addresses


def _error_codes(response: Any) -> Iterator[int]:
    """Yield the error codes in a response of a coordinator, wherever it has them."""
    yield getattr(response, "error_code", 0)
    for name in ("groups", "results", "transaction_states", "topics", "partitions"):
        for one in getattr(response, name, None) or ():
            yield from _error_codes(one)
