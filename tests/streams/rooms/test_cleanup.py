"""Unused rooms are deleted, and nothing else: every kind of use keeps a room."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from kwire.broker.topics.catalogue import entry_value
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change
from kwire.streams.events.reading import EventReader
from kwire.streams.rooms import cleanup as room_cleanup
from kwire.streams.rooms import saved_activity
from kwire.streams.rooms.cleanup import RoomCleanup
from kwire.streams.rooms.rooms import Room
from kwire.streams.rooms.saved_activity import ACTIVITY_KEY, load_activity
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from storage.errors import DiskFailure
from tests.support.clock import ManualClock
from tests.support.node import in_loop, running_node
from tests.support.partition_log import log_of
from tests.support.rooms import RoomsNode, add_events

HOUR_MS = 3_600_000
TIMEOUT_MS = 24 * HOUR_MS


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RoomsNode]:
    with RoomsNode(tmp_path, "offsets.topic.num.partitions=3") as made:
        # Files are stamped with the machine's time.
        made.clock.set_wall(time.time_ns() // 1_000_000)
        yield made


@asynccontextmanager
async def cleaning(node: RoomsNode, fetched_before: dict[str, int] | None = None) -> AsyncIterator[RoomCleanup]:
    await node.load_groups()
    made = node.cleanup(fetched_before)
    try:
        yield made
    finally:
        made.close()


def names(node: RoomsNode) -> list[str]:
    return node.rooms.list().names


async def fetch(node: RoomsNode, room: Room) -> None:
    """As a Kafka client does that names all it wants."""
    asked = FetchTopic(
        topic=room.topic.name, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    )
    answer = await node.ask(FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[asked]), 4)
    assert answer.responses[0].partitions[0].error_code == 0


async def commit(node: RoomsNode, room: Room) -> None:
    await node.topics.offsets_topic()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    asked = OffsetCommitRequestTopic(name=room.topic.name, partitions=[partition])
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[asked])
    answer = await node.ask(request, 8)
    assert answer.topics[0].partitions[0].error_code == 0


# --- what goes


@pytest.mark.proves("S0-33", "S0-43", "C-42")
@in_loop
async def test_room_without_events_and_subscribers_goes_after_the_timeout(node: RoomsNode) -> None:
    empty, used = await node.rooms.get_or_create("empty"), await node.rooms.get_or_create("used")
    add_events(used)
    ordinary = await node.create("ordinary")
    async with cleaning(node) as cleanup:
        node.clock.advance(TIMEOUT_MS - HOUR_MS)
        await cleanup.round()
        assert names(node) == ["empty", "used"]
        node.clock.advance(2 * HOUR_MS)
        await cleanup.round()
        assert names(node) == []
        assert cleanup.removed_count == 2
        assert node.topics.get("ordinary") is ordinary
        assert not (node.directory / "used-0").exists()
        assert empty.epoch != (await node.rooms.get_or_create("empty")).epoch


@pytest.mark.proves("S0-33")
@pytest.mark.parametrize("is_parked", [False, True])
@in_loop
async def test_room_goes_when_its_last_event_is_too_old_whether_its_log_is_open_or_not(
    node: RoomsNode, is_parked: bool
) -> None:
    room = await node.rooms.get_or_create("lobby")
    add_events(room)
    node.clock.advance(20 * HOUR_MS)
    add_events(room)
    age_files(node, room, 0)
    if is_parked:
        assert park(node, room)
        age_files(node, room, 0)
    async with cleaning(node) as cleanup:
        node.clock.advance(20 * HOUR_MS)
        await cleanup.round()
        assert names(node) == ["lobby"]
        node.clock.advance(5 * HOUR_MS)
        await cleanup.round()
        assert names(node) == []


def age_files(node: RoomsNode, room: Room, age_ms: int) -> None:
    """As if the last event had come so long ago by the node's clock."""
    written_s = (node.clock.now_ms() - age_ms) / 1000
    for path in (node.directory / f"{room.topic.name}-0").glob("*.log"):
        os.utime(path, (written_s, written_s))


