"""Schedules of the model written by hand: the worked example of the Stream Engine's text, and others of its rules."""

from collections.abc import Callable

import pytest

from tests.cluster.model.checks import Violation
from tests.cluster.model.entries import EVENT, HOLE, READ, SEAL, STORE, STORED, Message
from tests.cluster.model.master import SEALED
from tests.cluster.model.mistakes import Mistake
from tests.cluster.model.settings import Setting
from tests.cluster.model.world import ARRIVES, SHORTENED, World

A, B, C = range(3)
MAJORITY = (3, 2, 2)
# A choice of Leader.act: a proposal, or a new segment on the stores A, B and C.
NEXT = 0


def deliver(world: World, wanted: Callable[[Message], bool], fate: int = ARRIVES) -> None:
    """Deliver the messages in the bag that are wanted, but not the answers to them."""
    for message in [message for message in world.bag if wanted(message)]:
        world.bag.remove(message)
        world.deliver(message, fate)


def stores_to(*stores: int, slots: tuple[int, ...] = ()) -> Callable[[Message], bool]:
    """STORE requests to these stores, for these first slots."""
    return lambda message: message[0] == STORE and message[1] in stores and (not slots or message[5] in slots)


def requests_to(*stores: int) -> Callable[[Message], bool]:
    return lambda message: message[0] <= STORE and message[1] in stores


def answers(message: Message) -> bool:
    return bool(message[0] > STORE)


def recover_from(world: World, *stores: int) -> int:
    """Elect a leader that hears the seal and read answers of these stores; return its number."""
    world.forget()
    world.elect()
    deliver(world, lambda message: message[0] in (SEAL, READ) and message[1] in stores)
    deliver(world, answers)
    return len(world.leaders) - 1


def world_of_the_example(*, sparse: bool, mistake: Mistake | None = None) -> World:
    """Leader 0 crashed; A has e(1), e(2) and e(3), B and C lack e(2); a new leader has read B and C."""
    world = World(Setting(MAJORITY, sparse=sparse), mistake, strict=mistake is None)
    world.elect()
    for _ in range(4):
        world.act(0, NEXT)
    deliver(world, stores_to(A))
    deliver(world, stores_to(B, C, slots=(0, 2)))
    world.crash_leader(0)
    recover_from(world, B, C)
    return world


def close_without(world: World, *, late: int) -> None:
    """Let the last leader close the segment; store `late` misses the recovered entries, but hears the acked index."""
    deliver(world, lambda message: message[0] == STORE and message[1] != late)
    deliver(world, answers)
    world.forget()
    world.act(len(world.leaders) - 1, NEXT)
    assert world.master.segments[0].state == SEALED
    deliver(world, stores_to(late), SHORTENED)
    deliver(world, stores_to(A, B, C))


def kinds_served(world: World, store: int) -> list[int]:
    return [entry[0] for entry in world.stores[store].serve(0)]


def test_the_worked_example_serves_no_conflicting_entries() -> None:
    """S4-30, S4-36 to S4-38: recovery writes a hole at index 2, and A serves nothing that it does not share."""
    world = world_of_the_example(sparse=True)
    close_without(world, late=A)
    held = [world.stores[store].replicas[0].entries[1] for store in (A, B, C)]
    assert held == [(EVENT, 1001, 1, 1), (HOLE, 0, 2, 2), (HOLE, 0, 2, 2)]
    for store in (A, B, C):
        world.read(store, 0)
    assert kinds_served(world, A) == [EVENT]
    assert kinds_served(world, B) == kinds_served(world, C) == [EVENT, HOLE, EVENT]
    world.resend(1)
    deliver(world, stores_to(A))
    assert kinds_served(world, A) == [EVENT, HOLE, EVENT]
    world.check_end()


def test_the_worked_example_shows_two_histories_when_the_matched_index_is_ignored() -> None:
    world = world_of_the_example(sparse=True, mistake=Mistake.UNMATCHED_SERVED)
    close_without(world, late=A)
    world.read(B, 0)
    with pytest.raises(Violation, match="I14"):
        world.read(A, 0)


def test_the_prefix_policy_ends_the_worked_example_in_front_of_the_empty_slot() -> None:
    """C-39: the events after the first empty slot were not acknowledged, and are dropped."""
    world = world_of_the_example(sparse=False)
    close_without(world, late=A)
    assert world.master.segments[0].end == 1
    assert world.history.completed[0] == ((EVENT, 1000, 1),)
    assert kinds_served(world, B) == [EVENT]


