"""Commands to the owner of topics, rooms and events, where the owner is this process."""

from pathlib import Path

import pytest

from kwire.errors import ErrorCode, IdempotencyConflict, KafkaError, RoomNotFound, WrongExpectedVersion
from kwire.streams.commands import Commands
from kwire.streams.local_commands import local_commands
from kwire.streams.rooms.settings import RoomOverrides
from tests.support.event_store import draft, payloads_of
from tests.support.node import in_loop
from tests.support.rooms import RoomsNode


def commands_of(node: RoomsNode) -> Commands:
    return local_commands(node.topics, node.event_store, node.event_topics, node.rooms, None)


@in_loop
async def test_events_are_committed_once_and_at_the_expected_version(tmp_path: Path) -> None:
    with RoomsNode(tmp_path) as node:
        topic = await node.create_event_topic("orders")
        commands = commands_of(node)
        first = await commands.events.commit([draft("orders", 1), draft("orders", 2)], idempotency_key="k")
        assert first == (["orders-1", "orders-2"], False)
        again = await commands.events.commit([draft("orders", 1), draft("orders", 2)], idempotency_key="k")
        assert again == (["orders-1", "orders-2"], True)
        with pytest.raises(IdempotencyConflict):
            await commands.events.commit([draft("orders", 3)], idempotency_key="k")
        with pytest.raises(WrongExpectedVersion):
            await commands.events.commit([draft("orders", 3, expected_version=0)])
        assert (await commands.events.commit([draft("orders", 3, expected_version=1)])).event_ids == ["orders-3"]
        assert payloads_of(topic) == [1, 2, 3]
        await node.event_store.close()


@in_loop
async def test_topics_are_created_extended_and_deleted(tmp_path: Path) -> None:
    with RoomsNode(tmp_path) as node:
        topics = commands_of(node).topics
        await topics.create("t", 2, {"retention.ms": "1000"})
        topic = node.topics.get("t")
        assert topic is not None
        assert (len(topic.partitions), dict(topic.configs)) == (2, {"retention.ms": "1000"})
        with pytest.raises(KafkaError) as refused:
            await topics.create("t", 2, {})
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await topics.add_partitions("t", 5)
        assert len(topic.partitions) == 5
        await topics.create_if_missing("t")
        await topics.create_if_missing("u")
        assert node.topics.get("t") is topic
        assert node.topics.get("u") is not None
        await topics.delete("t")
        assert node.topics.get("t") is None
        for command in (topics.delete("t"), topics.add_partitions("t", 9)):
            with pytest.raises(KafkaError) as refused:
                await command
            assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_rooms_are_created_changed_and_deleted(tmp_path: Path) -> None:
    with RoomsNode(tmp_path) as node:
        rooms = commands_of(node).rooms
        assert await rooms.create("lobby", RoomOverrides(max_events=10))
        assert not await rooms.create("lobby", RoomOverrides(max_events=20))
        assert node.rooms.stats(node.rooms.get("lobby")).retention.max_events == 20
        await rooms.delete("lobby")
        with pytest.raises(RoomNotFound):
            await rooms.delete("lobby")
