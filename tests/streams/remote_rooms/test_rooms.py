"""Rooms on a cluster: what the bridge stores about them, what it deletes, and what it leaves alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kwire.concurrency.disk_lanes import DiskLanes
from kwire.config import load
from kwire.errors import ErrorCode, KafkaError, NotARoom, RoomNotFound, TooManyRooms, TopicHasPartitions
from kwire.kafka_client import admin
from kwire.kafka_client.admin import Admin
from kwire.metastore import EmbeddedMetaStore
from kwire.streams.remote.directory import RemoteTopics, TopicMarks
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote_rooms import rooms
from kwire.streams.remote_rooms.cleanup import RemoteCleanup
from kwire.streams.remote_rooms.count_retention import CountRetention
from kwire.streams.remote_rooms.records import RoomRecords
from kwire.streams.remote_rooms.rooms import RemoteRoom, RemoteRooms
from kwire.streams.rooms.interface import RoomStats
from kwire.streams.rooms.settings import RoomOverrides
from kwire.wire.messages.delete_topics import DELETE_TOPICS
from storage.disk.files import Files
from tests.support.clock import ManualClock
from tests.support.node import in_uvloop, running_node
from tests.support.remote_worlds import remote_logs, until
from tests.support.rooms import CountedSubscribers
from tests.support.stream_worlds import Appends

HOUR_MS = 3_600_000
COUNT_5 = RoomOverrides("count", None, 5)


class World(NamedTuple):
    rooms: RemoteRooms
    logs: RemoteLogs
    admin: Admin
    clock: ManualClock
    subscribers: CountedSubscribers
    store_dir: Path
    # The topics that have webhooks or groups.
    in_use: set[str]

    def cleanup(self) -> RemoteCleanup:
        return RemoteCleanup(
            self.rooms,
            self.logs,
            self.subscribers,
            self.clock,
            is_enabled=True,
            is_in_use=self.in_use.__contains__,
        )


@asynccontextmanager
async def world(directory: Path, upstream: str | None = None, *settings: str) -> AsyncIterator[World]:
    """The rooms of a bridge over a node in this process."""
    if upstream is None:
        async with (
            running_node(directory / "node", "log.retention.ms=-1") as node,
            world(directory, node.kafka_listeners[0].address, *settings) as made,
        ):
            yield made
        return
    lanes, clock, subscribers = DiskLanes(), ManualClock(), CountedSubscribers()
    store_dir = directory / "bridge"
    store_dir.mkdir(exist_ok=True)
    metastore = EmbeddedMetaStore.open(str(store_dir), Files(), lanes, clock)
    config = load(data_dir=str(store_dir), settings=settings)
    with remote_logs(upstream) as logs:
        rooms = RemoteRooms(
            *(logs, RoomRecords(metastore), config.rooms, subscribers, clock),
            is_delete_allowed=config.topics.is_delete_allowed,
        )
        try:
            yield World(rooms, logs, Admin(logs.cluster), clock, subscribers, store_dir, set())
        finally:
            await rooms.close()
            await logs.close()
            lanes.close()
            metastore.close()


async def publish(room: RemoteRoom, count: int, at_ms: int) -> None:
    appends = Appends()
    for _ in range(count):
        appends.send(room.log, b"event", at_ms=at_ms)
    await until(lambda: len(appends) == count)
    assert not [one for one in appends if isinstance(one, KafkaError)]


@in_uvloop
async def test_the_settings_of_a_room_are_on_the_cluster_and_the_number_of_events_in_the_metadata_store(
    tmp_path: Path,
) -> None:
    async with running_node(tmp_path / "node") as node:
        upstream = node.kafka_listeners[0].address
        async with world(tmp_path, upstream) as one:
            assert await one.rooms.create("lobby", RoomOverrides("hybrid", 2, 7))
            assert not await one.rooms.create("lobby", RoomOverrides(max_events=9))
            configs = await one.admin.topic_configs("lobby", ["retention.ms", "segment.ms", "kwire.room"])
            assert configs == {"retention.ms": str(2 * HOUR_MS), "segment.ms": "600000", "kwire.room": "false"}
            described = await one.rooms.describe("lobby")
        async with world(tmp_path, upstream) as again:
            assert again.rooms.count == 1
            assert await again.rooms.describe("lobby") == described
            assert tuple(described.retention) == ("hybrid", 2, 9)
            await again.rooms.create("lobby", RoomOverrides("infinite"))
            configs = await again.admin.topic_configs("lobby", ["retention.ms", "segment.ms"])
            assert configs == {"retention.ms": "-1", "segment.ms": "604800000"}


@in_uvloop
async def test_a_topic_of_the_cluster_is_used_as_a_room_but_never_changed_or_deleted(tmp_path: Path) -> None:
    async with world(tmp_path) as one:
        await one.admin.create_topic("orders", 1, {"retention.ms": str(HOUR_MS)})
        await one.admin.create_topic("wide", 3)
        described = await one.rooms.describe("orders")
        assert (described.is_room, described.retention, described.created_at_ms) == (False, ("time", 1, None), None)
        assert one.rooms.list().names == []
        for refused in (one.rooms.delete("orders"), one.rooms.create("orders", COUNT_5)):
            with pytest.raises(NotARoom):
                await refused
        with pytest.raises(TopicHasPartitions):
            await one.rooms.get_or_create("wide")


@in_uvloop
async def test_a_topic_that_was_created_again_by_somebody_else_is_not_a_room_of_the_bridge(tmp_path: Path) -> None:
    async with world(tmp_path) as one:
        await one.rooms.create("lobby", COUNT_5)
        former = (await one.rooms.find("lobby")).log
        await one.admin.delete_topic("lobby")
        await one.admin.create_topic("lobby", 1)
        async with asyncio.timeout(30):
            while not former.is_gone:
                await one.logs.cluster.refresh(["lobby"])
        with pytest.raises(NotARoom):
            await one.rooms.delete("lobby")
        cleanup = one.cleanup()
        await cleanup.compare()
        assert one.rooms.count == 1
        await cleanup.compare()
        assert one.rooms.count == 0
        await cleanup.close()


async def created_again_unnoticed(one: World, configs: dict[str, str]) -> RemoteLog:
    """Another client deletes the topic of the room and creates one with the same name. Return the former log."""
    await one.rooms.create("plaza", COUNT_5)
    former = (await one.rooms.find("plaza")).log
    await former.ready()
    await publish(RemoteRoom("plaza", former), 12, one.clock.now_ms())
    upstream = one.logs.cluster.settings
    with remote_logs(upstream) as other:
        others = Admin(other.cluster)
        await others.delete_topic("plaza")
        await others.create_topic("plaza", 1, configs)
        log = await other.open("plaza")
        await log.ready()
        await publish(RemoteRoom("plaza", log), 12, one.clock.now_ms())
        await other.close()
    assert one.logs.find("plaza") is former
    assert not former.is_gone
    return former


async def bounds_now(one: World, name: str) -> tuple[int, int]:
    log = await one.logs.open(name)
    await log.ask_bounds(is_exact=True)
    return log.bounds().start, log.bounds().end


@pytest.mark.parametrize("is_by_id", [True, False])
@in_uvloop
async def test_a_topic_that_took_the_name_of_a_room_unnoticed_is_not_deleted(
    tmp_path: Path, is_by_id: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_by_id:
        # As of a cluster that deletes topics by their names only.
        monkeypatch.setattr(admin, "FIRST_DELETION_BY_ID", DELETE_TOPICS.last_version + 1)
    async with world(tmp_path) as one:
        await created_again_unnoticed(one, {"retention.ms": "-1"})
        await one.rooms.delete("plaza")
        assert one.rooms.count == 0
        assert await bounds_now(one, "plaza") == (0, 12)


@in_uvloop
async def test_a_topic_that_took_the_name_of_a_room_unnoticed_is_not_cleaned_up(tmp_path: Path) -> None:
    async with world(tmp_path, None, "kwire.rooms.inactive.timeout.hours=2") as one:
        cleanup = one.cleanup()
        await created_again_unnoticed(one, {"retention.ms": "-1"})
        await cleanup.round()
        one.clock.advance(3 * HOUR_MS)
        await cleanup.round()
        assert await bounds_now(one, "plaza") == (0, 12)
        await cleanup.close()


@in_uvloop
async def test_a_topic_that_took_the_name_of_a_room_unnoticed_keeps_its_records(tmp_path: Path) -> None:
    async with world(tmp_path) as one:
        await created_again_unnoticed(one, {"retention.ms": "-1"})
        retention = CountRetention(one.rooms, one.logs)
        await retention.round()
        assert (retention.trimmed_count, retention.failures) == (0, 1)
        assert await bounds_now(one, "plaza") == (0, 12)
        await retention.close()


@in_uvloop
async def test_a_topic_that_took_the_name_of_a_room_unnoticed_keeps_its_settings(tmp_path: Path) -> None:
    async with world(tmp_path) as one:
        await created_again_unnoticed(one, {"retention.ms": "-1"})
        with pytest.raises(KafkaError) as refused:
            await one.rooms.create("plaza", RoomOverrides("time", 1))
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await one.admin.topic_configs("plaza", ["retention.ms"]) == {"retention.ms": "-1"}


@in_uvloop
async def test_many_who_need_one_room_create_it_once(tmp_path: Path) -> None:
    async with world(tmp_path, None, "kwire.rooms.max=2") as one:
        found = await asyncio.gather(*(one.rooms.get_or_create("lobby") for _ in range(20)))
        assert len({room.log for room in found}) == one.rooms.count == 1
        assert await asyncio.gather(*(one.rooms.create("second") for _ in range(5))) == [True, *[False] * 4]
        with pytest.raises(TooManyRooms):
            await one.rooms.create("third")
        with pytest.raises(RoomNotFound) as missing:
            await one.rooms.get_or_create("third")
        assert missing.value.details["limit"] == 2


@in_uvloop
async def test_many_rooms_are_created_and_described_at_the_same_time(tmp_path: Path) -> None:
    async with world(tmp_path) as one:
        names = [f"room-{number:03}" for number in range(150)]

        async def created(name: str) -> RoomStats:
            assert await one.rooms.create(name)
            return await one.rooms.describe(name)

        described = await asyncio.gather(*map(created, names))
        assert [stats.newest_offset for stats in described] == [-1] * len(names)
        assert one.rooms.list(limit=1000).names == names


@in_uvloop
async def test_the_time_to_agree_on_a_new_room_begins_when_the_cluster_has_created_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rooms that wait for the creation of many others used to fail with UNKNOWN_TOPIC_OR_PARTITION."""
    async with world(tmp_path) as one:
        create_topic, open_log = Admin.create_topic, one.logs.open
        monkeypatch.setattr(rooms, "AGREEMENT_SECONDS", 0.0)

        async def create(admin: Admin, *arguments: Any) -> None:
            await create_topic(admin, *arguments)
            monkeypatch.setattr(rooms, "AGREEMENT_SECONDS", 30.0)

        shown: list[str] = []

        async def show_the_second_time(topic: str, partition: int = 0) -> RemoteLog:
            shown.append(topic)
            # The first look is before the creation.
            if len(shown) <= 2:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return await open_log(topic, partition)

        monkeypatch.setattr(Admin, "create_topic", create)
        monkeypatch.setattr(one.logs, "open", show_the_second_time)
        assert await one.rooms.create("lobby")
        assert len(shown) == 3


