"""Rooms: topics that appear by themselves, keep a ring of events, and are found, listed, changed and deleted."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kwire.broker.maintenance.retention import Retention
from kwire.broker.topics.catalogue import entry_value
from kwire.errors import (
    ErrorCode,
    InvalidName,
    KafkaError,
    NotARoom,
    RoomNotFound,
    TooManyRooms,
    TopicHasPartitions,
)
from kwire.metastore import Change
from kwire.streams.rooms import batched_creation as room_making
from kwire.streams.rooms import interface
from kwire.streams.rooms.settings import RoomOverrides
from tests.support.batches import run_now
from tests.support.node import in_loop
from tests.support.rooms import RoomsNode, add_events

HOUR_MS = 3_600_000
DEFAULT_CONFIGS = {
    "kwire.room": "true",
    "cleanup.policy": "delete",
    "retention.ms": str(24 * HOUR_MS),
    "segment.ms": str(2 * HOUR_MS),
    "segment.bytes": "16777216",
    "kwire.retention.messages": "100000",
    "kwire.log.sync": "os",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RoomsNode]:
    with RoomsNode(tmp_path) as made:
        yield made


# --- how they come


@pytest.mark.proves("S0-32", "S0-34", "C-11")
@in_loop
async def test_room_appears_when_somebody_uses_it_and_is_unknown_before(node: RoomsNode) -> None:
    with pytest.raises(RoomNotFound) as caught:
        node.rooms.get("lobby")
    assert (caught.value.code, caught.value.details) == ("RoomNotFound", {"room": "lobby"})
    room = await node.rooms.get_or_create("lobby")
    assert node.rooms.get("lobby") == room == await node.rooms.get_or_create("lobby")
    assert node.rooms.count == 1


@pytest.mark.proves("S0-1", "S0-2", "S0-40", "C-9", "C-42")
@in_loop
async def test_room_is_a_topic_of_one_partition_that_says_what_it_keeps(node: RoomsNode) -> None:
    room = await node.rooms.get_or_create("lobby")
    topic = node.topics.get("lobby")
    assert topic is room.topic
    assert topic.stream() is room.log
    assert len(topic.partitions) == 1
    assert dict(topic.configs) == DEFAULT_CONFIGS
    assert node.rooms.stats(room).retention == ("hybrid", 24, 100_000)
    add_events(room)
    epoch = room.epoch
    del room, topic
    node.restart()
    again = node.rooms.get("lobby")
    assert again.epoch == epoch
    assert dict(again.topic.configs) == DEFAULT_CONFIGS
    assert node.rooms.stats(again).newest_offset == 0


@pytest.mark.proves("S0-90", "C-42")
@in_loop
async def test_what_rooms_keep_is_nothing_to_other_topics(node: RoomsNode) -> None:
    ordinary, room = await node.topics.get_or_create("orders"), await node.rooms.get_or_create("lobby")
    assert dict(ordinary.configs) == {}
    assert (ordinary.settings.retention_ms, ordinary.settings.retention_messages) == (7 * 24 * HOUR_MS, -1)
    assert ordinary.settings.is_group_synced
    assert not room.topic.settings.is_group_synced
    assert node.rooms.count == 1


@in_loop
async def test_name_that_kafka_forbids_is_escaped(node: RoomsNode) -> None:
    room = await node.rooms.get_or_create("Größe/42")
    assert room.topic.name == "Gr_xC3__xB6__xC3__x9F_e_x2F_42"
    assert node.rooms.get("Größe/42").name == "Größe/42"
    assert node.rooms.list().names == ["Größe/42"]
    for reserved in ("__rooms", "", "__consumer_offsets"):
        with pytest.raises(InvalidName):
            await node.rooms.get_or_create(reserved)
        with pytest.raises(InvalidName):
            node.rooms.get(reserved)


@pytest.mark.proves("C-11")
@in_loop
async def test_rooms_that_do_not_appear_by_themselves_can_be_made(tmp_path: Path) -> None:
    with RoomsNode(tmp_path, "kwire.rooms.auto.create=false") as node:
        with pytest.raises(RoomNotFound):
            await node.rooms.get_or_create("lobby")
        _, is_made = await node.rooms.create("lobby")
        assert is_made
        assert (await node.rooms.get_or_create("lobby")).name == "lobby"


@pytest.mark.proves("S0-39")
@in_loop
async def test_no_room_is_there_where_rooms_are_switched_off(tmp_path: Path) -> None:
    with RoomsNode(tmp_path) as node:
        await node.rooms.get_or_create("lobby")
    with RoomsNode(tmp_path, "kwire.rooms.enable=false") as node:
        assert node.topics.get("lobby") is not None
        with pytest.raises(RoomNotFound):
            node.rooms.get("lobby")
        with pytest.raises(RoomNotFound):
            await node.rooms.get_or_create("other")
        with pytest.raises(RoomNotFound):
            await node.rooms.create("other")
        assert node.rooms.list().names == []


@pytest.mark.proves("S0-41", "C-11")
@in_loop
async def test_no_more_rooms_than_allowed(tmp_path: Path) -> None:
    with RoomsNode(tmp_path, "kwire.rooms.max=2") as node:
        for name in ("a", "b", "c"):
            await node.topics.get_or_create(f"topic-{name}")  # they do not count
        outcomes = await asyncio.gather(
            *(node.rooms.get_or_create(name) for name in ("a", "b", "c", "a")), return_exceptions=True
        )
        assert [getattr(one, "name", None) for one in outcomes] == ["a", "b", None, "a"]
        refused = outcomes[2]
        assert isinstance(refused, RoomNotFound)
        assert refused.details == {"room": "c", "limit": 2}
        assert "2 rooms already" in refused.message
        with pytest.raises(TooManyRooms):
            await node.rooms.create("c")
        await node.rooms.create("a", RoomOverrides(max_events=5))
        await node.rooms.delete("b")
        assert (await node.rooms.get_or_create("c")).name == "c"


@in_loop
async def test_rooms_wanted_at_once_are_made_with_few_commits(node: RoomsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_making, "ROOMS_PER_COMMIT", 50)
    before = node.metastore.revision
    names = [f"room-{number % 200}" for number in range(400)]
    made = await asyncio.gather(*(node.rooms.get_or_create(name) for name in names))
    assert [room.name for room in made] == names
    assert made[0].topic is made[200].topic
    assert node.rooms.count == 200
    assert node.metastore.revision - before <= 5


@in_loop
async def test_new_rooms_wait_while_far_too_many_logs_are_open(tmp_path: Path) -> None:
    with RoomsNode(tmp_path, "kwire.log.open.max=16") as node:
        topic = await node.create("hot", 33)
        for partition in topic.partitions:
            partition.open()
        wanting = asyncio.ensure_future(node.rooms.get_or_create("lobby"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert node.rooms.count == 0
        assert node.topics.park(topic.partitions[0])
        assert (await wanting).name == "lobby"


@in_loop
async def test_rooms_are_made_in_the_end_though_nobody_puts_logs_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_making, "CROWDED_SECONDS_MAX", 0.05)
    with RoomsNode(tmp_path, "kwire.log.open.max=16") as node:
        topic = await node.create("hot", 33)
        for partition in topic.partitions:
            partition.open()
        assert (await node.rooms.get_or_create("lobby")).name == "lobby"


@in_loop
async def test_room_that_cannot_be_does_not_keep_others_from_being_made(node: RoomsNode) -> None:
    names = ["a.b", "a_b", "c", "__d", "e"]
    outcomes = await asyncio.gather(*(node.rooms.get_or_create(name) for name in names), return_exceptions=True)
    assert [getattr(one, "name", None) for one in outcomes] == ["a.b", None, "c", None, "e"]
    assert isinstance(outcomes[1], InvalidName)
    assert "collides" in outcomes[1].message
    with pytest.raises(InvalidName):
        await node.rooms.get_or_create("a_b")


@in_loop
async def test_room_is_made_though_who_wanted_it_goes_away(node: RoomsNode) -> None:
    wanting = asyncio.ensure_future(node.rooms.get_or_create("lobby"))
    await asyncio.sleep(0)
    wanting.cancel()
    assert (await node.rooms.get_or_create("lobby")).name == "lobby"


# --- what they keep


@pytest.mark.proves("S0-18", "S0-20", "S0-47")
@in_loop
async def test_full_room_drops_its_oldest_event_for_each_new_one(node: RoomsNode) -> None:
    room, _ = await node.rooms.create("lobby", RoomOverrides(retention_mode="count", max_events=3))
    seen = []
    for _ in range(6):
        add_events(room)
        stats = node.rooms.stats(room)
        seen.append((stats.oldest_offset, stats.newest_offset, stats.event_count))
    assert seen == [(0, 0, 1), (0, 1, 2), (0, 2, 3), (1, 3, 3), (2, 4, 3), (3, 5, 3)]
    assert stats.retention == ("count", None, 3)
    assert room.topic.settings.retention_ms == -1


async def kept_after(node: RoomsNode, overrides: RoomOverrides, *ages_hours: float) -> int:
    """How many of events of these ages a room keeps."""
    room, _ = await node.rooms.create("lobby", overrides)
    for age in ages_hours:
        add_events(room, timestamp_ms=node.clock.now_ms() - round(age * HOUR_MS))
    with closing(Retention(node.topics, node.clock, run_now, 300_000, node.store, node.files)) as retention:
        await retention.round()
    return node.rooms.stats(room).event_count


@pytest.mark.proves("S0-19")
@in_loop
async def test_room_by_time_lets_go_of_what_is_older(node: RoomsNode) -> None:
    wanted = RoomOverrides(retention_mode="time", retention_hours=24)
    # Whole segments go, and a segment is closed after a twelfth of the time.
    assert await kept_after(node, wanted, 60, 40, 27, 25.5, 23, 1) == 2
    assert node.rooms.stats(node.rooms.get("lobby")).retention == ("time", 24, None)


@pytest.mark.proves("S0-21", "C-8")
@pytest.mark.parametrize(("max_events", "kept"), [(4, 2), (1, 1)])
@in_loop
async def test_in_a_hybrid_room_the_tighter_bound_wins(node: RoomsNode, max_events: int, kept: int) -> None:
    wanted = RoomOverrides(retention_mode="hybrid", retention_hours=24, max_events=max_events)
    assert await kept_after(node, wanted, 60, 40, 27, 25.5, 23, 1) == kept


@in_loop
async def test_infinite_room_keeps_everything(node: RoomsNode) -> None:
    assert await kept_after(node, RoomOverrides(retention_mode="infinite"), 9000, 800, 1) == 3


@pytest.mark.proves("S0-40", "C-8")
@pytest.mark.parametrize(
    ("mode", "retention"), [("time", ("time", 3, None)), ("count", ("count", None, 7)), ("hybrid", ("hybrid", 3, 7))]
)
@in_loop
async def test_servers_mode_is_that_of_new_rooms(
    tmp_path: Path, mode: str, retention: tuple[str, int | None, int | None]
) -> None:
    settings = (f"retention.mode={mode}", "retention.hours=3", "max.events=7", "log.sync=group")
    with RoomsNode(tmp_path, *(f"kwire.rooms.{one}" for one in settings)) as node:
        room = await node.rooms.get_or_create("lobby")
        assert node.rooms.stats(room).retention == retention
        assert room.topic.settings.is_group_synced


@in_loop
async def test_room_is_changed_by_who_wants_it_otherwise(node: RoomsNode) -> None:
    room, is_made = await node.rooms.create("lobby", RoomOverrides(retention_mode="time", retention_hours=2))
    assert is_made
    changes = [
        (RoomOverrides(), ("time", 2, None)),
        (RoomOverrides(max_events=9), ("hybrid", 2, 9)),
        (RoomOverrides(retention_hours=0.5), ("hybrid", 0.5, 9)),
        (RoomOverrides(retention_mode="count"), ("count", None, 9)),
        (RoomOverrides(retention_mode="time"), ("time", 24, None)),
        (RoomOverrides(retention_mode="infinite"), ("infinite", None, None)),
        (RoomOverrides(retention_mode="hybrid"), ("hybrid", 24, 100_000)),
    ]
    for overrides, retention in changes:
        same, is_made = await node.rooms.create("lobby", overrides)
        assert not is_made
        assert same == room
        assert node.rooms.stats(room).retention == retention
    node.restart()
    assert node.rooms.stats(node.rooms.get("lobby")).retention == ("hybrid", 24, 100_000)


@pytest.mark.parametrize(
    "overrides",
    [
        RoomOverrides(retention_mode="ring"),
        RoomOverrides(retention_hours=0),
        RoomOverrides(retention_hours=-1),
        RoomOverrides(retention_hours=1e300),
        RoomOverrides(retention_hours=float("nan")),
        RoomOverrides(max_events=0),
        RoomOverrides(max_events=-1),
        RoomOverrides(max_events=2**63),
    ],
)
@in_loop
async def test_what_a_room_cannot_keep_is_refused(node: RoomsNode, overrides: RoomOverrides) -> None:
    with pytest.raises(KafkaError) as caught:
        await node.rooms.create("lobby", overrides)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert node.rooms.count == 0


# --- lists, summaries and statistics


@pytest.mark.proves("S0-5", "S0-7", "C-45")
@in_loop
async def test_stats_tell_the_state_of_a_room(node: RoomsNode) -> None:
    node.clock.advance(5)
    created_ms = node.clock.now_ms()
    room = await node.rooms.get_or_create("lobby")
    empty = node.rooms.stats(room)
    assert (empty.oldest_offset, empty.newest_offset, empty.event_count) == (0, -1, 0)
    assert (empty.created_at_ms, empty.last_event_at_ms, empty.size_bytes) == (created_ms, None, 0)
    # The mode, the hours, and the capacity in events.
    assert list(empty.retention) == ["hybrid", 24, 100_000]
    node.clock.advance(1000)
    add_events(room, 3, node.clock.now_ms())
    node.subscribers.come(room.log)
    stats = node.rooms.stats(room)
    assert (stats.oldest_offset, stats.newest_offset, stats.event_count) == (0, 2, 3)
    assert (stats.created_at_ms, stats.last_event_at_ms) == (created_ms, node.clock.now_ms() + 2)
    assert stats.size_bytes == room.topic.partitions[0].size_bytes > 0
    assert stats.subscriber_count == 1
    assert node.rooms.summary("lobby") == ("lobby", created_ms, 1, 3, 2, node.clock.now_ms() + 2)
    assert node.rooms.summary("other") is None
    assert (stats.name, stats.topic, stats.epoch, stats.is_room) == ("lobby", "lobby", room.epoch, True)


@in_loop
async def test_time_of_creation_outlives_changes_and_restarts_and_may_be_unknown(node: RoomsNode) -> None:
    created_ms = node.clock.now_ms()
    await node.rooms.create("lobby")
    await node.create("wide", 1)
    node.clock.advance(1000)
    await node.rooms.create("lobby", RoomOverrides(max_events=5))
    wide = node.topics.get("wide")
    assert wide is not None
    await node.topics.create_partitions(wide, 3)
    await node.metastore.commit([Change("topics/old", entry_value(bytes(16), 1, DEFAULT_CONFIGS), 0)])
    node.restart()
    for name in ("lobby", "wide"):
        facts = node.topics.catalogue.find(name)
        assert facts is not None
        assert facts.created_ms == created_ms
    assert node.rooms.stats(node.rooms.get("old")).created_at_ms is None


@in_loop
async def test_rooms_are_listed_in_pages(node: RoomsNode) -> None:
    names = [f"room {number:02}" for number in range(25)]
    await asyncio.gather(*(node.rooms.get_or_create(name) for name in reversed(names)))
    await node.create("room-ordinary")
    pages, after = [], ""
    while True:
        page = node.rooms.list(after, 10)
        pages.append(page.names)
        if page.next is None:
            break
        after = page.next
    assert pages == [names[:10], names[10:20], names[20:]]
    assert node.rooms.list(limit=25).next is None
    assert node.rooms.list("room 23", 10).names == ["room 24"]
    assert node.rooms.list("zzz").names == []
    await node.rooms.delete("room 03")
    assert node.rooms.list(limit=4).names == ["room 00", "room 01", "room 02", "room 04"]


@in_loop
async def test_rooms_are_listed_by_how_they_begin(node: RoomsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["user_1", "user_2", "user 3", "user", "userä", "_x41_", "_x4", "other", "u/1", "u/2"]
    await asyncio.gather(*(node.rooms.get_or_create(name) for name in names))
    for prefix in ("", "u", "user", "user_", "user ", "userä", "_", "_x", "_x4", "_x41", "u/", "z"):
        expected = sorted(name for name in names if name.startswith(prefix))
        assert sorted(node.rooms.list(prefix=prefix).names) == expected
    assert node.rooms.list(prefix="u/", limit=1) == (["u/1"], "u/1")
    assert node.rooms.list("u/1", 1, "u/") == (["u/2"], None)
    # A page examines a limited number of names; then it is short, and names the next page.
    monkeypatch.setattr(interface, "NAMES_PER_PAGE_MAX", 3)
    found, after = [], ""
    for _ in range(10):
        page = node.rooms.list(after, 10, "user_")
        found += page.names
        if page.next is None:
            break
        after = page.next
    assert sorted(found) == ["user_1", "user_2"]


@in_loop
async def test_room_made_or_unmade_by_a_setting_is_counted(node: RoomsNode) -> None:
    topic = await node.create("orders")
    assert node.rooms.count == 0
    await node.topics.configure(topic, {"kwire.room": "TRUE"})
    assert (node.rooms.count, node.rooms.list().names) == (1, ["orders"])
    assert node.rooms.get("orders").is_room
    await node.topics.configure(topic, {"kwire.room": "false"})
    assert (node.rooms.count, node.rooms.list().names) == (0, [])


# --- topics that are no rooms


@in_loop
async def test_ordinary_topic_is_used_as_a_room_and_stays_what_it_is(node: RoomsNode) -> None:
    topic = await node.create("orders", retention_ms="-1")
    room = await node.rooms.get_or_create("orders")
    assert room.topic is topic
    add_events(room)
    stats = node.rooms.stats(room)
    assert (stats.is_room, stats.event_count, stats.retention) == (False, 1, ("infinite", None, None))
    same, is_made = await node.rooms.create("orders")
    assert (same, is_made) == (room, False)
    with pytest.raises(NotARoom):
        await node.rooms.create("orders", RoomOverrides(max_events=1))
    with pytest.raises(NotARoom):
        await node.rooms.delete("orders")
    assert dict(topic.configs) == {"retention.ms": "-1"}
    assert node.topics.get("orders") is topic


@in_loop
async def test_topic_of_several_partitions_is_no_room(node: RoomsNode) -> None:
    await node.create("orders", 3)
    for attempt in (node.rooms.get_or_create, node.rooms.create, node.rooms.delete):
        with pytest.raises(TopicHasPartitions) as caught:
            await attempt("orders")
        assert caught.value.details == {"topic": "orders", "count": 3}


# --- how they go


@in_loop
async def test_deleted_room_is_unknown_and_a_new_one_of_its_name_has_another_epoch(node: RoomsNode) -> None:
    room = await node.rooms.get_or_create("lobby")
    add_events(room, 5)
    await node.rooms.delete("lobby")
    with pytest.raises(RoomNotFound):
        node.rooms.get("lobby")
    with pytest.raises(RoomNotFound):
        await node.rooms.delete("lobby")
    again = await node.rooms.get_or_create("lobby")
    assert again.epoch != room.epoch
    assert node.rooms.stats(again).newest_offset == -1


@in_loop
async def test_room_is_not_deleted_where_topics_are_not(tmp_path: Path) -> None:
    with RoomsNode(tmp_path, "delete.topic.enable=false") as node:
        await node.rooms.get_or_create("lobby")
        with pytest.raises(KafkaError) as caught:
            await node.rooms.delete("lobby")
        assert caught.value.code is ErrorCode.TOPIC_DELETION_DISABLED
        assert node.rooms.get("lobby").name == "lobby"
