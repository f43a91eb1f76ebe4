"""RemoteTopics: topics of a cluster, which is a kwire server here or an Apache Kafka."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client import topic_names
from kwire.kafka_client.admin import Admin
from kwire.streams.remote import directory
from kwire.streams.remote.directory import RemoteTopic, RemoteTopics, TopicMarks
from kwire.streams.remote.logs import RemoteLogs
from tests.support.apache_cluster import ON_APACHE
from tests.support.engines import delete_all_topics
from tests.support.node import in_uvloop, running_node
from tests.support.remote_worlds import remote_logs
from tests.support.stream_worlds import Appends

WAIT_S = 30.0


class Directory:
    """The directory of a cluster, and an administrator of the cluster that it does not know."""

    def __init__(self, logs: RemoteLogs, other: RemoteLogs) -> None:
        self.logs = logs
        self.topics = RemoteTopics(logs, TopicMarks())
        self.admin = Admin(other.cluster)

    async def found(self, name: str) -> RemoteTopic:
        topic = await self.topics.find(name)
        assert topic is not None
        return topic

    async def until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not await is_so():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def directory_of(upstream: str) -> AsyncIterator[Directory]:
    with remote_logs(upstream) as logs, remote_logs(upstream) as other:
        one = Directory(logs, other)
        try:
            yield one
        finally:
            await one.topics.close()
            await logs.close()
            await other.close()


@pytest.fixture(params=["kwire", pytest.param("apache", marks=ON_APACHE)])
def cluster(request: pytest.FixtureRequest) -> str | None:
    """The address of an Apache Kafka, or None for a server that the test starts."""
    return request.getfixturevalue("apache_kafka").bootstrap if request.param == "apache" else None


@asynccontextmanager
async def directory_over(cluster: str | None, directory: Path) -> AsyncIterator[Directory]:
    if cluster is None:
        async with running_node(directory) as node, directory_of(node.kafka_listeners[0].address) as one:
            yield one
        return
    await delete_all_topics(cluster)
    async with directory_of(cluster) as one:
        yield one
    await delete_all_topics(cluster)


@in_uvloop
async def test_a_topic_is_found_with_its_facts(tmp_path: Path, cluster: str | None) -> None:
    async with directory_over(cluster, tmp_path) as one:
        assert await one.topics.find("orders") is None
        await one.admin.create_topic("orders", 3, {"max.message.bytes": "5000"}, replication_factor=1)
        await one.until(lambda: _exists(one, "orders"))
        topic = await one.found("orders")
        assert (topic.name, topic.partition_count, topic.replication_factor) == ("orders", 3, 1)
        assert topic.max_message_bytes == 5000
        assert not (topic.is_room)
        assert not (topic.is_event_topic)
        assert not (topic.is_protected)
        assert (await one.topics.configs(topic))["max.message.bytes"] == "5000"
        placed = await one.topics.placement(topic)
        assert [at.partition for at in placed] == [0, 1, 2]
        brokers = await one.topics.broker_ids()
        assert all(at.leader in brokers for at in placed)
        assert all(list(at.replicas) == list(at.in_sync) == [at.leader] for at in placed)


async def _exists(one: Directory, name: str) -> bool:
    return await one.topics.find(name) is not None


@in_uvloop
@pytest.mark.parametrize("name", ["__consumer_offsets", "", ".", "a b", "x" * 250])
async def test_internal_topics_and_impossible_names_are_not_asked_for(tmp_path: Path, name: str) -> None:
    with remote_logs("127.0.0.1:1") as logs:
        assert await RemoteTopics(logs, TopicMarks()).find(name) is None
        await logs.close()


@in_uvloop
async def test_a_known_topic_and_its_logs_need_no_request(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, directory_of(node.kafka_listeners[0].address) as one:
        await one.admin.create_topic("orders", 2)
        topic = await one.found("orders")
        sent = one.logs.cluster.counters.sent_bytes
        assert await one.topics.find("orders") is topic
        log = topic.stream(1)
        assert log is topic.stream(1)
        assert one.logs.find("orders", 1) is log
        assert one.logs.cluster.counters.sent_bytes == sent
        appends = Appends()
        appends.send(log, b"a")
        async with asyncio.timeout(WAIT_S):
            while not appends:
                await asyncio.sleep(0.01)
        await log.ready()
        assert log.bounds() == (0, 1, 1)
        sizes = await one.topics.sizes(topic)
        assert sizes[0] == 0
        assert sizes[1] > 0


@in_uvloop
async def test_marks_are_asked_with_the_topic_id(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, directory_of(node.kafka_listeners[0].address) as one:
        await one.admin.create_topic("orders")
        topic = await one.found("orders")
        marks = one.topics.marks
        marks.is_room = lambda name, topic_id: (name, topic_id) == ("orders", topic.topic_id)
        marks.is_protected = lambda name: name == "orders"
        assert topic.is_room
        assert topic.is_protected
        assert not topic.is_event_topic


@in_uvloop
async def test_changes_of_others_are_noticed(
    tmp_path: Path, cluster: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(directory, "LIMIT_SECONDS", 0.0)
    async with directory_over(cluster, tmp_path) as one:
        await one.admin.create_topic("orders", 1, {"max.message.bytes": "5000"})
        await one.until(lambda: _exists(one, "orders"))
        first = await one.found("orders")
        log = first.stream()
        await one.admin.add_partitions("orders", 4)
        await one.admin.change_configs("orders", {"max.message.bytes": "6000"})

        async def has_changed() -> bool:
            found = await one.found("orders")
            return found.partition_count == 4 and found.max_message_bytes == log.max_batch_bytes == 6000

        await one.until(has_changed)
        assert await one.found("orders") is first
        await one.admin.delete_topic("orders")
        await one.admin.create_topic("orders", 2)

        async def is_another() -> bool:
            found = await one.topics.find("orders")
            return found is not None and found.topic_id != first.topic_id

        await one.until(is_another)
        second = await one.found("orders")
        assert second.partition_count == 2
        assert log.is_gone
        # A request that still has the former topic cannot write to the new one.
        former = first.stream()
        assert former.is_gone
        assert former is not second.stream()
        appends = Appends()
        appends.send(former, b"lost?")
        (refused,) = appends
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await one.admin.delete_topic("orders")

        async def is_missing() -> bool:
            return await one.topics.find("orders") is None

        await one.until(is_missing)
        assert second.stream().is_gone


@in_uvloop
async def test_a_request_waits_for_facts_that_are_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "FIND_SECONDS", 0.0)
    async with running_node(tmp_path) as node, directory_of(node.kafka_listeners[0].address) as one:
        await one.admin.create_topic("orders")
        await one.found("orders")
        await one.admin.delete_topic("orders")
        assert await one.topics.find("orders") is None


@in_uvloop
async def test_topics_that_were_not_used_for_long_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "TOPICS_MAX", 2)
    async with running_node(tmp_path) as node, directory_of(node.kafka_listeners[0].address) as one:
        for name in ("a", "b", "c"):
            await one.admin.create_topic(name)
        a = await one.found("a")
        a.stream()
        for name in ("b", "a", "c", "b"):
            await one.found(name)
        known = one.logs.cluster.metadata.topics
        # `a` has a log, so its leader must stay known.
        assert set(known) == {"a", "b", "c"}
        await one.found("a")
        assert set(known) == {"a", "b"}
        assert (await one.found("a")).stream() is a.stream()


@in_uvloop
async def test_names_are_listed_in_order_and_asked_for_once(
    tmp_path: Path, cluster: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_names, "CHANGE_SECONDS", 0.0)
    async with directory_over(cluster, tmp_path) as one:
        for name in ("b", "a", "d.e", "__hidden"):
            await one.admin.create_topic(name)
        await one.until(lambda: _has_names(one, 3))
        assert list(await one.topics.names_from("", 10)) == ["a", "b", "d.e"]
        assert list(await one.topics.names_from("b", 1)) == ["b"]
        sent = one.logs.cluster.counters.sent_bytes
        assert list(await one.topics.names_from("c", 10)) == ["d.e"]
        assert one.logs.cluster.counters.sent_bytes == sent


async def _has_names(one: Directory, count: int) -> bool:
    one.topics.forget("")
    return len(await one.topics.names_from("", count + 1)) == count


@in_uvloop
async def test_names_are_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_node(tmp_path) as node, directory_of(node.kafka_listeners[0].address) as one:
        await one.admin.create_topic("a")
        assert list(await one.topics.names_from("", 10)) == ["a"]
        await one.admin.create_topic("b")
        assert list(await one.topics.names_from("", 10)) == ["a"]
        # A response soon after a change may be that of a broker that does not know of it, so it is not kept.
        one.topics.forget("b")
        assert list(await one.topics.names_from("", 10)) == ["a", "b"]
        await one.admin.create_topic("c")
        assert list(await one.topics.names_from("", 10)) == ["a", "b", "c"]
        monkeypatch.setattr(topic_names, "CHANGE_SECONDS", 0.0)
        one.topics.forget("c")
        assert list(await one.topics.names_from("", 10)) == ["a", "b", "c"]
        await one.admin.create_topic("d")
        assert list(await one.topics.names_from("", 10)) == ["a", "b", "c"]
        monkeypatch.setattr(topic_names, "NAMES_SECONDS", 0.0)
        assert list(await one.topics.names_from("", 10)) == ["a", "b", "c", "d"]


@in_uvloop
async def test_a_cluster_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    with remote_logs("127.0.0.1:1") as logs:
        topics = RemoteTopics(logs, TopicMarks())
        with pytest.raises(KafkaError) as refused:
            await topics.find("orders")
        assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
        with pytest.raises(KafkaError):
            await topics.names_from("", 1)
        with pytest.raises(KafkaError):
            await topics.broker_ids()
        await topics.close()
        await logs.close()
