"""A cluster of three nodes of Apache Kafka on loopback: each is a broker and a controller, and can be killed."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.errors import Unreachable
from kwire.kafka_client.settings import ClientSettings, addresses_of
from kwire.testing.ports import unused_port
from kwire.wire.messages.metadata import METADATA, MetadataRequest, MetadataResponse
from tests.support.apache_kafka import START_TIMEOUT_S, ApacheKafkaProcess, Membership
from tests.support.distribution import EXPENSIVE

NODE_IDS = (1, 2, 3)
HEAP = "320M"
POLL_S = 0.05
# Kills the nodes, which are in its process group, when the test process ends, however that happens.
GUARD = ("sh", "-c", "cat >/dev/null; kill -KILL 0")

# The marks of tests that use the fixture `apache_kafka`. They run in one worker process, so a run has one such cluster.
ON_APACHE = (
    pytest.mark.needs_java,
    pytest.mark.full("a cluster of Apache Kafka has to be started"),
    pytest.mark.xdist_group(EXPENSIVE),
)

Test = TypeVar("Test", bound=Callable[..., object])


def on_apache(test: Test) -> Test:
    """Give one test the marks ON_APACHE."""
    for mark in ON_APACHE:
        test = mark(test)
    return test


class ApacheCluster:
    """Topics have three replicas, two of which must be in sync. `settings` are added to Kafka's own on every node."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, *, heap: str = HEAP) -> None:
        ports = {node_id: (unused_port(), unused_port()) for node_id in NODE_IDS}
        voters = ",".join(f"{node_id}@127.0.0.1:{controller}" for node_id, (_, controller) in ports.items())

        def prepared(node_id: int) -> ApacheKafkaProcess:
            port, controller = ports[node_id]
            where = directory / f"node{node_id}"
            where.mkdir(parents=True)
            return ApacheKafkaProcess(
                where,
                Membership(node_id, port, controller, voters),
                settings={"auto.create.topics.enable": "false", **(settings or {})},
                heap=heap,
            )

        with ThreadPoolExecutor(len(NODE_IDS)) as threads:
            self.nodes = dict(zip(NODE_IDS, threads.map(prepared, NODE_IDS), strict=True))
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> None:
        """Start the nodes, and wait until the cluster has all brokers."""
        self._guard = subprocess.Popen(GUARD, stdin=subprocess.PIPE, process_group=0)
        try:
            with ThreadPoolExecutor(len(NODE_IDS)) as threads:
                list(threads.map(self._start_node, NODE_IDS))
            self.wait_for_brokers()
        except BaseException:
            self.stop()
            raise

    def _start_node(self, node_id: int) -> None:
        assert self._guard is not None
        self.nodes[node_id].start(process_group=self._guard.pid)

    def kill(self, node_id: int) -> None:
        """End a node as a crash does."""
        self.nodes[node_id].kill()

    def restart(self, node_id: int) -> None:
        """Start a node that was killed, and wait until all replicas are in sync again."""
        self._start_node(node_id)
        self.wait_for_replicas()

    def stop(self) -> None:
        """End all nodes. Nobody needs their data afterwards."""
        for node in self.nodes.values():
            node.kill()
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def wait_for_brokers(self) -> None:
        """Wait until every broker knows all of them."""
        asyncio.run(self._until(lambda found: len(found.brokers) == len(NODE_IDS)))

    def wait_for_replicas(self) -> None:
        """Wait until every broker says that all replicas of all partitions are in sync."""
        asyncio.run(self._until(_is_in_sync))

    async def _until(self, condition: Callable[[MetadataResponse], bool]) -> None:
        async with asyncio.timeout(START_TIMEOUT_S):
            for node in self.nodes.values():
                while True:
                    found = await _metadata_of(node)
                    if found is not None and condition(found):
                        break
                    await asyncio.sleep(POLL_S)


async def _metadata_of(node: ApacheKafkaProcess) -> MetadataResponse | None:
    """What a broker knows of the cluster, or nothing if it does not answer yet."""
    cluster = Cluster(ClientSettings(addresses_of(node.bootstrap)))
    try:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response: MetadataResponse = await cluster.request_any(METADATA, request)
    except Unreachable:
        return None
    finally:
        cluster.close()
    return response


def _is_in_sync(found: MetadataResponse) -> bool:
    partitions = [partition for topic in found.topics for partition in topic.partitions]
    return len(found.brokers) == len(NODE_IDS) and all(
        partition.leader_id >= 0 and len(partition.isr_nodes) == len(partition.replica_nodes)
        for partition in partitions
    )


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """The cluster that tests share. They leave it running, and delete what they create."""
    cluster = ApacheCluster(tmp_path_factory.mktemp("apache-kafka"))
    cluster.start()
    yield cluster
    cluster.stop()