@in_uvloop
async def test_the_oldest_events_above_the_limit_are_deleted(tmp_path: Path) -> None:
    async with world(tmp_path) as one:
        await one.rooms.create("lobby", COUNT_5)
        await one.rooms.create("all", RoomOverrides("infinite"))
        retention = CountRetention(one.rooms, one.logs)
        for name in ("lobby", "all"):
            room = await one.rooms.find(name)
            await room.log.ready()
            await publish(room, 12, one.clock.now_ms())
        await retention.round()
        assert [(await one.rooms.describe(name)).oldest_offset for name in ("lobby", "all")] == [7, 0]
        assert (retention.trimmed_count, retention.failures) == (7, 0)
        # The cluster itself has deleted them.
        log = (await one.rooms.find("lobby")).log
        await log.ask_bounds(is_exact=True)
        assert log.bounds() == (7, 12, 12)
        await one.admin.delete_topic("lobby")
        log.learn(7, 40, 40)
        await retention.round()
        assert retention.failures == 1
        await retention.close()


@in_uvloop
async def test_only_rooms_of_the_bridge_that_nobody_uses_are_deleted(tmp_path: Path) -> None:
    async with world(tmp_path, None, "kwire.rooms.inactive.timeout.hours=2") as one:
        cleanup = one.cleanup()
        one.in_use.add("delivered")
        for name in ("idle", "written", "empty", "read", "subscribed", "delivered"):
            await one.rooms.create(name, RoomOverrides("infinite"))
        await one.admin.create_topic("orders", 1, {"retention.ms": "-1"})
        for name in ("idle", "orders"):
            await publish(await one.rooms.get_or_create(name), 1, one.clock.now_ms())
        await cleanup.round()
        one.clock.advance(3 * HOUR_MS)
        await publish(await one.rooms.find("written"), 1, one.clock.now_ms())
        one.rooms.take_used()
        await one.rooms.find("read")
        log = one.logs.find("subscribed")
        assert log is not None
        one.subscribers.come(log)
        assert one.rooms.count == 6
        await cleanup.round()
        assert one.rooms.list().names == ["delivered", "read", "subscribed", "written"]
        assert cleanup.removed_count == 2
        assert (await one.rooms.find("orders")).log.bounds().start == 0
        with pytest.raises(RoomNotFound):
            await one.rooms.find("idle")
        await cleanup.close()


