"""What a segment store holds, drops, reports and serves; and quorum reads over several stores."""

import pytest

from kwire.cluster.core.entries import Entry, Kind, Run
from kwire.cluster.core.messages import Drop, Fetch, Fetched, Message, Peek, Peeked, Seal, SegmentId, Stored
from kwire.cluster.core.policies import Gaps, Limits, Policy
from kwire.cluster.core.quorum import Quorum
from kwire.cluster.core.reader.quorum_read import acknowledged
from tests.cluster.core.situations import (
    ABC,
    FIRST,
    content,
    events,
    example_of_the_hole,
    led_world,
    read_all,
    recover_hearing,
    sent_indexes,
)
from tests.cluster.core.world import STREAM, World

SECOND = SegmentId(STREAM, 2)


def fetched(world: World, store: str, first: int = 1) -> list[Entry]:
    """What a store serves to a reader."""
    world.deliver(Message("r", store, Fetch(FIRST, first)))
    (answer,) = world.take(target="r")
    assert isinstance(answer.body, Fetched)
    return list(answer.body.entries)


def quorum_read(world: World, *stores: str) -> list[Entry]:
    """What a reader finds to be acknowledged in the answers of these stores."""
    answers = []
    for store in stores:
        world.deliver(Message("r", store, Peek(FIRST, 1)))
        answers += [message.body for message in world.take(target="r") if isinstance(message.body, Peeked)]
    return acknowledged(1, answers, world.policy.quorum)


@pytest.mark.proves("S4-33")
def test_a_store_keeps_the_segments_apart() -> None:
    world = World([ABC], Policy(Quorum(3, 2)), Limits(segment_entries=2))
    world.elect("old")
    world.settle()
    for payload in (b"one", b"two", b"three"):
        world.append("old", payload)
        world.settle()
    assert events(world, "A", FIRST) == [b"one", b"two"]
    assert events(world, "A", SECOND) == [b"three"]
    store = world.stores["A"]
    world.deliver(Message("w", "A", Seal(SECOND, 7, store.incarnation.cookie)))
    assert store.replicas[SECOND].sealed_epoch == 7
    assert store.replicas[FIRST].sealed_epoch == 1
    world.deliver(Message("master", "A", Drop(FIRST, store.incarnation, 1)))
    assert content(world, "A", FIRST) == []
    assert events(world, "A", SECOND) == [b"three"]


@pytest.mark.proves("S4-34")
def test_a_store_under_pressure_drops_entries_so_that_its_replica_has_a_hole() -> None:
    """It keeps at most `pending_entries` after its matched index. The leader sends the dropped ones again."""
    world = led_world(limits=Limits(batch_bytes=1, pending_entries=2))
    for number in range(1, 6):
        world.append("old", b"%d" % number)
    lost, *arriving = world.take(target="A", kind="Store")
    for message in arriving:
        world.deliver(message)
    assert events(world, "A") == [b"2"], "nothing is in slot 1, and slots 3 to 5 were dropped"
    assert list(world.stores["A"].replicas[FIRST].runs) == [Run(2, 2, Kind.EVENT, 1, 1)]
    world.settle()
    assert lost not in world.bag
    assert events(world, "A") == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.proves("S4-35")
def test_a_store_with_a_gap_answers_with_its_matched_index_and_the_leader_sends_from_there() -> None:
    world = led_world()
    for number in range(1, 7):
        world.append("old", b"%d" % number)
    for number, message in enumerate(world.take(target="A", kind="Store"), start=1):
        if number != 3:
            world.deliver(message)
    answers = [message.body for message in world.bag if message.source == "A"]
    assert [(one.matched, one.has_gap) for one in answers if isinstance(one, Stored)] == [
        (1, False), (2, False), (2, True), (2, True), (2, True),
    ]  # fmt: skip
    world.deliver_some(source="A")
    assert sent_indexes(world, "A") == [3, 4, 5, 6], "once, although three answers reported the gap"
    world.deliver_some(target="A", kind="Store")
    assert world.stores["A"].replicas[FIRST].matched == 6


@pytest.mark.proves("S4-30")
def test_readers_get_the_same_content_from_stores_that_conflict() -> None:
    """The example of the specification: A still holds e(2), and B and C hold the hole of the recovery."""
    world = example_of_the_hole(Gaps.FILLED)
    recover_hearing(world, "B", "C")
    hole = Entry(2, Kind.HOLE, 2, 2)
    assert content(world, "A")[1] == Entry(2, Kind.EVENT, 1, 1, b"two")
    assert content(world, "B")[1] == content(world, "C")[1] == hole
    # A does not know that its entries were acknowledged, and serves none of them.
    assert fetched(world, "A") == []
    assert fetched(world, "B")[1] == fetched(world, "C")[1] == hole
    for stores in ("AB", "AC", "BC", "ABC", "CBA"):
        assert quorum_read(world, *stores)[1] == hole
    assert read_all(world, "r") == [b"one", None, b"three"]


@pytest.mark.proves("S4-43")
def test_a_quorum_read_finds_acknowledged_events_before_the_stores_know_of_it() -> None:
    world = led_world()
    world.append("old", b"one")
    world.append("old", b"two")
    first, second = (world.take(target=store, kind="Store") for store in "AB")
    for message in (*first, second[0]):
        world.deliver(message)
    world.deliver_some(target="old")
    assert len(world.acked["old"]) == 1
    assert [fetched(world, store) for store in ABC] == [[], [], []]
    # Slot 2 is on A only: one copy of two that are needed.
    one = Entry(1, Kind.EVENT, 1, 1, b"one")
    assert quorum_read(world, "A", "B") == quorum_read(world, *ABC) == [one]
    assert quorum_read(world, "A", "C") == quorum_read(world, "A") == []
    world.deliver(second[1])
    assert [entry.payload for entry in quorum_read(world, "A", "B")] == [b"one", b"two"]
