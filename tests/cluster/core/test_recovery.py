"""Recovery: what a new leader makes of a segment that an earlier one left."""

from itertools import combinations

import pytest

from kwire.cluster.core.control import SegmentState
from kwire.cluster.core.entries import Entry, Kind, Position
from kwire.cluster.core.leader.recovery import Phase
from kwire.cluster.core.messages import Close, Sealed, SegmentId
from kwire.cluster.core.policies import Gaps, Path
from tests.cluster.core.situations import (
    ABC,
    DEF,
    FIRST,
    content,
    events,
    example_of_the_hole,
    led_world,
    read_all,
    recover_hearing,
    two_copy_sets,
)
from tests.cluster.core.world import STREAM, World

PAIRS = list(combinations(ABC, 2))


def state(world: World) -> SegmentState:
    return world.master.segments[1].state


@pytest.mark.proves("S4-22", "S4-24")
@pytest.mark.parametrize("acknowledging", PAIRS, ids="".join)
@pytest.mark.parametrize("heard", PAIRS, ids="".join)
def test_what_the_user_was_promised_survives_a_leader_that_told_no_store(
    acknowledging: tuple[str, str], heard: tuple[str, str]
) -> None:
    world = led_world()
    position = world.append("old", b"promised")
    for store in acknowledging:
        world.deliver_some(target=store, kind="Store")
    world.deliver_some(target="old")
    assert world.acked["old"] == [position]
    del world.writers["old"]
    world.bag.clear()
    assert {world.stores[store].replicas[FIRST].acked for store in ABC} == {0}
    recover_hearing(world, *heard)
    assert state(world) is SegmentState.SEALED
    world.settle()
    world.repair()
    for store in ABC:
        assert events(world, store) == [b"promised"]
    assert read_all(world, "r") == [b"promised"]


@pytest.mark.proves("S4-23")
def test_the_answer_to_a_seal_has_the_acked_index_that_the_store_knows() -> None:
    world = led_world()
    for number in range(1, 4):
        world.append("old", b"%d" % number)
        # Each further store hears of the acknowledgement of one entry less.
        for store in ABC[: 4 - number]:
            world.deliver_some(target=store, kind="Store")
        world.bag = [message for message in world.bag if message.target == "old"]
        world.deliver_all()
        world.tick(world.limits.idle_ms)
        world.deliver_some(target=ABC[3 - number], kind="Store")
    known = {store: world.stores[store].replicas[FIRST].acked for store in ABC}
    assert len(set(known.values())) > 1, known
    world.bag.clear()
    world.elect("new")
    world.deliver_some(kind="Seal")
    answers = {message.source: message.body for message in world.take(kind="Sealed")}
    assert {store: body.acked for store, body in answers.items() if isinstance(body, Sealed)} == known


@pytest.mark.proves("S4-25")
def test_a_segment_is_recorded_as_sealed_after_w_copies_of_everything_and_then_closed() -> None:
    world = example_of_the_hole(Gaps.FILLED)
    world.elect("new")
    world.deliver_some(kind="Seal")
    world.deliver_some(kind="Sealed")
    recovery = world.writers["new"]._recovery
    assert recovery is not None
    # B has everything with the new stamp, A and C have nothing of it yet: one copy is not enough.
    for _ in range(10):
        world.deliver_some(target="B")
        world.deliver_some(source="B")
        world.deliver_some(source="A", kind="Entries")
        world.deliver_some(target="A", kind="Read")
    assert world.stores["B"].replicas[FIRST].matched == 4
    assert recovery.phase is Phase.REPLICATING
    assert state(world) is SegmentState.SEALING
    assert not any(isinstance(message.body, Close) for message in world.bag)
    world.settle()
    record = world.master.segments[1]
    assert (record.state, record.end_index, record.end_epoch) == (SegmentState.SEALED, 4, 2)
    assert {world.stores[store].replicas[FIRST].closed_end for store in ABC} == {4}


@pytest.mark.proves("S4-26")
def test_new_events_are_stored_during_a_recovery_and_acknowledged_after_it() -> None:
    world = two_copy_sets(Path.PARALLEL)
    world.elect("old")
    world.settle()
    world.append("old", b"one")
    world.settle()
    del world.writers["old"]
    world.elect("new")
    world.take(target="A,B,C")
    position = world.append("new", b"two")
    while world.deliver_some(target="D,E,F,new"):
        pass
    assert [events(world, store, SegmentId(STREAM, 2)) for store in DEF] == [[b"two"]] * 3
    assert state(world) is SegmentState.SEALING
    assert world.acked["new"] == []
    assert read_all(world, "during") == [b"one"]
    world.settle()
    assert state(world) is SegmentState.SEALED
    assert world.acked["new"] == [position] == [Position(2, 1)]
    assert read_all(world, "after") == [b"one", b"two"]


@pytest.mark.proves("S4-27")
def test_with_two_segments_that_are_not_sealed_the_leader_takes_no_more_events() -> None:
    world = two_copy_sets(Path.PARALLEL)
    world.elect("old")
    world.settle()
    del world.writers["old"]
    world.elect("new")
    world.take(target="A,B,C")
    appended = [world.append("new", payload) for payload in (b"one", b"two", b"three")]
    assert appended == [Position(2, 1), Position(2, 2), None], "segment 2 is full, and segment 1 is in recovery"
    while world.deliver_some(target="D,E,F,new"):
        pass
    assert world.append("new", b"three") is None
    assert list(world.master.segments) == [1, 2]
    world.settle()
    assert world.append("new", b"three") == Position(3, 1)


@pytest.mark.proves("S4-36", "S4-37", "S4-38", "S4-39")
def test_a_recovered_segment_has_events_a_hole_and_the_bridge_to_the_next_one() -> None:
    world = example_of_the_hole(Gaps.FILLED)
    recover_hearing(world, "B", "C")
    world.settle()
    for store in ABC:
        assert content(world, store) == [
            Entry(1, Kind.EVENT, 1, 2, b"one"),
            Entry(2, Kind.HOLE, 2, 2),
            Entry(3, Kind.EVENT, 1, 2, b"three"),
            Entry(4, Kind.BRIDGE, 2, 2),
        ]
    assert set(Kind) == {Kind.EVENT, Kind.HOLE, Kind.BRIDGE}
    assert world.append("new", b"four") == Position(2, 1)
    world.settle()
    reader = world.start_reader("r")
    world.read()
    assert [one.payload for one in world.delivered["r"]] == [b"one", None, b"three", b"four"]
    assert [one.offset for one in world.delivered["r"]] == [0, 1, 2, 3], "the bridge has no offset"
    assert reader.position == Position(2, 2)


@pytest.mark.proves("C-39")
def test_only_plain_streams_have_holes() -> None:
    """The segment of a Kafka topic ends before the first slot that is empty: no event follows it."""
    for gaps, expected in ((Gaps.REFUSED, [b"one"]), (Gaps.FILLED, [b"one", None, b"three"])):
        world = example_of_the_hole(gaps)
        recover_hearing(world, "B", "C")
        world.settle()
        assert read_all(world, "r") == expected
