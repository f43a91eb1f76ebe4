"""A client uses a room while it is being cleaned up: the room stays, or a new one replaces it. No event is lost."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kwire.broker.topics.catalogue import entry_value
from kwire.errors import ErrorCode, KafkaError, RoomNotFound
from kwire.metastore import Change
from kwire.streams.events.event import NewEvent
from kwire.streams.events.publishing import Outcome, Publisher
from kwire.streams.rooms import cleanup as room_cleanup
from kwire.streams.rooms.rooms import Room
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.errors import DiskFailure
from tests.streams.rooms.test_cleanup import TIMEOUT_MS, age_files, cleaning, names
from tests.support.batches import make_batch
from tests.support.node import in_loop
from tests.support.rooms import RoomsNode, add_events


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RoomsNode]:
    with RoomsNode(tmp_path, "offsets.topic.num.partitions=3") as made:
        # Files are stamped with the machine's time.
        made.clock.set_wall(time.time_ns() // 1_000_000)
        yield made


async def round_with(node: RoomsNode, monkeypatch: pytest.MonkeyPatch, at_last_moment: Callable[[Room], None]) -> None:
    """A round in which a client uses the room after its files have been checked."""
    room = node.rooms.get("lobby")
    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        look = cleanup._last_write_ms

        def look_and_let_in(path: str | None) -> int:
            written_ms = look(path)
            loop.call_soon_threadsafe(at_last_moment, room)
            return written_ms

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(cleanup, "_last_write_ms", look_and_let_in)
        await cleanup.round()


@pytest.mark.parametrize("what", ["event", "subscriber", "fetch"])
@in_loop
async def test_room_stays_for_who_comes_at_the_last_moment(
    node: RoomsNode, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def come(room: Room) -> None:
        match what:
            case "event":
                add_events(room)
            case "subscriber":
                node.subscribers.come(room.log)
            case "fetch":
                room.topic.partitions[0].is_fetched = True

    await node.rooms.get_or_create("lobby")
    await round_with(node, monkeypatch, come)
    assert names(node) == ["lobby"]


@in_loop
async def test_who_publishes_while_a_room_goes_gets_a_new_one(node: RoomsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    room = await node.rooms.get_or_create("lobby")
    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        came: list[asyncio.Task[Room]] = []

        def come() -> None:
            with pytest.raises(RoomNotFound):
                node.rooms.get("lobby")
            assert node.rooms.summary("lobby") is None
            came.append(asyncio.ensure_future(node.rooms.get_or_create("lobby")))

        at_commit(node, monkeypatch, come)
        await cleanup.round()
        new = await came[0]
    assert new.epoch != room.epoch
    add_events(new)
    assert names(node) == ["lobby"]


def at_commit(node: RoomsNode, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> list[int]:
    """Let `act` happen while the next commit is under way. Returns how many changes each commit has had."""
    commit, sizes = node.metastore.commit, list[int]()

    async def commit_meanwhile(changes: Sequence[Change]) -> int:
        sizes.append(len(changes))
        committing = asyncio.ensure_future(commit(changes))
        if len(sizes) == 1:
            await asyncio.sleep(0)
            assert not committing.done()
            act()
        return await committing

    monkeypatch.setattr(node.metastore, "commit", commit_meanwhile)
    return sizes


@pytest.mark.proves("C-42")
@in_loop
async def test_event_that_comes_while_a_room_goes_is_refused_and_never_acknowledged_and_deleted(
    node: RoomsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await node.rooms.get_or_create("lobby")
    outcomes: list[Outcome] = []
    publisher = Publisher(node.clock, asyncio.get_running_loop().call_soon)
    produced: list[asyncio.Future[Any]] = []

    def come() -> None:
        publisher.publish(room.log, b"/rooms/lobby", [NewEvent("said", b"1")], outcomes.append)
        produced.append(asyncio.ensure_future(node.ask(produce_request("lobby"), 9)))

    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        at_commit(node, monkeypatch, come)
        await cleanup.round()
        answer = await produced[0]
    assert names(node) == []
    # Retriable: a producer looks for the topic again.
    codes = [answer.responses[0].partition_responses[0].error_code]
    codes += [one.code if isinstance(one, KafkaError) else 0 for one in outcomes]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


@in_loop
async def test_room_that_could_not_be_deleted_takes_events_again(
    node: RoomsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await node.rooms.get_or_create("lobby")

    async def fail(changes: object) -> int:
        with pytest.raises(KafkaError):
            add_events(room)
        raise DiskFailure("no")

    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        with monkeypatch.context() as patch:
            patch.setattr(node.metastore, "commit", fail)
            await cleanup.round()
        assert (cleanup.failures, cleanup.removed_count) == (1, 0)
        assert node.rooms.get("lobby") == room
        add_events(room)
        age_files(node, room, 0)
        await cleanup.round()
        assert names(node) == ["lobby"]


@in_loop
async def test_rooms_go_with_one_commit_for_a_portion_of_them(node: RoomsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_cleanup, "BATCH_PAUSE_SECONDS", 0)
    count = 2 * room_cleanup.FOLDERS_PER_BATCH + 1
    made = await asyncio.gather(*(node.rooms.get_or_create(f"room-{number:03}") for number in range(count)))
    add_events(made[3])
    node.subscribers.come(made[4].log)
    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        sizes = at_commit(node, monkeypatch, lambda: None)
        await cleanup.round()
    assert len(sizes) == 2
    assert cleanup.removed_count == count - 1
    # Each room goes with a note of its deletion, and the second commit drops notes of the first.
    assert 2 * cleanup.removed_count <= sum(sizes) <= 3 * cleanup.removed_count
    assert names(node) == ["room-004"]
    assert not list(node.directory.glob("room-003-0"))


@in_loop
async def test_room_that_somebody_deletes_at_the_same_moment_does_not_end_the_round(
    node: RoomsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_cleanup, "FOLDERS_PER_BATCH", 2)
    for name in ("a", "b", "c"):
        await node.rooms.get_or_create(name)
    async with cleaning(node) as cleanup:
        node.clock.advance(2 * TIMEOUT_MS)
        # Referenced, because an unreferenced topic would be loaded again, as the store has it by then.
        held = node.topics.get("a")
        assert held is not None
        facts = held.facts
        # Behind the catalogue's back: the store finds out at the commit.
        value = entry_value(facts.topic_id, 1, facts.configs, facts.created_ms)
        await node.metastore.commit([Change("topics/a", value, facts.revision)])
        await cleanup.round()
        assert (names(node), cleanup.failures) == (["a", "b"], 0)


def produce_request(topic: str) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=memoryview(make_batch(1)))
    data = TopicProduceData(name=topic, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
