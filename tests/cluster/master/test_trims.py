"""The start of a stream: who may move it, which stores hear of it, and which reports of copies count after that."""

import pytest

from kwire.cluster.core.control import Describe, Described, NotLeader, StreamTrimmed, TrimStream, Unavailable
from kwire.cluster.core.entries import Position
from kwire.cluster.core.messages import Copied, Copy, SegmentId, TrimBefore
from kwire.cluster.master.master import Outcome
from tests.cluster.master.world import SETTINGS, World, finish, names


def sealed_world(count: int = 3, whole_log: bool = False) -> World:
    """Sealed segments with four entries on A, B and C, which are verified, and an open one."""
    world = World("ABC")
    world.create(whole_log=whole_log)
    epoch = world.elect()
    for number in range(1, count + 1):
        world.open(epoch, number)
        world.close(epoch, number, 5)
        world.verify_all("ABC")
    world.open(epoch, count + 1)
    return world


@pytest.fixture
def world() -> World:
    return sealed_world()


def trim(world: World, number: int, first: int) -> Outcome:
    return world.outcome(TrimStream("s", 1, number, first))


def copied(world: World, store: str, number: int, start: int, digest: int = 7) -> Outcome:
    report = Copied(SegmentId("s", number), 5, world.incarnations[store], digest, start)
    return finish(world.master.handle_copied(store, report, world.now))


def test_the_start_is_recorded_and_the_members_hear_of_it(world: World) -> None:
    outcome = trim(world, 2, 3)
    assert outcome.answer == StreamTrimmed("s", 1, 2, 3)
    assert {(one.target, one.body) for one in outcome.messages} == {
        (store, TrimBefore(SegmentId("s", 2), 3)) for store in "ABC"
    }
    described = world.ask(Describe("s"))
    assert isinstance(described, Described)
    assert described.start == world.stream().start == Position(2, 3)
    world.new_master("other")
    assert world.stream().start == Position(2, 3)


def test_the_start_never_goes_back(world: World) -> None:
    trim(world, 2, 3)
    revision = world.metastore.revision
    for number, first in ((2, 3), (2, 1), (1, 5)):
        outcome = trim(world, number, first)
        assert outcome == Outcome(StreamTrimmed("s", 1, number, first))
    assert (world.stream().start, world.metastore.revision) == (Position(2, 3), revision)


def test_the_bridge_of_a_segment_is_not_trimmed(world: World) -> None:
    trim(world, 2, 100)
    assert world.stream().start == Position(2, 5)


def test_an_earlier_leader_trims_nothing(world: World) -> None:
    world.pass_time(1_000, "ABC")
    world.elect("other")
    assert trim(world, 2, 3).answer == NotLeader("s", 2)
    assert world.stream().start == Position(1, 1)


def test_entries_that_may_not_be_acknowledged_are_not_trimmed(world: World) -> None:
    world.open(1, 5)
    for number, first in ((5, 1), (6, 1), (0, 1), (1, 0)):
        assert isinstance(trim(world, number, first).answer, Unavailable)
    # What the leader has acknowledged in the oldest segment that it has open, only the leader knows.
    assert trim(world, 4, 2).answer == StreamTrimmed("s", 1, 4, 2)
    world.pass_time(1_000, "ABC")
    epoch = world.elect("other")
    world.recover(epoch, 4)
    assert isinstance(world.ask(TrimStream("s", epoch, 4, 3)), Unavailable)


def test_members_verify_the_segment_of_the_start_again(world: World) -> None:
    trim(world, 2, 3)
    orders = {one.target: one.body for one in world.tick()}
    assert orders == {
        store: Copy(SegmentId("s", 2), 5, 1, tuple(one for one in "ABC" if one != store), 3) for store in "ABC"
    }
    # Reports from another start on do not count, and are no reason for an alarm.
    for start in (1, 2, 4):
        assert copied(world, "A", 2, start, digest=8) == Outcome(None)
    assert world.ordered_copies() == {("A", 2)}
    for store in "ABC":
        assert copied(world, store, 2, 3, digest=9) == Outcome(None)
    assert {(one.digest, one.start) for one in world.segment(2).reports} == {(9, 3)}
    world.pass_time(10 * SETTINGS.copy_timeout_ms, "ABC")
    assert world.tick() == ()
    assert copied(world, "A", 2, 3, digest=8).alarms


def test_an_old_report_does_not_verify_a_new_copy(world: World) -> None:
    world.hear("D")
    world.pass_time(SETTINGS.store_replace_ms, "ABD")
    trim(world, 2, 3)
    world.tick()
    assert "D" not in names(world.segment(2).record)
    # The members agreed on the segment from its first entry on: nothing is known of this part.
    copied(world, "D", 2, 3, digest=9)
    assert "D" not in names(world.segment(2).record)
    for store in "AB":
        copied(world, store, 2, 3, digest=9)
    copied(world, "D", 2, 3, digest=9)
    assert "D" in names(world.segment(2).record)


def test_a_segment_before_the_start_needs_no_repair(world: World) -> None:
    world.hear("D")
    trim(world, 3, 1)
    world.pass_time(SETTINGS.store_replace_ms, "ABD")
    assert {number for _, number in world.ordered_copies()} == {3}
    # A store with a damaged replica of it is as good as any other.
    world.hear("A", unclosed=(SegmentId("s", 1),), limbo=(SegmentId("s", 1),))
    world.new_master("other")
    for store in "ABD":
        world.hear(store)
    world.pass_time(SETTINGS.store_replace_ms, "ABD")
    world.hear("A", unclosed=(SegmentId("s", 1),), limbo=(SegmentId("s", 1),))
    assert {number for _, number in world.ordered_copies()} == {3}
    world.close(1, 4, 5)
    assert "A" in names(world.open(1, 5))


def test_a_whole_log_needs_the_bridges_before_its_start() -> None:
    world = sealed_world(whole_log=True)
    trim(world, 3, 2)
    starts = {(one.body.segment.number, one.body.start) for one in world.tick() if isinstance(one.body, Copy)}
    assert starts <= {(1, 5), (2, 5), (3, 2)}
    for number, start in ((1, 5), (2, 5), (3, 2)):
        for store in "ABC":
            copied(world, store, number, start)
    world.pass_time(10 * SETTINGS.copy_timeout_ms, "ABC")
    assert world.tick() == ()