def test_an_acknowledged_event_is_recovered_from_one_copy() -> None:
    """S4-22: the acked index reached no store, but users know it."""
    world = World(Setting(MAJORITY), None, strict=True)
    world.elect()
    world.act(0, NEXT)
    world.act(0, NEXT)
    deliver(world, stores_to(A, B))
    deliver(world, answers)
    assert world.leaders[0].jobs[0].acked == 1
    leader = recover_from(world, B, C)
    assert [entry[:3] for entry in world.leaders[leader].jobs[0].log[:-1]] == [(EVENT, 1000, 1)]


@pytest.mark.parametrize("mistake", [None, Mistake.LOST_IS_ABSENT])
def test_a_store_that_lost_data_does_not_count(mistake: Mistake | None) -> None:
    """S4-19: B acknowledged the event and lost it; the answers of B and C show nothing, and decide nothing."""
    world = World(Setting(MAJORITY, relaxed=True), mistake, strict=mistake is None)
    world.elect()
    world.act(0, NEXT)
    world.act(0, NEXT)
    deliver(world, stores_to(A, B))
    deliver(world, answers)
    world.crash_store(B, 0b1, False)
    leader = recover_from(world, B, C)
    log = world.leaders[leader].jobs[0].log
    assert bool(log) is (mistake is not None), "an end in front of the acknowledged event was decided"
    if mistake is None:
        deliver(world, requests_to(A))
        world.elect()
        deliver(world, requests_to(A, B, C))
        deliver(world, answers)
        assert world.leaders[-1].jobs[0].log[0][:3] == (EVENT, 1000, 1)


def test_an_old_leader_stops_at_a_sealed_store() -> None:
    """S4-18: the first store with a larger epoch that it asks ends its work."""
    world = World(Setting(MAJORITY), None, strict=True)
    world.elect()
    world.act(0, NEXT)
    recover_from(world, A)
    world.act(0, NEXT)
    deliver(world, stores_to(A))
    assert world.stores[A].replicas[0].entries[0] is None
    deliver(world, answers)
    assert not world.leaders[0].alive


def test_the_parallel_path_acknowledges_after_the_earlier_segment_is_sealed() -> None:
    """S4-26 and S4-27: events of the second segment wait, and there is no third one."""
    world = World(Setting(MAJORITY, parallel=True), None, strict=True)
    world.elect()
    world.act(0, NEXT)
    world.elect()
    leader = world.leaders[1]
    recovery = list(world.bag)
    world.forget()
    world.act(1, NEXT)
    world.act(1, NEXT)
    deliver(world, stores_to(A, B))
    deliver(world, answers)
    assert leader.jobs[1].confirmed[A] == leader.jobs[1].confirmed[B] == 1
    assert leader.jobs[1].acked == 0
    leader.roll(1)
    world.act(1, NEXT)
    assert len(world.master.segments) == 2
    world.bag[:] = recovery
    for _ in range(2):
        deliver(world, requests_to(A, B))
        deliver(world, answers)
    world.act(1, NEXT)
    assert world.master.segments[0].state == SEALED
    assert leader.jobs[1].acked == 1


def test_a_committed_slot_with_a_newer_stamp_matches() -> None:
    """S4-24: slots in front of the acked index keep their stamps; an interrupted recovery did not know this index."""
    world = World(Setting(MAJORITY), None, strict=True)
    world.elect()
    world.act(0, NEXT)
    world.act(0, NEXT)
    deliver(world, stores_to(A, B, C))
    deliver(world, answers)
    world.resend(0)
    (acked_index,) = [message for message in world.bag if message[1] == A]
    first = recover_from(world, B, C)
    assert world.leaders[first].jobs[0].log[0] == (EVENT, 1000, 1, 2)
    deliver(world, stores_to(C))
    world.deliver(acked_index, ARRIVES)
    second = recover_from(world, A, B)
    assert world.leaders[second].jobs[0].log[0] == (EVENT, 1000, 1, 1)
    deliver(world, stores_to(C))
    assert [message[5] for message in world.bag if message[0] == STORED] == [2]
    assert world.stores[C].replicas[0].entries[0] == (EVENT, 1000, 1, 2)