@in_uvloop
async def test_the_time_without_use_begins_when_the_last_subscriber_webhook_or_group_leaves(tmp_path: Path) -> None:
    async with world(tmp_path, None, "kwire.rooms.inactive.timeout.hours=2") as one:
        cleanup = one.cleanup()
        names = ["delivered", "idle", "subscribed"]
        for name in names:
            await one.rooms.create(name, RoomOverrides("infinite"))
        log = (await one.rooms.find("subscribed")).log
        one.subscribers.come(log)
        one.in_use.add("delivered")
        await cleanup.round()
        one.clock.advance(3 * HOUR_MS)
        await cleanup.round()
        assert one.rooms.list().names == ["delivered", "subscribed"]
        one.subscribers.go(log)
        one.in_use.clear()
        one.clock.advance(HOUR_MS)
        await cleanup.round()
        assert one.rooms.list().names == ["delivered", "subscribed"]
        one.clock.advance(2 * HOUR_MS)
        await cleanup.round()
        assert (one.rooms.list().names, cleanup.removed_count) == ([], 3)
        await cleanup.close()


@in_uvloop
async def test_a_comparison_records_subscribers_that_leave_before_the_next_round(tmp_path: Path) -> None:
    async with world(tmp_path, None, "kwire.rooms.inactive.timeout.hours=2") as one:
        cleanup = one.cleanup()
        await one.rooms.create("lobby", RoomOverrides("infinite"))
        log = (await one.rooms.find("lobby")).log
        await cleanup.round()
        one.subscribers.come(log)
        one.clock.advance(3 * HOUR_MS)
        await cleanup.compare()
        one.subscribers.go(log)
        one.clock.advance(HOUR_MS)
        await cleanup.round()
        assert one.rooms.list().names == ["lobby"]
        await cleanup.close()


