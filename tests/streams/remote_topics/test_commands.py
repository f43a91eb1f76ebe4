"""Commands about topics of a cluster, which is a kwire server here or an Apache Kafka."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kwire.access.audit.entries import AuditEntry, NoAudit
from kwire.errors import ErrorCode, KafkaError, RoomNotFound
from kwire.streams.remote import agreement
from kwire.streams.remote.directory import RemoteTopics, TopicMarks
from kwire.streams.remote.log import incarnation_of
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote_rooms.rooms import RemoteRooms
from kwire.streams.remote_topics.commands import RemoteTopicCommands
from tests.streams.remote_rooms.test_rooms import world
from tests.support.apache_cluster import ON_APACHE
from tests.support.engines import delete_all_topics
from tests.support.node import in_uvloop
from tests.support.remote_worlds import until
from tests.support.stream_worlds import Appends

LONG_MS = "100000000"


class Changes(NoAudit):
    """Keeps the changes that are recorded."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.facts: list[Mapping[str, object]] = []

    def record(self, entry: AuditEntry) -> None:
        raise AssertionError(entry)

    def changed(self, what: str, resource_type: str, name: str, facts: Mapping[str, object] | None = None) -> None:
        assert resource_type == "TOPIC"
        self.names.append(f"{what} {name}")
        self.facts.append(facts or {})


class Commanded:
    """The commands, and what they change."""

    def __init__(self, logs: RemoteLogs, rooms: RemoteRooms) -> None:
        self.logs = logs
        self.rooms = rooms
        self.audit = Changes()
        marks = TopicMarks()
        marks.is_room = lambda name, topic_id: rooms.records.has(name, incarnation_of(topic_id))
        marks.is_protected = lambda name: name == "journal"
        self.topics = RemoteTopics(logs, marks)
        self.commands = RemoteTopicCommands(logs, self.topics, rooms, 3, self.audit)

    async def partition_count(self, name: str) -> int | None:
        topic = await self.topics.find(name)
        return None if topic is None else topic.partition_count


@pytest.fixture(params=["kwire", pytest.param("apache", marks=ON_APACHE)])
def cluster(request: pytest.FixtureRequest) -> str | None:
    """The address of an Apache Kafka, or None for a server that the test starts."""
    return request.getfixturevalue("apache_kafka").bootstrap if request.param == "apache" else None


@asynccontextmanager
async def commanded(directory: Path, cluster: str | None) -> AsyncIterator[Commanded]:
    async with world(directory, cluster) as made:
        one = Commanded(made.logs, made.rooms)
        try:
            yield one
        finally:
            await one.topics.close()
    if cluster is not None:
        await delete_all_topics(cluster)


async def refused(command: "asyncio.Future[None] | object") -> KafkaError:
    with pytest.raises(KafkaError) as error:
        await command  # type: ignore[misc]
    return error.value


@in_uvloop
async def test_topics_are_created_changed_and_deleted(tmp_path: Path, cluster: str | None) -> None:
    async with commanded(tmp_path, cluster) as one:
        commands = one.commands
        await commands.create("orders", 2, {"retention.ms": LONG_MS})
        # It can be found and used at once.
        assert await one.partition_count("orders") == 2
        assert list(await one.topics.names_from("", 10)) == ["orders"]
        error = await refused(commands.create("orders", 2, {}))
        assert (error.code, "orders" in str(error)) == (ErrorCode.TOPIC_ALREADY_EXISTS, True)
        await commands.create_if_missing("orders")
        await commands.create_if_missing("payments")
        assert await one.partition_count("payments") == 3
        await commands.add_partitions("orders", 4)
        assert await one.partition_count("orders") == 4
        topic = await one.topics.find("orders")
        assert topic is not None
        assert (await one.topics.configs(topic))["retention.ms"] == LONG_MS
        log = topic.stream(1)
        await commands.delete("payments")
        assert await one.partition_count("payments") is None
        assert (await refused(commands.delete("payments"))).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # A topic that is created again is another one.
        await commands.delete("orders")
        assert log.is_gone
        await commands.create("orders", 1, {})
        again = await one.topics.find("orders")
        assert again is not None
        assert (again.topic_id != topic.topic_id, again.partition_count) == (True, 1)
        assert one.audit.names == [
            "topic.created orders",
            "topic.created payments",
            "topic.extended orders",
            "topic.deleted payments",
            "topic.deleted orders",
            "topic.created orders",
        ]
        assert one.audit.facts[0] == {"partitions": 2, "settings": ["retention.ms"]}


