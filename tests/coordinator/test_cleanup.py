"""Cleanup of a shard: it runs in chunks, ends, and never removes offsets that are in use."""

from collections.abc import Iterable

import pytest

from kwire.coordinator.group import cleanup
from kwire.coordinator.group.commands import (
    CommitOffsets,
    DeleteGroup,
    FetchAnswer,
    FetchOffsets,
    JoinAnswer,
    JoinGroup,
    OffsetToCommit,
)
from kwire.coordinator.group.coordinator import GroupCoordinator
from kwire.coordinator.group.topics_view import TopicShape
from kwire.coordinator.log_records import ProducerIdAndEpoch
from kwire.errors import ErrorCode
from kwire.wire.types import ZERO_UUID
from tests.coordinator.world import World, all_pending

ROUND_MS = 10_000
RETENTION_MS = 100_000


class ManualTopics:
    """Topics that come and go as a test says."""

    def __init__(self, *names: str) -> None:
        self.revision = 0
        self.known = {name: TopicShape(name.encode().ljust(16, b"1"), 3) for name in names}

    def change(self, name: str, shape: TopicShape | None) -> None:
        self.revision += 1
        if shape is None:
            del self.known[name]
        else:
            self.known[name] = shape

    def find(self, name: str) -> TopicShape | None:
        return self.known.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, shape in self.known.items() if shape.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self.known


def world_with(topics: ManualTopics | None = None) -> World:
    world = World(
        initial_rebalance_delay_ms=0, offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=ROUND_MS
    )
    world.groups = GroupCoordinator(
        log=world.log,
        clock=world.clock,
        call_later=world.timers.call_later,
        settings=world.settings,
        topics=topics,
    )
    return world


def commit(world: World, group_id: str, *places: tuple[str, int], topic_id: bytes = ZERO_UUID) -> None:
    offsets = [OffsetToCommit(topic, partition, 1, topic_id=topic_id) for topic, partition in places]
    errors: list[ErrorCode] = []
    world.groups.submit(CommitOffsets(group_id=group_id, offsets=offsets), errors.extend)
    assert errors == [ErrorCode.NONE] * len(places)


def fetched(world: World, group_id: str) -> list[tuple[str, int]]:
    answers: list[FetchAnswer] = []
    world.groups.submit(FetchOffsets(group_id=group_id, topics=None), answers.append)
    return [(topic.topic, partition) for topic in answers[0].topics for partition, _ in topic.offsets]


def delete(world: World, group_id: str) -> list[ErrorCode]:
    """The list fills when the answer comes."""
    answers: list[ErrorCode] = []
    world.groups.submit(DeleteGroup(group_id=group_id), answers.append)
    return answers


def join(world: World, group_id: str) -> list[JoinAnswer]:
    answers: list[JoinAnswer] = []
    command = JoinGroup(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        requires_member_id=False,
        fresh_id=world.groups.fresh_id(),
    )
    world.groups.submit(command, answers.append)
    return answers


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "CHUNK_RECORDS_MAX", 3)
    monkeypatch.setattr(cleanup, "CHUNK_GROUPS_MAX", 2)
    monkeypatch.setattr(cleanup, "CHUNK_TOPICS_MAX", 2)


PLACES = [(topic, partition) for topic in "abcd" for partition in range(5)]


@pytest.mark.usefixtures("small_portions")
def test_everything_that_is_over_goes_in_one_round_of_many_portions() -> None:
    world = world_with()
    for number in range(7):
        commit(world, f"g{number}", *PLACES)
    world.timers.advance(RETENTION_MS + ROUND_MS - 1)
    assert [fetched(world, f"g{number}") for number in range(7)] == [[]] * 7
    assert world.durable() == world.replayed() == {}


@pytest.mark.usefixtures("small_portions")
def test_portion_is_one_small_append() -> None:
    world = world_with()
    commit(world, "g", *PLACES)
    sizes: list[int] = []
    append = world.log.append

    def noted(shard: int, records: list[tuple[bytes, bytes | None]], now_ms: int) -> int:
        sizes.append(len(records))
        return append(shard, records, now_ms)

    world.log.append = noted  # type: ignore[method-assign,assignment]
    world.timers.advance(2 * RETENTION_MS)
    assert sum(sizes) == len(PLACES)
    assert max(sizes) <= 3


@pytest.mark.usefixtures("small_portions")
def test_offset_committed_during_a_round_stays_and_so_does_its_group() -> None:
    world = world_with()
    commit(world, "g", *PLACES)
    world.timers.advance(RETENTION_MS - 1)
    # The first portions of the round have been done.
    world.timers.advance(1 + 2 * cleanup.PAUSE_MS)
    left = fetched(world, "g")
    assert 0 < len(left) < len(PLACES)
    commit(world, "g", ("a", 0), ("d", 4))
    world.timers.advance(ROUND_MS)
    assert sorted(fetched(world, "g")) == [("a", 0), ("d", 4)]


