"""The append path: indexes, copies, acknowledgements, and the segments that events go to."""

from random import Random

import pytest

from kwire.cluster.core.control import SegmentState
from kwire.cluster.core.entries import Position
from kwire.cluster.core.messages import Fetch, SegmentId
from kwire.cluster.core.policies import Limits, Policy
from kwire.cluster.core.quorum import Quorum
from tests.cluster.core.situations import (
    ABC,
    DEF,
    FIRST,
    MAJORITY,
    events,
    led_world,
    read_all,
    sent_indexes,
    two_copy_sets,
)
from tests.cluster.core.world import STREAM, World

EVENTS = 200


@pytest.mark.proves("S4-7")
def test_a_stream_only_grows_over_segments_and_leaders() -> None:
    world = two_copy_sets(segment_entries=7)
    appended: list[bytes] = []
    before: list[bytes | None] = []
    for number in range(EVENTS):
        if number % 50 == 0:
            world.elect(f"leader {number}")
            leader = f"leader {number}"
            world.settle()
        appended.append(b"%d" % number)
        position = world.append(leader, appended[-1])
        world.settle(rounds=3)
        assert position is not None
        if number % 40 == 39:
            now = read_all(world, f"reader {number}")
            assert now[: len(before)] == before
            before = now
            # The reader took longer than a lease: the next heartbeat renews it.
            world.settle()
    world.settle()
    assert read_all(world, "last") == appended
    # The bound of a segment is none of the stream.
    assert len(world.master.segments) >= EVENTS // 7


@pytest.mark.proves("S4-9")
def test_new_events_go_only_to_the_last_segment() -> None:
    world = two_copy_sets()
    world.elect("old")
    world.settle()
    for number in range(9):
        last = max(world.master.segments)
        earlier = [events(world, store, SegmentId(STREAM, one)) for one in range(1, last) for store in ABC + DEF]
        assert world.append("old", b"%d" % number) == Position(last, number % 2 + 1)
        world.settle()
        assert earlier == [
            events(world, store, SegmentId(STREAM, one)) for one in range(1, last) for store in ABC + DEF
        ]
    assert last == 5


@pytest.mark.proves("S4-11")
def test_every_event_is_on_all_stores_of_its_copy_set_and_on_no_other() -> None:
    world = two_copy_sets()
    world.elect("old")
    world.settle()
    for number in range(6):
        world.append("old", b"%d" % number)
        world.settle()
    for number, copy_set in ((1, ABC), (2, DEF), (3, ABC)):
        segment = SegmentId(STREAM, number)
        assert tuple(member.store for member in world.master.segments[number].copy_set) == copy_set
        expected = [b"%d" % (2 * number - 2), b"%d" % (2 * number - 1)]
        for store in ABC + DEF:
            assert events(world, store, segment) == (expected if store in copy_set else [])


@pytest.mark.proves("S4-12")
@pytest.mark.parametrize("quorum", [Quorum(1, 1), Quorum(3, 1), Quorum(3, 2), Quorum(3, 3), Quorum(5, 2)], ids=str)
def test_an_event_is_acknowledged_and_readable_once_w_stores_have_it(quorum: Quorum) -> None:
    world = led_world(Policy(quorum))
    position = world.append("old", b"event")
    on_the_way = world.take(kind="Store")
    for number, message in enumerate(on_the_way, start=1):
        assert world.acked["old"] == ([position] if number > quorum.writes else [])
        if number <= quorum.writes:
            assert read_all(world, f"reader {number}") == []
        world.deliver(message)
        world.deliver_some(target="old")
    assert world.acked["old"] == [position]
    world.settle()
    assert read_all(world, "last") == [b"event"]


@pytest.mark.proves("S4-20")
def test_events_get_consecutive_indexes_and_are_sent_to_every_store_in_their_order() -> None:
    world = led_world(limits=Limits(batch_bytes=100))
    positions = [world.append("old", b"%d" % number) for number in range(20)]
    assert positions == [Position(1, index) for index in range(1, 21)]
    for store in ABC:
        assert sent_indexes(world, store) == list(range(1, 21))
    # However the network reorders them, every store has them in this order.
    Random(1).shuffle(world.bag)
    world.settle()
    for store in ABC:
        assert events(world, store) == [b"%d" % number for number in range(20)]
    assert world.acked["old"] == positions


@pytest.mark.proves("S4-32")
def test_the_copy_set_gets_events_and_the_acked_index_and_each_of_its_stores_serves_them() -> None:
    world = led_world()
    world.append("old", b"event")
    world.settle()
    assert {world.stores[store].replicas[FIRST].acked for store in ABC} == {1}
    asked = set()
    for number in range(3):
        reader = world.start_reader(f"reader {number}")
        reader.tick(world.now)
        world.collect_reader(reader)
        (fetch,) = world.take(source=reader.name)
        assert isinstance(fetch.body, Fetch)
        asked.add(fetch.target)
        world.deliver(fetch)
        world.deliver_some(target=reader.name)
        world.collect_reader(reader)
        assert [one.payload for one in world.delivered[reader.name]] == [b"event"]
    assert asked == set(ABC)


@pytest.mark.proves("S4-3")
def test_stores_keep_events_and_serve_subscribers_without_their_leader() -> None:
    world = World([ABC], MAJORITY)
    world.elect("old")
    world.settle()
    reader = world.start_reader("subscriber")
    for number in range(5):
        world.append("old", b"%d" % number)
        world.settle()
        world.read(rounds=3)
        assert [one.payload for one in world.delivered["subscriber"]] == [b"%d" % one for one in range(number + 1)]
    world.roll("old")
    world.settle()
    del world.writers["old"]
    for store in ABC:
        world.start_store(store)
    world.stores.pop("A")
    assert read_all(world, "later") == [b"0", b"1", b"2", b"3", b"4"]
    assert reader.position == Position(2, 1)


@pytest.mark.proves("S4-10")
@pytest.mark.parametrize("reason", ["size", "entries", "leadership"])
def test_a_segment_ends_when_it_is_large_enough_or_the_leadership_moves(reason: str) -> None:
    limits = Limits(segment_bytes=10 if reason == "size" else 1000, segment_entries=2 if reason == "entries" else 1000)
    world = led_world(limits=limits)
    for _ in range(2):
        world.append("old", b"x" * 5)
        assert list(world.master.segments) == [1]
    if reason == "leadership":
        world.settle()
        assert list(world.master.segments) == [1]
        world.elect("new")
    world.settle()
    assert [(one.state, one.end_index) for one in world.master.segments.values()] == [
        (SegmentState.SEALED, 3),
        (SegmentState.OPEN, None),
    ]


@pytest.mark.proves("S4-44")
def test_in_a_chain_the_leader_sends_to_the_first_store_and_each_store_to_the_next() -> None:
    world = led_world(Policy.chain(3))
    position = world.append("old", b"event")
    for source, target in (("old", "A"), ("A", "B"), ("B", "C")):
        (message,) = world.take(kind="Store")
        assert (message.source, message.target) == (source, target)
        world.deliver(message)
        world.deliver_some(target="old", kind="Stored")
        assert world.acked["old"] == ([position] if target == "C" else [])
    assert [events(world, store) for store in ABC] == [[b"event"]] * 3
