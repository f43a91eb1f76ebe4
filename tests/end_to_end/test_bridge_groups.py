"""Groups of a cluster with Kafka consumers and HTTP members of a bridge: they share partitions and offsets, and neither
the kill of the bridge nor that of the coordinator loses a commit."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.structs import OffsetAndMetadata

from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.groups.coordinators import Coordinators
from kwire.kafka_client.settings import ClientSettings, addresses_of
from tests.support.apache_cluster import ON_APACHE, ApacheCluster, on_apache
from tests.support.bridge_process import BridgeProcess
from tests.support.clients import DEADLINE_S, unique_name
from tests.support.engines import OVER_APACHE, OVER_KWIRE, delete_all_groups, delete_all_topics, upstream_of
from tests.support.rest_groups import RestError, RestGroups
from tests.support.server import wait_until

PARTITIONS = 4
EVENTS = 40
POLL_MS = 200
SHORT_SESSION_S = 6
# Long enough for the election of a new coordinator.
LONG_SESSION_S = 60


@pytest.fixture(
    params=[
        pytest.param(OVER_KWIRE, marks=pytest.mark.full("the coordinator of an Apache Kafka is the one that counts")),
        pytest.param(OVER_APACHE, marks=ON_APACHE),
    ]
)
def bridge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BridgeProcess]:
    upstream = upstream_of(request.param, request)
    assert upstream is not None
    with running(tmp_path, upstream) as process:
        yield process


@contextmanager
def running(directory: Path, upstream: str) -> Iterator[BridgeProcess]:
    """A bridge process. In the end its members leave, and the cluster is empty for the next test."""
    process = BridgeProcess(directory, upstream)
    process.restart()
    try:
        yield process
        process.stop()
    finally:
        process.kill()
        asyncio.run(delete_all_groups(upstream))
        asyncio.run(delete_all_topics(upstream))


class Shared:
    """A group with one topic, whose events are numbered, and what all its members have received of it."""

    def __init__(self, bridge: BridgeProcess, **fields: object) -> None:
        self.bridge = bridge
        self.rest = RestGroups(bridge)
        self.topic, self.group = unique_name("shared"), unique_name("group")
        self.rest.create_topic(self.topic, PARTITIONS)
        self.rest.create(self.group, self.topic, **fields)
        self.sent: set[tuple[int, int]] = set()
        self.received: list[tuple[int, int]] = []

    def publish(self) -> None:
        for number in range(EVENTS):
            stored = self.rest.publish(self.topic, number, key=f"key-{number}")
            self.sent.add((stored["partition_id"], stored["offset"]))

    def consumer(self, *assignors: type) -> KafkaConsumer:
        chosen = {"partition_assignment_strategy": assignors} if assignors else {}
        return KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            metadata_max_age_ms=500,
            **chosen,
        )

    @property
    def bootstrap(self) -> list[str]:
        return self.bridge.upstream.split(",")

    def shares(self, member: str, consumer: KafkaConsumer) -> tuple[list[int], list[int]]:
        """The partitions of both. What the consumer receives meanwhile is committed."""
        self.poll(consumer)
        told = self.rest.assignment(self.group, member)
        return told["partitions"], sorted(one.partition for one in consumer.assignment())

    def settle(self, member: str, consumer: KafkaConsumer) -> tuple[list[int], list[int]]:
        found: list[tuple[list[int], list[int]]] = []

        def are_settled() -> bool:
            found.append(self.shares(member, consumer))
            mine, theirs = found[-1]
            return len(mine) == len(theirs) == PARTITIONS // 2 and not set(mine) & set(theirs)

        wait_until(are_settled, "both have half of the partitions", DEADLINE_S)
        return found[-1]

    def poll(self, consumer: KafkaConsumer) -> None:
        records = [one for some in consumer.poll(POLL_MS).values() for one in some]
        self.received += [(one.partition, one.offset) for one in records]
        ends = {TopicPartition(self.topic, one.partition): one.offset + 1 for one in records}
        if ends:
            consumer.commit({place: OffsetAndMetadata(end, "", -1) for place, end in ends.items()})

    def poll_until(self, consumer: KafkaConsumer, count: int) -> None:
        """Poll until all members together have received this number of events."""

        def are_received() -> bool:
            self.poll(consumer)
            return len(self.received) >= count

        wait_until(are_received, f"{count} events are received", DEADLINE_S)

    def has_all(self, member: str) -> bool:
        return self.rest.settled(self.group, [member]) == [list(range(PARTITIONS))]

    def read(self, member: str) -> None:
        """Receive and commit all events of the partitions of an HTTP member, from the committed offsets on."""
        told = self.rest.assignment(self.group, member)
        who = {"member_id": member, "generation": told["generation"]}
        for partition in told["partitions"]:
            events = self.rest.consume(self.topic, partition, self.rest.committed(self.group, partition) or 0)
            self.received += [(partition, one["offset"]) for one in events]
            if events:
                self.rest.commit(self.group, partition, events[-1]["offset"] + 1, **who)

    def check(self) -> None:
        """Every event was received once, and Kafka's tools show the same offsets as HTTP."""
        assert sorted(self.received) == sorted(self.sent)
        ends = {partition: offset + 1 for partition, offset in sorted(self.sent)}
        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            found = admin.list_group_offsets({self.group: None})[self.group]
        assert {place.partition: one.offset for place, one in found.items() if one.offset >= 0} == ends
        assert {one: self.rest.committed(self.group, one) for one in ends} == ends


