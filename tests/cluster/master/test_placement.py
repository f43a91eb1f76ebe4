"""Placement: replicas are spread over racks and stores, and whole logs stay where they are."""

from collections import Counter

import pytest

from kwire.cluster.core.control import Heartbeat, OpenSegment, Renewed, Unavailable
from kwire.cluster.core.messages import Incarnation, SegmentId
from kwire.cluster.master.placement import place
from kwire.cluster.master.stores import Health, StoreStatus
from tests.cluster.master.world import GIB, SETTINGS, World, names


def store(name: str, *, rack: str = "", free_bytes: int = GIB, load: int = 0) -> StoreStatus:
    return StoreStatus(name, Incarnation(ord(name[0]), 1), rack, False, Health.ALIVE, free_bytes, load)


def placed(stores: list[StoreStatus], count: int, *, free_bytes_min: int = 0, choice: int = 0) -> set[str]:
    return {one.name for one in place(stores, count, free_bytes_min=free_bytes_min, choice=choice)}


def test_racks_come_before_load() -> None:
    stores = [store("A", rack="1"), store("B", rack="1"), store("C", rack="2", load=9), store("D", rack="3", load=9)]
    assert placed(stores, 3) in ({"A", "C", "D"}, {"B", "C", "D"})
    assert placed(stores, 4) == {"A", "B", "C", "D"}


def test_stores_with_few_unsealed_segments_come_before_stores_with_much_space() -> None:
    stores = [store("A", load=2, free_bytes=9 * GIB), store("B", load=1), store("C", load=1, free_bytes=2 * GIB)]
    assert [one.name for one in place(stores, 3)] == ["C", "B", "A"]


def test_full_stores_come_last() -> None:
    stores = [store("A", free_bytes=10), store("B", load=5), store("C", load=6)]
    assert placed(stores, 2, free_bytes_min=100) == {"B", "C"}
    assert placed(stores, 3, free_bytes_min=100) == {"A", "B", "C"}


def test_the_choice_decides_between_equal_stores() -> None:
    stores = [store(name) for name in "ABCDEF"]
    counts = Counter(name for choice in range(600) for name in placed(stores, 2, choice=choice))
    assert min(counts.values()) > 100
    assert placed(stores, 2, choice=5) == placed(stores[::-1], 2, choice=5)


@pytest.mark.proves("S4-8", "S4-4")
def test_the_segments_of_a_plain_stream_are_spread_over_all_stores() -> None:
    world = World("ABCDEF")
    world.create()
    epoch = world.elect()
    free = dict.fromkeys("ABCDEF", 100 * GIB)
    for name in free:
        world.hear(name, free_bytes=free[name])
    counts: Counter[str] = Counter()
    for number in range(1, 31):
        copy_set = names(world.open(epoch, number))
        assert len(copy_set) == 3
        counts.update(copy_set)
        world.close(epoch, number, 10)
        for name in copy_set:
            free[name] -= GIB
            world.hear(name, free_bytes=free[name])
    assert set(counts.values()) == {15}


def test_streams_that_write_at_the_same_time_are_spread() -> None:
    world = World("ABCDEF")
    counts: Counter[str] = Counter()
    for number in range(20):
        world.create(f"s{number}")
        counts.update(names(world.open(world.elect("c", f"s{number}"), 1, f"s{number}")))
    assert set(counts.values()) == {10}


def test_a_segment_needs_as_many_stores_as_its_write_quorum() -> None:
    world = World("AB")
    world.create(replicas=3, write_quorum=2)
    epoch = world.elect()
    assert names(world.open(epoch, 1)) == {"A", "B"}
    world.close(epoch, 1, 1)
    world.pass_time(SETTINGS.store_timeout_ms, "A")
    refused = world.ask(OpenSegment("s", epoch, 2))
    assert isinstance(refused, Unavailable)
    assert "needs 2 copies" in refused.reason


def test_the_stores_that_a_leader_avoids_are_used_only_in_need() -> None:
    world = World("ABCD")
    world.create()
    epoch = world.elect()
    assert names(world.open(epoch, 1, avoid=("A",))) == {"B", "C", "D"}
    world.close(epoch, 1, 1)
    assert names(world.open(epoch, 2, avoid=("A", "B"))) == {"C", "D"}
    renewed = world.ask(Heartbeat("s", "c", epoch))
    assert isinstance(renewed, Renewed)
    assert not renewed.must_roll
    world.close(epoch, 2, 1)
    assert len(names(world.open(epoch, 3, avoid=("A", "B", "C")))) == 3


# --- whole logs


def must_roll(world: World) -> bool:
    renewed = world.ask(Heartbeat("s", "c", 1))
    assert isinstance(renewed, Renewed), renewed
    return renewed.must_roll


