"""The segment list: opening, recovery and closing are guarded by the epoch, and can be repeated."""

import pytest

from kwire.cluster.core.control import (
    BeginRecovery,
    CloseSegment,
    CreateStream,
    Describe,
    Described,
    NotLeader,
    OpenSegment,
    SegmentRecord,
    SegmentState,
    StreamRefused,
    Unavailable,
)
from kwire.cluster.core.entries import INDEX_MAX
from kwire.cluster.master.state import SEGMENTS_PER_ANSWER_MAX
from tests.cluster.master.world import World, names


@pytest.fixture
def world() -> World:
    made = World()
    made.create()
    return made


@pytest.mark.proves("S4-2", "S4-4")
def test_a_leader_opens_the_first_segment_on_as_many_stores_as_the_stream_has_replicas(world: World) -> None:
    epoch = world.elect()
    record = world.open(epoch, 1)
    assert (record.number, record.state, record.base, record.opened_by_epoch) == (1, SegmentState.OPEN, 0, epoch)
    assert names(record) == {"A", "B", "C"}
    assert world.records() == (record,)


@pytest.mark.proves("S4-10")
def test_a_closed_segment_is_followed_by_a_new_one_that_begins_where_it_ended(world: World) -> None:
    epoch = world.elect()
    world.open(epoch, 1)
    # Nine entries and the bridge, then a segment without entries, then one of five.
    assert world.close(epoch, 1, 10).end_index == 10
    assert world.open(epoch, 2).base == 9
    world.close(epoch, 2, 1)
    assert world.open(epoch, 3).base == 9
    world.close(epoch, 3, 6)
    assert world.open(epoch, 4).base == 14


def test_the_base_of_a_segment_that_is_open_already_is_set_when_the_one_before_it_ends(world: World) -> None:
    epoch = world.elect()
    world.open(epoch, 1)
    assert world.open(epoch, 2).base is None
    world.close(epoch, 1, 8)
    assert [one.base for one in world.records()] == [0, 7]
    assert world.open(epoch, 3).base is None


@pytest.mark.proves("S4-27")
def test_a_third_unsealed_segment_is_refused(world: World) -> None:
    epoch = world.elect()
    world.open(epoch, 1)
    world.open(epoch, 2)
    refused = world.ask(OpenSegment("s", epoch, 3))
    assert isinstance(refused, Unavailable)
    assert "segment 1 must be sealed first" in refused.reason
    world.close(epoch, 1, 1)
    assert world.open(epoch, 3).number == 3


def test_segments_are_opened_and_closed_in_order(world: World) -> None:
    epoch = world.elect()
    for number in (0, 2, -1):
        assert isinstance(world.ask(OpenSegment("s", epoch, number)), Unavailable)
    world.open(epoch, 1)
    world.open(epoch, 2)
    refused = world.ask(CloseSegment("s", epoch, 2, 5))
    assert isinstance(refused, Unavailable)
    assert "segment 1 must be sealed before segment 2" in refused.reason
    for request in (CloseSegment("s", epoch, 3, 1), BeginRecovery("s", epoch, 3), BeginRecovery("s", epoch, 0)):
        assert isinstance(world.ask(request), Unavailable)


def test_requests_of_an_earlier_epoch_change_nothing(world: World) -> None:
    old = world.elect("first")
    world.open(old, 1)
    world.pass_time(1_000, "ABC")
    new = world.elect("second")
    before = world.records()
    for request in (OpenSegment("s", old, 2), BeginRecovery("s", old, 1), CloseSegment("s", old, 1, 3)):
        assert world.ask(request) == NotLeader("s", new)
    # An epoch that was never assigned is not accepted either.
    assert world.ask(OpenSegment("s", new + 1, 2)) == NotLeader("s", new)
    assert world.records() == before


def test_repeated_requests_get_the_same_answer_and_change_nothing(world: World) -> None:
    epoch = world.elect()
    for request in (
        OpenSegment("s", epoch, 1),
        BeginRecovery("s", epoch, 1),
        CloseSegment("s", epoch, 1, 4),
        OpenSegment("s", epoch, 2),
    ):
        first = world.ask(request)
        revision = world.metastore.revision
        assert world.ask(request) == first
        assert world.metastore.revision == revision


def test_a_sealed_segment_never_changes(world: World) -> None:
    epoch = world.elect()
    world.open(epoch, 1)
    sealed = world.close(epoch, 1, 4)
    outcome = world.outcome(CloseSegment("s", epoch, 1, 5))
    assert isinstance(outcome.answer, Unavailable)
    assert "bridge at 4" in outcome.alarms[0]
    world.pass_time(1_000, "ABC")
    later = world.elect("other")
    assert world.recover(later, 1) == sealed
    assert world.close(later, 1, 4) == sealed
    assert world.records() == (sealed,)


def test_a_leader_must_begin_the_recovery_of_anothers_segment_before_it_closes_it(world: World) -> None:
    world.open(world.elect("first"), 1)
    world.pass_time(1_000, "ABC")
    epoch = world.elect("second")
    assert isinstance(world.ask(CloseSegment("s", epoch, 1, 4)), Unavailable)
    assert world.recover(epoch, 1).state is SegmentState.SEALING
    sealed = world.close(epoch, 1, 4)
    assert (sealed.state, sealed.end_index, sealed.end_epoch) == (SegmentState.SEALED, 4, epoch)


def test_a_leader_gets_no_segment_that_another_epoch_has_opened(world: World) -> None:
    world.open(world.elect("first"), 1)
    world.pass_time(1_000, "ABC")
    refused = world.ask(OpenSegment("s", world.elect("second"), 1))
    assert isinstance(refused, Unavailable)
    assert "was opened by epoch 1" in refused.reason


@pytest.mark.parametrize("end_index", [0, -1, INDEX_MAX + 1])
def test_the_index_of_a_bridge_is_checked(world: World, end_index: int) -> None:
    epoch = world.elect()
    world.open(epoch, 1)
    assert isinstance(world.ask(CloseSegment("s", epoch, 1, end_index)), Unavailable)


def test_a_long_stream_is_described_in_parts(world: World) -> None:
    epoch = world.elect()
    count = SEGMENTS_PER_ANSWER_MAX + 5
    for number in range(1, count + 1):
        world.open(epoch, number)
        world.close(epoch, number, 3)
    found: list[SegmentRecord] = []
    while len(found) < count:
        part = world.ask(Describe("s", len(found) + 1))
        assert isinstance(part, Described)
        assert part.last == count
        assert 0 < len(part.segments) <= SEGMENTS_PER_ANSWER_MAX
        found += part.segments
    assert [one.number for one in found] == list(range(1, count + 1))
    assert [one.base for one in found] == [2 * number for number in range(count)]
    granted = world.ask(Describe("s", count + 1))
    assert granted == Described("s", epoch, (), count)


def test_an_unknown_stream_is_unavailable(world: World) -> None:
    assert world.ask(Describe("other")) == Unavailable("other", 0, "the stream does not exist")


@pytest.mark.parametrize(
    "request_",
    [
        CreateStream("", 3, 2),
        CreateStream("x" * 256, 3, 2),
        CreateStream("x", 3, 4),
        CreateStream("x", 3, 0),
        CreateStream("x", 16, 2),
        CreateStream("s", 3, 3),
    ],
)
def test_a_stream_with_impossible_settings_is_refused(world: World, request_: CreateStream) -> None:
    assert isinstance(world.ask(request_), StreamRefused)


def test_creating_a_stream_can_be_repeated(world: World) -> None:
    world.create()
    assert world.stream().replicas == 3