def park(node: RoomsNode, room: Room) -> bool:
    sync = log_of(room.topic.partitions[0]).begin_sync()
    if sync is not None:
        sync.run()
        sync.finish()
    return node.topics.park(room.topic.partitions[0])


# --- what stays


@pytest.mark.proves("C-42")
@in_loop
async def test_event_counts_from_when_it_came_and_not_from_the_time_it_claims(node: RoomsNode) -> None:
    room = await node.rooms.get_or_create("lobby")
    node.clock.advance(TIMEOUT_MS + HOUR_MS)
    add_events(room, timestamp_ms=1)
    age_files(node, room, HOUR_MS)
    async with cleaning(node) as cleanup:
        await cleanup.round()
        assert names(node) == ["lobby"]


@pytest.mark.proves("S0-33", "S0-29")
@in_loop
async def test_room_with_a_subscriber_stays_and_goes_a_timeout_after_it_was_last_seen(node: RoomsNode) -> None:
    room = await node.rooms.get_or_create("lobby")
    node.subscribers.come(room.log)
    async with cleaning(node) as cleanup:
        node.clock.advance(10 * TIMEOUT_MS)
        await cleanup.round()
        node.subscribers.go(room.log)
        node.clock.advance(TIMEOUT_MS - 1)
        await cleanup.round()
        assert names(node) == ["lobby"]
        node.clock.advance(1)
        await cleanup.round()
        assert names(node) == []


@pytest.mark.proves("C-42")
@in_loop
async def test_room_with_committed_offsets_stays(node: RoomsNode) -> None:
    room = await node.rooms.get_or_create("lobby")
    await node.rooms.get_or_create("other")
    await commit(node, room)
    async with cleaning(node) as cleanup:
        node.clock.advance(10 * TIMEOUT_MS)
        await cleanup.round()
        assert names(node) == ["lobby"]


@pytest.mark.proves("C-42")
@in_loop
async def test_room_that_a_kafka_client_has_read_stays_for_the_timeout(node: RoomsNode) -> None:
    room = await node.rooms.get_or_create("lobby")
    async with cleaning(node) as cleanup:
        node.clock.advance(TIMEOUT_MS)
        await fetch(node, room)
        await cleanup.round()
        node.clock.advance(TIMEOUT_MS - 1)
        await cleanup.round()
        assert names(node) == ["lobby"]
        node.clock.advance(1)
        await cleanup.round()
        assert names(node) == []


@pytest.mark.proves("C-42")
@in_loop
async def test_fetch_is_remembered_when_the_log_is_parked_and_nobody_holds_the_partition(node: RoomsNode) -> None:
    room = await node.rooms.get_or_create("lobby")
    add_events(room)
    node.clock.advance(TIMEOUT_MS)
    await fetch(node, room)
    assert park(node, room)
    del room
    async with cleaning(node) as cleanup:
        node.clock.advance(TIMEOUT_MS - 1)
        await cleanup.round()
        assert names(node) == ["lobby"]
        node.clock.advance(1)
        await cleanup.round()
        assert names(node) == []


@in_loop
async def test_fetch_of_a_session_that_has_seen_everything_counts_too(node: RoomsNode) -> None:
    room = await node.rooms.get_or_create("lobby")
    asked = FetchTopic(
        topic="lobby", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    )
    first = await node.ask(FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[asked]), 7)
    for epoch in (1, 2):
        room.topic.partitions[0].is_fetched = False
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=0, session_id=first.session_id, session_epoch=epoch, topics=[]
        )
        await node.ask(request, 7)
        assert room.topic.partitions[0].is_fetched


@in_loop
async def test_fetch_of_a_closed_log_is_noted_too(node: RoomsNode) -> None:
    """A session that has seen everything is answered without its log."""
    room = await node.rooms.get_or_create("lobby")
    add_events(room)
    assert park(node, room)
    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        room.topic.partitions[0].is_fetched = True
        await cleanup.round()
        del room
        node.clock.advance(TIMEOUT_MS - 1)
        await cleanup.round()
        assert names(node) == ["lobby"]