@pytest.mark.parametrize(
    "assignors",
    [(), (CooperativeStickyAssignor,), (StickyPartitionAssignor,)],
    ids=["defaults", "cooperative-sticky", "sticky"],
)
def test_a_kafka_consumer_and_an_http_member_share_a_group(bridge: BridgeProcess, assignors: tuple[type, ...]) -> None:
    shared = Shared(bridge)
    shared.publish()
    member = shared.rest.join(shared.group)
    assert shared.has_all(member)
    with closing(shared.consumer(*assignors)) as consumer:
        shared.settle(member, consumer)
        shared.read(member)
        shared.poll_until(consumer, EVENTS)
        shared.check()
        # The consumer gets what the member leaves, and goes on where the member has committed.
        shared.rest.ask("DELETE", f"/consumer-groups/{shared.group}/members/{member}/leave")
        shared.publish()
        shared.poll_until(consumer, 2 * EVENTS)
        assert sorted(one.partition for one in consumer.assignment()) == [0, 1, 2, 3]
        shared.check()
        # The other way round.
        member = shared.rest.join(shared.group)
        shared.settle(member, consumer)
    wait_until(lambda: shared.has_all(member), "the member has what the consumer has left", DEADLINE_S)
    shared.publish()
    shared.read(member)
    shared.check()


def test_a_consumer_of_the_consumer_protocol_shares_the_group_with_an_http_member(bridge: BridgeProcess) -> None:
    shared = Shared(bridge)
    shared.publish()
    member = shared.rest.join(shared.group)
    assert shared.has_all(member)
    consumer = Consumer(
        {
            "bootstrap.servers": bridge.upstream,
            "group.id": shared.group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([shared.topic])

        def shares() -> list[list[int]]:
            consumer.poll(POLL_MS / 1000)
            told = shared.rest.assignment(shared.group, member)
            return [told["partitions"], sorted(one.partition for one in consumer.assignment())]

        def are_settled() -> bool:
            mine, theirs = shares()
            return len(mine) == len(theirs) == PARTITIONS // 2 and not set(mine) & set(theirs)

        wait_until(are_settled, "both have half of the partitions", DEADLINE_S)
        shared.read(member)
        mine, theirs = shares()
        assert {partition for partition, _ in shared.received} <= set(mine)
        consumer.commit(offsets=[Place(shared.topic, theirs[0], 1)], asynchronous=False)
        assert shared.rest.committed(shared.group, theirs[0]) == 1
    finally:
        consumer.close()
    wait_until(lambda: shared.has_all(member), "the member has what the consumer has left", DEADLINE_S)


def test_after_a_kill_of_the_bridge_a_kafka_consumer_goes_on_with_its_commits(bridge: BridgeProcess) -> None:
    shared = Shared(bridge, session_timeout_secs=SHORT_SESSION_S)
    shared.publish()
    member = shared.rest.join(shared.group)
    shared.rest.settled(shared.group, [member])
    shared.read(member)
    shared.check()
    shared.publish()
    bridge.kill()
    with closing(shared.consumer()) as consumer:
        shared.poll_until(consumer, 2 * EVENTS)
        bridge.restart()
        shared.check()
        with pytest.raises(RestError) as gone:
            shared.rest.assignment(shared.group, member)
        assert gone.value.status == 404
        # The definition of the group is still there.
        shared.settle(shared.rest.join(shared.group), consumer)


@on_apache
def test_members_and_commits_outlive_the_kill_of_their_coordinator(apache_kafka: ApacheCluster, tmp_path: Path) -> None:
    with running(tmp_path, apache_kafka.bootstrap) as bridge:
        shared = Shared(bridge, session_timeout_secs=LONG_SESSION_S)
        shared.publish()
        member = shared.rest.join(shared.group)
        (partitions,) = shared.rest.settled(shared.group, [member])
        generation = shared.rest.assignment(shared.group, member)["generation"]
        shared.read(member)
        coordinator = asyncio.run(coordinator_of(apache_kafka, shared.group))
        apache_kafka.kill(coordinator)
        try:
            shared.publish()
            # Each commit is answered when the new coordinator has it.
            shared.read(member)
            shared.check()
            told = shared.rest.assignment(shared.group, member)
            assert (told["partitions"], told["generation"], told["state"]) == (partitions, generation, "stable")
            other = shared.rest.join(shared.group)
            assert [len(one) for one in shared.rest.settled(shared.group, [member, other])] == [2, 2]
        finally:
            apache_kafka.restart(coordinator)
        shared.check()


async def coordinator_of(cluster: ApacheCluster, group: str) -> int:
    client = Cluster(ClientSettings(addresses_of(cluster.bootstrap)))
    try:
        return await Coordinators(client).node_of(group)
    finally:
        client.close()