@pytest.mark.usefixtures("small_portions")
def test_disk_that_takes_nothing_does_not_keep_a_chore_going() -> None:
    world = world_with()
    for number in range(3):
        commit(world, f"g{number}", *PLACES)
    world.log.is_failing = True
    # Each try is one timer; the bound of `advance` would end a chore that goes on for ever.
    world.timers.advance(2 * RETENTION_MS, calls_max=2_000)
    assert [len(fetched(world, f"g{number}")) for number in range(3)] == [len(PLACES)] * 3
    world.log.is_failing = False
    world.timers.advance(ROUND_MS)
    assert world.durable() == {}


@pytest.mark.usefixtures("small_portions")
def test_large_group_is_deleted_in_portions_and_then_answered() -> None:
    world = world_with()
    commit(world, "g", *PLACES)
    answers = delete(world, "g")
    assert not answers
    commit(world, "other", ("a", 0))
    world.timers.advance(100)
    assert answers == [ErrorCode.NONE]
    assert fetched(world, "g") == []
    assert fetched(world, "other") == [("a", 0)]
    assert delete(world, "g") == [ErrorCode.GROUP_ID_NOT_FOUND]


@pytest.mark.usefixtures("small_portions")
def test_group_that_gets_a_member_while_it_is_deleted_is_not_deleted() -> None:
    world = world_with()
    commit(world, "g", *PLACES)
    answers = delete(world, "g")
    assert [answer.error for answer in join(world, "g")] == [ErrorCode.NONE]
    world.timers.advance(100)
    assert answers == [ErrorCode.NON_EMPTY_GROUP]


@pytest.mark.usefixtures("small_portions")
def test_deletion_that_cannot_be_stored_is_refused_and_can_be_tried_again() -> None:
    world = world_with()
    commit(world, "g", *PLACES)
    world.log.is_failing = True
    answers = delete(world, "g")
    world.timers.advance(100)
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.log.is_failing = False
    answers = delete(world, "g")
    world.timers.advance(100)
    assert answers == [ErrorCode.NONE]


def test_small_group_is_deleted_at_once() -> None:
    world = world_with()
    commit(world, "g", *PLACES)
    assert delete(world, "g") == [ErrorCode.NONE]


def test_deletion_under_way_when_the_coordinator_closes_is_answered(small_portions: None) -> None:
    world = world_with()
    commit(world, "g", *PLACES)
    answers = delete(world, "g")
    world.groups.close()
    assert answers == [ErrorCode.NOT_COORDINATOR]


# Topics


def test_offsets_of_a_topic_that_is_gone_go_soon_and_others_stay() -> None:
    topics = ManualTopics("t", "u")
    world = world_with(topics)
    commit(world, "g", ("t", 0), ("t", 1), topic_id=topics.known["t"].topic_id)
    commit(world, "g", ("u", 0), topic_id=topics.known["u"].topic_id)
    commit(world, "h", ("t", 2))
    world.timers.advance(cleanup.TOPICS_CHECK_MS)
    assert len(fetched(world, "g")) == 3
    topics.change("t", None)
    world.timers.advance(cleanup.TOPICS_CHECK_MS + cleanup.PAUSE_MS)
    assert fetched(world, "g") == [("u", 0)]
    assert fetched(world, "h") == []
    assert world.durable() == world.replayed()


def test_topic_that_came_back_under_another_id_has_no_old_offsets() -> None:
    topics = ManualTopics("t")
    world = world_with(topics)
    old_id = topics.known["t"].topic_id
    commit(world, "g", ("t", 0), ("t", 1), topic_id=old_id)
    new = TopicShape(b"n" * 16, 3)
    topics.change("t", None)
    topics.change("t", new)
    commit(world, "g", ("t", 1), topic_id=new.topic_id)
    # Old records do not say which topic they mean: while there is one of this name, they are left.
    commit(world, "h", ("t", 0))
    world.timers.advance(cleanup.TOPICS_CHECK_MS + cleanup.PAUSE_MS)
    assert fetched(world, "g") == [("t", 1)]
    assert fetched(world, "h") == [("t", 0)]


@pytest.mark.usefixtures("small_portions")
def test_many_offsets_of_many_topics_go_in_portions() -> None:
    topics = ManualTopics(*"abcd")
    world = world_with(topics)
    for number in range(5):
        commit(world, f"g{number}", *PLACES)
    for name in "abd":
        topics.change(name, None)
    world.timers.advance(2 * cleanup.TOPICS_CHECK_MS)
    assert {place for number in range(5) for place in fetched(world, f"g{number}")} == {("c", n) for n in range(5)}


@pytest.mark.usefixtures("small_portions")
def test_disk_that_takes_nothing_does_not_keep_a_check_of_topics_going() -> None:
    topics = ManualTopics("a")
    world = world_with(topics)
    commit(world, "g", *(("a", partition) for partition in range(10)))
    topics.change("a", None)
    world.log.is_failing = True
    world.timers.advance(ROUND_MS - 1, calls_max=100)
    assert len(fetched(world, "g")) == 10