@in_uvloop
async def test_a_room_that_requests_use_as_a_topic_stays(tmp_path: Path) -> None:
    async with world(tmp_path, None, "kwire.rooms.inactive.timeout.hours=2") as one:
        topics = RemoteTopics(one.logs, TopicMarks())
        topics.on_use = one.rooms.mark_used
        cleanup = one.cleanup()
        for name in ("idle", "browsed"):
            await one.rooms.create(name, RoomOverrides("infinite"))
        await one.admin.create_topic("orders", 1)
        await cleanup.round()
        one.clock.advance(3 * HOUR_MS)
        for name in ("browsed", "orders"):
            assert await topics.find(name) is not None
        await cleanup.round()
        assert one.rooms.list().names == ["browsed"]
        await cleanup.close()
        await topics.close()


@pytest.mark.parametrize("setting", ["delete.topic.enable=false", "kwire.rooms.enable=false"])
@in_uvloop
async def test_no_room_is_deleted_where_rooms_may_not_be_deleted_or_used(tmp_path: Path, setting: str) -> None:
    async with running_node(tmp_path / "node", "log.retention.ms=-1") as node:
        upstream = node.kafka_listeners[0].address
        async with world(tmp_path, upstream) as one:
            await one.rooms.create("lobby", RoomOverrides("infinite"))
        async with world(tmp_path, upstream, "kwire.rooms.inactive.timeout.hours=2", setting) as one:
            cleanup = one.cleanup()
            one.clock.advance(3 * HOUR_MS)
            await cleanup.round()
            assert (one.rooms.count, cleanup.removed_count) == (1, 0)
            await cleanup.close()


@in_uvloop
async def test_a_room_that_is_used_at_the_last_moment_stays(tmp_path: Path) -> None:
    async with world(tmp_path, None, "kwire.rooms.inactive.timeout.hours=2") as one:
        cleanup = one.cleanup()
        await one.rooms.create("lobby", RoomOverrides("infinite"))
        room = await one.rooms.find("lobby")
        await cleanup.round()
        one.clock.advance(3 * HOUR_MS)
        delete_topic = one.rooms.delete_topic

        async def used_first(log: object, is_wanted: object) -> bool:
            one.rooms.get("lobby")
            return await delete_topic(log, is_wanted)  # type: ignore[arg-type]

        one.rooms.delete_topic = used_first  # type: ignore[method-assign]
        await cleanup.round()
        assert (cleanup.removed_count, one.rooms.count) == (0, 1)
        assert not room.log.is_closing
        await publish(room, 1, one.clock.now_ms())
        await cleanup.close()


@in_uvloop
async def test_a_room_that_is_being_deleted_refuses_events(tmp_path: Path) -> None:
    async with world(tmp_path) as one:
        room = await one.rooms.get_or_create("lobby")
        await publish(room, 1, one.clock.now_ms())
        appends = Appends()

        def refused() -> bool:
            appends.send(room.log, b"too late")
            with pytest.raises(RoomNotFound):
                one.rooms.get("lobby")
            return True

        assert await one.rooms.delete_topic(room.log, refused)
        assert isinstance(appends[0], KafkaError)
        assert (await one.rooms.get_or_create("lobby")).log.incarnation != room.log.incarnation