@in_loop
async def test_room_whose_events_are_read_over_http_stays_for_the_timeout(node: RoomsNode) -> None:
    """History, long polls and streams of groups all read with an EventReader."""
    room = await node.rooms.get_or_create("lobby")
    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        assert EventReader(room.log, 0).read() == []
        await cleanup.round()
        assert names(node) == ["lobby"]


@pytest.mark.proves("C-42")
@in_loop
async def test_server_keeps_a_room_that_a_group_was_defined_to_read(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, aiohttp.ClientSession() as client:
        assert node.http is not None
        url = f"http://127.0.0.1:{node.http.port}"
        cleanup = node._room_cleanup
        for name in ("read", "unread"):
            async with client.put(f"{url}/rooms/{name}") as answer:
                assert answer.status == 201
        async with client.post(f"{url}/consumer-groups/g", json={"topic": "read"}) as answer:
            assert answer.status == 201
        cleanup._clock = clock = ManualClock()
        clock.set_wall(time.time_ns() // 1_000_000 + 10 * TIMEOUT_MS)
        cleanup._known_since_ms = 0
        failures = -1
        async with asyncio.timeout(10):
            while failures != cleanup.failures:  # groups are loaded first
                failures = cleanup.failures
                await asyncio.sleep(0.01)
                await cleanup.round()
        assert cleanup._rooms.list().names == ["read"]
        async with client.delete(f"{url}/consumer-groups/g") as answer:
            assert answer.status == 200
        await cleanup.round()
        assert cleanup._rooms.list().names == []


@in_loop
async def test_room_stays_that_somebody_else_counts_on(node: RoomsNode) -> None:
    for name in ("a", "b"):
        await node.rooms.get_or_create(name)
    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        cleanup._is_in_use = lambda name: name == "b"
        await cleanup.round()
        assert names(node) == ["b"]


@in_loop
async def test_no_room_goes_while_groups_are_being_loaded(node: RoomsNode) -> None:
    await node.rooms.get_or_create("lobby")
    cleanup = node.cleanup()
    try:
        node.clock.advance(2 * TIMEOUT_MS)
        await cleanup.round()
        assert names(node) == ["lobby"]
        assert cleanup.failures == 1
        await node.load_groups()
        await cleanup.round()
        assert names(node) == []
    finally:
        cleanup.close()


@pytest.mark.parametrize(
    "setting", ["kwire.rooms.inactive.timeout.hours=-1", "delete.topic.enable=false", "kwire.rooms.enable=false"]
)
@in_loop
async def test_no_room_goes_where_that_is_not_wanted(tmp_path: Path, setting: str) -> None:
    with RoomsNode(tmp_path, setting) as node:
        await node.create("lobby", kwire_room="true")
        async with cleaning(node) as cleanup:
            node.clock.advance(1000 * TIMEOUT_MS)
            await cleanup.round()
            assert node.topics.catalogue.rooms_from("", 10) == ["lobby"]


@in_loop
async def test_no_room_goes_while_a_directory_is_offline(node: RoomsNode) -> None:
    await node.rooms.get_or_create("lobby")
    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        node.store._offline["/gone"] = DiskFailure("gone")
        await cleanup.round()
        assert names(node) == ["lobby"]


@in_loop
async def test_room_of_unknown_age_and_room_that_was_widened(node: RoomsNode) -> None:
    """The first is as old as anything, the second is no room any more."""
    configs = {"kwire.room": "true"}
    await node.metastore.commit([Change("topics/old", entry_value(bytes(16), 1, configs), 0)])
    node.restart()
    wide = await node.rooms.get_or_create("wide")
    await node.topics.create_partitions(wide.topic, 2)
    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        await cleanup.round()
        assert names(node) == ["wide"]


# --- over restarts


@pytest.mark.proves("C-42")
@in_loop
async def test_clean_stop_hands_over_what_was_read_and_a_kill_lets_every_room_count_as_read(node: RoomsNode) -> None:
    read = await node.rooms.get_or_create("read")
    await node.rooms.get_or_create("unread")
    node.clock.advance(TIMEOUT_MS)
    await fetch(node, read)
    async with cleaning(node) as cleanup:
        await cleanup.save_activity(node.metastore)
    del read
    node.restart()
    before, changes = await load_activity(node.metastore)
    assert before == {"read": node.clock.now_ms()}
    await node.metastore.commit(changes)
    node.clock.advance(HOUR_MS)
    async with cleaning(node, dict(before)) as cleanup:
        await cleanup.round()
        assert names(node) == ["read"]
    # Nothing was saved this time.
    node.restart()
    assert await load_activity(node.metastore) == (None, [])
    node.clock.advance(10 * TIMEOUT_MS)
    await node.load_groups()
    killed = RoomCleanup(
        node.rooms, node.topics, node.subscribers, node.clock, node.store, node.files, lambda name: False, None
    )
    try:
        node.clock.advance(TIMEOUT_MS - 1)
        await killed.round()
        assert names(node) == ["read"]
        node.clock.advance(1)
        await killed.round()
        assert names(node) == []
    finally:
        killed.close()


@in_loop
async def test_clean_stop_hands_over_who_had_subscribers(node: RoomsNode) -> None:
    room = await node.rooms.get_or_create("lobby")
    node.subscribers.come(room.log)
    node.clock.advance(2 * TIMEOUT_MS)
    async with cleaning(node) as cleanup:
        await cleanup.round()
        await cleanup.save_activity(node.metastore)
    assert (await load_activity(node.metastore))[0] == {"lobby": node.clock.now_ms()}


@in_loop
async def test_server_takes_over_what_its_clean_stop_has_left_and_only_once(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        assert node._fetched_before is None
    async with running_node(tmp_path) as node:
        assert node._fetched_before == {}
        assert node._metastore.get(ACTIVITY_KEY) is None


@in_loop
async def test_too_many_notes_are_not_handed_over(node: RoomsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_activity, "SAVED_ROOMS_MAX", 2)
    async with cleaning(node, {"a": 1, "b": 2, "c": 3}) as cleanup:
        await cleanup.save_activity(node.metastore)
    assert node.metastore.get(ACTIVITY_KEY) is None


# --- rounds


@pytest.mark.proves("S0-42")
@in_loop
async def test_rounds_come_by_themselves_and_go_on_after_a_failure(
    node: RoomsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = 0
    done = asyncio.Event()

    async def begin(cleanup: RoomCleanup) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            done.set()
        raise RuntimeError("no luck")

    monkeypatch.setattr(RoomCleanup, "round", begin)
    node.rooms.config = node.rooms.config._replace(cleanup_interval_ms=1)
    async with cleaning(node) as cleanup:
        async with asyncio.timeout(10):
            await done.wait()
        assert cleanup.failures >= 2


@in_loop
async def test_round_ends_early_when_the_catalogue_takes_no_changes(
    node: RoomsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.rooms.get_or_create("lobby")

    async def fail(topics: object, is_idle: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The change could not be stored.")

    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        monkeypatch.setattr(node.topics, "delete_idle", fail)
        await cleanup.round()
        assert (cleanup.failures, cleanup.removed_count) == (1, 0)
        assert node.rooms.get("lobby").name == "lobby"


@in_loop
async def test_round_over_many_rooms_gives_the_loop_its_turns(node: RoomsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limited number of rooms is checked per iteration of the event loop."""
    monkeypatch.setattr(room_cleanup, "BATCH_PAUSE_SECONDS", 0)
    await asyncio.gather(*(node.rooms.get_or_create(f"room-{number:04}") for number in range(1000)))
    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        looked_at = turns = most = 0

        def is_in_use(name: str) -> bool:
            nonlocal looked_at
            looked_at += 1
            return True

        cleanup._is_in_use = is_in_use
        work = asyncio.ensure_future(cleanup.round())
        while not work.done():
            before = looked_at
            await asyncio.sleep(0)
            turns += 1
            most = max(most, looked_at - before)
        assert looked_at == 1000
        assert most <= room_cleanup.FOLDERS_PER_BATCH
        assert turns > 1000 / room_cleanup.FOLDERS_PER_BATCH
