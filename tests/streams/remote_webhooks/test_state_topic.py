"""The topic with the state of webhooks on a cluster: who may write it, and what its next owner reads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from kwire.access.secrets.node_keys import KEY_FILE_NAME, NodeKeys
from kwire.clock import SystemClock
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.admin import Admin
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote.transactions.writer import TransactionalWriter, TransactionBatch
from kwire.streams.remote_webhooks import state_topic, stored_state, topic_setup
from kwire.streams.remote_webhooks.definition_store import RemoteDefinitionStore, has_encrypted
from kwire.streams.remote_webhooks.state_topic import RemoteStateTopic
from kwire.streams.remote_webhooks.stored_state import Owner, StoredState, encode
from kwire.streams.webhooks.definition import Definition, TopicStart, checked_secrets
from storage.batch.builder import build_batch_from_bodies, encode_record_body
from storage.batch.record_batch import Record, build_batch, parse_header
from tests.support.apache_cluster import ON_APACHE, ApacheCluster
from tests.support.batches import UnsyncedFiles
from tests.support.node import in_uvloop, running_node
from tests.support.remote_worlds import remote_logs

CLOCK = SystemClock()
WAIT_S = 30.0
_numbers = count()


class Place:
    """A cluster, and bridges that share a topic of it."""

    def __init__(self, logs: RemoteLogs, directory: Path) -> None:
        self.logs = logs
        self.name = f"__hooks{next(_numbers)}"
        self.directory = directory
        self.opened: list[RemoteStateTopic] = []
        self.lanes = DiskLanes()

    def topic(self, token: str) -> RemoteStateTopic:
        self.opened.append(RemoteStateTopic(self.logs, self.name, Owner(token, "here"), CLOCK))
        return self.opened[-1]

    async def owner(self, token: str) -> RemoteStateTopic:
        """A bridge that has taken over, as one that starts does."""
        topic = self.topic(token)
        if await topic.read():
            await topic.take_over()
        else:
            await topic.create()
        return topic

    def definitions(self, topic: RemoteStateTopic, key: str = KEY_FILE_NAME) -> RemoteDefinitionStore:
        path = str(self.directory / key)
        keys = NodeKeys(path, lambda: has_encrypted(topic), UnsyncedFiles(), self.lanes.survey)
        return RemoteDefinitionStore(topic, keys, CLOCK)


@pytest.fixture(params=["kwire", pytest.param("apache", marks=ON_APACHE)])
def upstream(request: pytest.FixtureRequest) -> str | None:
    """The address of an Apache Kafka, or None for a server that the test starts."""
    if request.param == "kwire":
        return None
    kafka: ApacheCluster = request.getfixturevalue("apache_kafka")
    return kafka.bootstrap


@asynccontextmanager
async def place_at(address: str, directory: Path) -> AsyncIterator[Place]:
    with remote_logs(address) as logs:
        place = Place(logs, directory)
        try:
            yield place
        finally:
            for topic in place.opened:
                await topic.close()
            await logs.close()
            place.lanes.close()


@asynccontextmanager
async def place_on(upstream: str | None, directory: Path) -> AsyncIterator[Place]:
    if upstream is None:
        async with (
            running_node(directory / "node") as node,
            place_at(node.kafka_listeners[0].address, directory) as one,
        ):
            yield one
    else:
        async with place_at(upstream, directory) as one:
            yield one


async def store(topic: RemoteStateTopic, key: object, value: object) -> None:
    record = encode_record_body(encode(key), None if value is None else encode(value), 0, b"")
    await topic.append(*build_batch_from_bodies([record], CLOCK.now_ms()))


async def stored(topic: RemoteStateTopic) -> dict[bytes, bytes | None]:
    return {key or b"": value async for key, value in topic.records()}


def definition(number: int) -> Definition:
    return Definition(
        webhook_id=f"id-{number}",
        url=f"https://hooks.example/{number}?token=planted",
        topics={"orders": TopicStart(bytes(16), 0, "mark")},
        secrets=checked_secrets(None),
        created_ms=1,
    )


@in_uvloop
async def test_the_next_owner_reads_what_was_stored_and_fences_the_former(upstream: str | None, tmp_path: Path) -> None:
    async with place_on(upstream, tmp_path) as place:
        first = place.topic("a")
        assert not await first.read()
        await first.create()
        assert first.exists
        for number in range(5):
            await store(first, ["id", "a", number], number)
        await store(first, ["id", "a", 1], None)
        await store(first, ["id", "a", 2], 20)
        second = await place.owner("b")
        assert second.stored_owner == Owner("b", "here")
        assert await stored(second) == {
            b'["id","a",0]': b"0",
            b'["id","a",2]': b"20",
            b'["id","a",3]': b"3",
            b'["id","a",4]': b"4",
        }
        with pytest.raises(KafkaError, match="another process has taken over"):
            await store(first, ["id", "a", 0], 100)
        assert (await asyncio.wait_for(first.lost, WAIT_S)).code is ErrorCode.PRODUCER_FENCED
        await store(second, ["id", "a", 0], 7)
        assert not second.lost.done()
        third = await place.owner("c")
        assert (await stored(third))[b'["id","a",0]'] == b"7"


@in_uvloop
async def test_an_owner_with_nothing_to_store_notices_that_it_was_fenced(
    upstream: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_topic, "CHECK_SECONDS", 0.05)
    async with place_on(upstream, tmp_path) as place:
        first = await place.owner("a")
        second = await place.owner("b")
        await asyncio.wait_for(asyncio.shield(first.lost), WAIT_S)
        found = place.topic("c")
        assert await found.read()
        assert found.stored_owner == second.owner
        assert not second.lost.done()


@in_uvloop
async def test_the_second_of_two_bridges_that_create_the_topic_gives_way(upstream: str | None, tmp_path: Path) -> None:
    async with place_on(upstream, tmp_path) as place:
        first, second = place.topic("a"), place.topic("b")
        assert not await first.read()
        assert not await second.read()
        await first.create()
        with pytest.raises(KafkaError, match="another bridge has begun"):
            await second.create()
        assert second.lost.done()
        assert not second.exists
        await store(first, ["id", "s"], 1)


@in_uvloop
async def test_the_former_owner_finds_the_next_one_before_that_can_write(
    upstream: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place_on(upstream, tmp_path) as place:
        first, second = await place.owner("a"), place.topic("b")
        assert await second.read()
        has_fenced, may_write = asyncio.Event(), asyncio.Event()
        write_owner = second._write_owner

        async def write_later() -> None:
            has_fenced.set()
            await may_write.wait()
            await write_owner()

        monkeypatch.setattr(second, "_write_owner", write_later)
        taking_over = asyncio.create_task(second.take_over())
        await asyncio.wait_for(has_fenced.wait(), WAIT_S)
        with pytest.raises(KafkaError, match="another process has taken over"):
            await store(first, ["id", "s"], 1)
        again = place.topic("a")
        assert await again.read(is_complete=True)
        assert again.stored_owner == second.owner
        may_write.set()
        await asyncio.wait_for(taking_over, WAIT_S)


@in_uvloop
async def test_a_read_that_has_to_be_complete_does_not_end_before_an_open_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_topic, "GLANCE_SECONDS", 0.05)
    async with place_on(None, tmp_path) as place:
        first = await place.owner("a")
        writer = first._writer
        assert writer is not None
        record = encode_record_body(encode(["id", "s"]), b"1", 0, b"")
        batch, _ = build_batch_from_bodies([record], CLOCK.now_ms())
        log = await place.logs.open(place.name)
        await writer._send([TransactionBatch(place.name, log.topic_id, 0, batch)])
        found = place.topic("b")
        assert await found.read()
        with pytest.raises(KafkaError, match="has a transaction that does not end"):
            await found.read(is_complete=True)


@in_uvloop
async def test_what_another_bridge_stores_while_the_topic_is_created_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place_on(None, tmp_path) as place:
        first, second = place.topic("a"), place.topic("b")
        assert not await second.read()
        assert await stored(second) == {}
        take_over = second.take_over

        async def take_over_after_the_other() -> None:
            await first.create()
            await place.definitions(first).put(definition(1))
            await take_over()

        monkeypatch.setattr(second, "take_over", take_over_after_the_other)
        with pytest.raises(KafkaError, match="another bridge has begun"):
            await second.create()
        assert second.lost.done()
        (found,) = await place.definitions(await place.owner("b")).load(had_webhooks=False)
        assert found.webhook_id == "id-1"


@in_uvloop
async def test_a_topic_that_was_created_before_its_bridge_was_killed_is_used(tmp_path: Path) -> None:
    async with place_on(None, tmp_path) as place:
        await topic_setup.create_state_topic(place.logs, place.name)
        topic = place.topic("a")
        await topic.create()
        assert topic.exists


@in_uvloop
async def test_a_bridge_that_could_not_take_over_the_topic_that_it_created_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place_on(None, tmp_path) as place:
        topic = place.topic("a")
        assert not await topic.read()

        async def refuse(writer: TransactionalWriter) -> None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no right")

        with monkeypatch.context() as patched:
            patched.setattr(TransactionalWriter, "open", refuse)
            with pytest.raises(KafkaError, match="no right"):
                await topic.create()
        await topic.create()
        assert topic.exists
        assert not topic.lost.done()
        await store(topic, ["id", "s"], 1)


@in_uvloop
@pytest.mark.parametrize(
    ("partitions", "configs", "problem"),
    [
        (2, {}, "2 partitions"),
        (1, {"cleanup.policy": "delete"}, "cleanup.policy=delete"),
        (1, {"max.message.bytes": "1000"}, "max.message.bytes=1000"),
    ],
)
async def test_a_topic_that_cannot_store_webhooks_is_refused(
    tmp_path: Path, partitions: int, configs: dict[str, str], problem: str
) -> None:
    async with place_on(None, tmp_path) as place:
        await Admin(place.logs.cluster).create_topic(
            place.name, partitions, {**topic_setup.NEW_TOPIC_CONFIGS, **configs}
        )
        with pytest.raises(KafkaError, match=f"cannot store webhooks: it has {problem}"):
            await place.topic("a").read()


@in_uvloop
async def test_a_deleted_topic_ends_the_ownership(tmp_path: Path) -> None:
    async with place_on(None, tmp_path) as place:
        topic = await place.owner("a")
        await Admin(place.logs.cluster).delete_topic(place.name)
        with pytest.raises(KafkaError):
            await store(topic, ["id", "s"], 1)
        assert topic.lost.done()


@in_uvloop
@pytest.mark.parametrize("key", [b"user-7", b'["owner","x"]', b'["definition"]', b"[]", b'["id"]'])
async def test_records_of_something_else_are_refused(tmp_path: Path, key: bytes) -> None:
    async with place_on(None, tmp_path) as place:
        log = await topic_setup.create_state_topic(place.logs, place.name)
        batch = memoryview(bytearray(build_batch([Record(key, b"{}", 1000)])))
        appended: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        log.append(batch, parse_header(batch), appended.set_result)
        assert await asyncio.wait_for(appended, WAIT_S) == 0
        with pytest.raises(KafkaError, match="is it used by something else"):
            await place.topic("a").read()


@in_uvloop
async def test_more_state_than_a_bridge_may_load_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with place_on(None, tmp_path) as place:
        topic = await place.owner("a")
        await store(topic, ["id", "s"], "1" * 1000)
        await store(topic, ["id", "s"], "1" * 900)
        monkeypatch.setattr(stored_state, "STATE_BYTES_MAX", 1000)
        with pytest.raises(KafkaError, match="has more than 1000 bytes"):
            await place.topic("b").read()
        monkeypatch.setattr(stored_state, "STATE_BYTES_MAX", 1200)
        found = StoredState()
        await found.read(await place.logs.open(place.name))
        assert len(found.state) == 1


@in_uvloop
async def test_definitions_are_stored_encrypted_and_removed(upstream: str | None, tmp_path: Path) -> None:
    async with place_on(upstream, tmp_path) as place:
        topic = await place.owner("a")
        definitions = place.definitions(topic)
        assert await definitions.load(had_webhooks=False) == []
        first, second = definition(1), definition(2)
        await definitions.put(first)
        await definitions.put(second)
        await definitions.put(second.changed(state="paused"))
        await definitions.remove(first.webhook_id)
        await definitions.remove("unknown")
        next_topic = await place.owner("b")
        assert "planted" not in repr(next_topic.definitions)
        assert await stored(next_topic) == {}
        (found,) = await place.definitions(next_topic).load(had_webhooks=False)
        assert found == second.changed(state="paused")


@in_uvloop
async def test_a_bridge_without_the_key_does_not_take_over(tmp_path: Path) -> None:
    async with place_on(None, tmp_path) as place:
        topic = await place.owner("a")
        await place.definitions(topic).put(definition(1))
        other = place.topic("b")
        assert await other.read()
        missing = place.definitions(other, "other.key")
        with pytest.raises(KafkaError, match=r"encrypted with another key: copy the key file .*other\.key is missing"):
            await missing.check_keys()
        assert not (tmp_path / "other.key").exists()
        await place.definitions(other).check_keys()


@in_uvloop
async def test_a_change_whose_outcome_is_not_known_is_undone_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place_on(None, tmp_path) as place:
        topic = await place.owner("a")
        definitions = place.definitions(topic)
        await definitions.put(definition(1))
        monkeypatch.setattr(state_topic, "WRITE_SECONDS", 0.0)
        for one in (definition(2), definition(1).changed(state="paused")):
            with pytest.raises(KafkaError, match="the outcome of a transaction is unknown"):
                await definitions.put(one)
        monkeypatch.setattr(state_topic, "WRITE_SECONDS", WAIT_S)
        await definitions.put(definition(3))
        found = await place.definitions(await place.owner("b")).load(had_webhooks=False)
        assert sorted((one.webhook_id, one.state) for one in found) == [("id-1", "active"), ("id-3", "active")]