def test_offsets_that_could_not_be_dropped_with_their_topic_are_dropped_later() -> None:
    topics = ManualTopics("t")
    world = world_with(topics)
    commit(world, "g", ("t", 0), topic_id=topics.known["t"].topic_id)
    topics.change("t", None)
    world.log.is_failing = True
    world.timers.advance(cleanup.TOPICS_CHECK_MS)
    world.log.is_failing = False
    world.timers.advance(cleanup.TOPICS_CHECK_MS + cleanup.PAUSE_MS)
    assert fetched(world, "g") == []


def test_topics_deleted_while_the_server_was_away_are_noticed_after_the_start() -> None:
    topics = ManualTopics("t")
    world = world_with(topics)
    commit(world, "g", ("t", 0), topic_id=topics.known["t"].topic_id)
    topics.change("t", None)
    world.groups.close()
    restarted = world_with(topics)
    restarted.log.shards = world.log.shards
    assert fetched(restarted, "g") == [("t", 0)]
    restarted.timers.advance(cleanup.TOPICS_CHECK_MS)
    assert fetched(restarted, "g") == []


def test_loading_reaches_every_shard_without_being_asked() -> None:
    world = world_with()
    for number in range(10):
        commit(world, f"g{number}", ("t", 0))
    restarted = world_with()
    restarted.log.shards = world.log.shards
    restarted.groups.load()
    restarted.timers.advance(100)
    assert len(list(restarted.groups.shards())) == restarted.groups.shard_count
    restarted.timers.advance(RETENTION_MS + ROUND_MS)
    assert restarted.durable() == {}


def test_loading_stops_when_the_coordinator_closes() -> None:
    world = world_with()
    world.groups.load()
    world.groups.close()
    assert world.timers.live_count() == 0


# With offsets of transactions


def commit_pending(world: World, producer_id: int, group_id: str, *places: tuple[str, int], topic_id: bytes) -> None:
    offsets = [OffsetToCommit(topic, partition, 2, topic_id=topic_id) for topic, partition in places]
    errors: list[ErrorCode] = []
    command = CommitOffsets(group_id=group_id, transaction=ProducerIdAndEpoch(producer_id, 0), offsets=offsets)
    world.groups.submit(command, errors.extend)
    assert errors == [ErrorCode.NONE] * len(places)


def pending_places(world: World) -> set[tuple[str, str, int]]:
    return {
        (place.group_id, place.topic, place.partition)
        for shard in world.groups.shards()
        for _, place, _ in all_pending(shard)
    }


@pytest.mark.usefixtures("small_portions")
def test_group_with_many_pending_offsets_goes_in_portions() -> None:
    world = world_with()
    commit(world, "g", *PLACES[:7])
    commit_pending(world, 7, "g", *PLACES[4:], topic_id=ZERO_UUID)
    commit_pending(world, 8, "g", *PLACES[::2], topic_id=ZERO_UUID)
    answers = delete(world, "g")
    assert not answers
    assert pending_places(world)
    world.timers.advance(1_000)
    assert answers == [ErrorCode.NONE]
    assert not pending_places(world)
    assert world.durable() == {}
    assert world.replayed() == {}


@pytest.mark.usefixtures("small_portions")
def test_pending_offsets_of_many_topics_that_are_gone_go_in_portions() -> None:
    topics = ManualTopics(*"abcd")
    world = world_with(topics)
    for number, topic in enumerate("abcd"):
        places = [place for place in PLACES if place[0] == topic]
        topic_id = topics.known[topic].topic_id
        commit(world, "g", *places[:3], topic_id=topic_id)
        commit_pending(world, number, "g", *places[1:], topic_id=topic_id)
    for name in "abd":
        topics.change(name, None)
    world.timers.advance(2 * cleanup.TOPICS_CHECK_MS)
    assert fetched(world, "g") == [("c", 0), ("c", 1), ("c", 2)]
    assert pending_places(world) == {("g", "c", partition) for partition in range(1, 5)}
    assert world.durable() == world.replayed()


@pytest.mark.usefixtures("small_portions")
def test_disk_that_takes_nothing_does_not_keep_a_check_of_pending_offsets_going() -> None:
    topics = ManualTopics("a")
    world = world_with(topics)
    places = [("a", partition) for partition in range(10)]
    commit_pending(world, 7, "g", *places, topic_id=topics.known["a"].topic_id)
    topics.change("a", None)
    world.log.is_failing = True
    world.timers.advance(ROUND_MS - 1, calls_max=100)
    assert len(pending_places(world)) == 10


def test_topic_with_pending_offsets_is_in_use() -> None:
    world = world_with()
    world.groups.load()
    world.timers.advance(100)
    assert not world.groups.has_offsets_in("t")
    commit_pending(world, 7, "g", ("t", 0), topic_id=ZERO_UUID)
    assert world.groups.has_offsets_in("t")
    world.groups.end_transaction(world.groups.shard_of("g"), 7, 0, 0, False, lambda _: None)
    assert not world.groups.has_offsets_in("t")