@pytest.fixture
def whole_log() -> World:
    """A whole log on A, B and C with two sealed segments and an open one. D and E joined later."""
    world = World("ABC")
    world.create(whole_log=True)
    epoch = world.elect()
    for number in (1, 2, 3):
        assert names(world.open(epoch, number)) == {"A", "B", "C"}
        if number < 3:
            world.close(epoch, number, 5)
    world.hear("D", free_bytes=100 * GIB)
    world.hear("E")
    world.verify_all("ABC")
    return world


@pytest.mark.proves("C-47")
def test_a_whole_log_stays_on_its_stores(whole_log: World) -> None:
    assert not must_roll(whole_log)
    whole_log.close(1, 3, 5)
    assert names(whole_log.open(1, 4)) == {"A", "B", "C"}


@pytest.mark.proves("C-47")
def test_a_store_joins_a_whole_log_after_it_has_copied_all_segments(whole_log: World) -> None:
    world = whole_log
    world.pass_time(SETTINGS.store_timeout_ms, "ABDE")
    assert must_roll(world)
    world.close(1, 3, 5)
    assert names(world.open(1, 4)) == {"A", "B"}
    assert not must_roll(world)
    # C has failed: one store copies all sealed segments.
    world.pass_time(SETTINGS.store_replace_ms, "ABDE")
    world.verify_all("ABDE")
    (joining,) = names(world.segment(1).record) - {"A", "B"}
    for number in (1, 2, 3):
        assert names(world.segment(number).record) == {"A", "B", joining}
    # Now it can join. The segment that ends for it must be copied first.
    assert must_roll(world)
    world.close(1, 4, 2)
    waiting = world.ask(OpenSegment("s", 1, 5))
    assert isinstance(waiting, Unavailable)
    assert "still copies segment 4" in waiting.reason
    world.verify_all("ABDE")
    assert names(world.open(1, 5)) == {"A", "B", joining}
    assert not must_roll(world)


def test_a_whole_log_does_not_wait_long_for_a_store_that_joins(whole_log: World) -> None:
    world = whole_log
    world.close(1, 3, 5)
    world.pass_time(SETTINGS.store_replace_ms, "ABDE")
    assert names(world.open(1, 4)) == {"A", "B"}
    world.verify_all("ABDE")
    world.close(1, 4, 2)
    assert isinstance(world.ask(OpenSegment("s", 1, 5)), Unavailable)
    world.pass_time(SETTINGS.learner_wait_ms, "ABDE")
    assert names(world.open(1, 5)) == {"A", "B"}


def test_a_store_of_a_whole_log_in_limbo_leaves_and_joins_again(whole_log: World) -> None:
    world = whole_log
    world.hear("C", limbo=(SegmentId("s", 3),))
    assert must_roll(world)
    world.close(1, 3, 5)
    assert names(world.open(1, 4)) == {"A", "B"}
    assert ("C", 3) in world.ordered_copies()
    # Its report does not count before its heartbeat says that the segment is repaired.
    for name in "ABC":
        world.copied(name, 3)
    assert {one.store for one in world.segment(3).reports} == {"A", "B"}
    world.hear("C")
    world.pass_time(SETTINGS.copy_timeout_ms, "ABCDE")
    world.verify_all("ABCDE")
    assert {one.store for one in world.segment(3).reports} == {"A", "B", "C"}
    assert must_roll(world)


def test_the_copies_of_a_whole_log_are_ordered_one_after_the_other(whole_log: World) -> None:
    world = whole_log
    world.close(1, 3, 5)
    world.verify_all("ABC")
    world.pass_time(SETTINGS.store_replace_ms, "ABDE")
    # The log of a partition is written in order, and a copy that has to wait would keep others from being made.
    for number in (1, 2, 3):
        ((store, ordered),) = world.ordered_copies()
        assert ordered == number
        assert store in "DE"
        assert world.ordered_copies() == set()
        world.copied(store, number)
    assert world.ordered_copies() == set()


def test_a_store_in_limbo_gets_the_earlier_segments_of_a_whole_log(whole_log: World) -> None:
    world = whole_log
    world.close(1, 3, 5)
    world.verify_all("ABC")
    world.pass_time(SETTINGS.store_replace_ms, "AB")
    # The only other store has doubts about a later segment, which it can not fill without the earlier ones.
    world.hear("D", limbo=(SegmentId("s", 4),))
    assert world.ordered_copies() == {("D", 1)}
    world.hear("D", limbo=(SegmentId("other", 4),))
    world.copied("D", 1)
    assert world.ordered_copies() == set()