@in_uvloop
async def test_errors_are_those_of_the_cluster_and_change_nothing(tmp_path: Path, cluster: str | None) -> None:
    async with commanded(tmp_path, cluster) as one:
        commands = one.commands
        await commands.create("orders", 2, {})
        del one.audit.names[:]
        for command, code, text in (
            (commands.create("a", 1, {"no.such.setting": "1"}), ErrorCode.INVALID_CONFIG, "no.such.setting"),
            (commands.create("a", 1, {"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG, "retention.ms"),
            (commands.create("a b", 1, {}), ErrorCode.INVALID_TOPIC_EXCEPTION, "a b"),
            (commands.create("a", 1, {}, 9), ErrorCode.INVALID_REPLICATION_FACTOR, "replica"),
            (commands.add_partitions("orders", 2), ErrorCode.INVALID_PARTITIONS, "orders"),
            (commands.add_partitions("none", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "none"),
        ):
            error = await refused(command)
            assert (error.code, text.lower() in str(error).lower()) == (code, True), str(error)
        assert one.audit.names == []
        assert await one.partition_count("a") is None
        assert await one.partition_count("orders") == 2


@in_uvloop
async def test_a_room_is_deleted_as_a_room(tmp_path: Path) -> None:
    async with commanded(tmp_path, None) as one:
        await one.rooms.create("lobby")
        await one.commands.delete("lobby")
        assert one.rooms.count == 0
        with pytest.raises(RoomNotFound):
            await one.rooms.find("lobby")


@in_uvloop
async def test_protected_topics_are_not_changed(tmp_path: Path) -> None:
    async with commanded(tmp_path, None) as one:
        for command in (
            one.commands.create("journal", 1, {}),
            one.commands.create_if_missing("journal"),
            one.commands.add_partitions("journal", 2),
            one.commands.delete("journal"),
        ):
            assert (await refused(command)).code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert one.audit.names == []


@in_uvloop
async def test_a_topic_that_no_broker_shows_in_time_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with commanded(tmp_path, None) as one:
        monkeypatch.setattr(agreement, "AGREEMENT_SECONDS", 0.0)

        async def not_yet(name: str) -> None:
            return None

        monkeypatch.setattr(one.topics, "ask", not_yet)
        error = await refused(one.commands.create("orders", 1, {}))
        assert (error.code, "was created" in str(error)) == (ErrorCode.LEADER_NOT_AVAILABLE, True)
        assert one.audit.names == ["topic.created orders"]


@in_uvloop
async def test_appends_are_refused_while_a_topic_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with commanded(tmp_path, None) as one:
        await one.commands.create("orders", 1, {})
        topic = await one.topics.find("orders")
        assert topic is not None
        log, appends = topic.stream(), Appends()
        admin = one.commands._admin

        async def fail(name: str, topic_id: bytes) -> None:
            appends.send(log, b"lost?")
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection was lost")

        monkeypatch.setattr(admin, "delete_topic", fail)
        assert (await refused(one.commands.delete("orders"))).code is ErrorCode.NETWORK_EXCEPTION
        assert isinstance(appends[0], KafkaError)
        # The outcome is not known, and the topic still exists.
        appends.send(log, b"kept")
        await until(lambda: len(appends) == 2)
        assert appends[1] == 0
