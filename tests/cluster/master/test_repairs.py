"""Repair of sealed segments: first the new copy, verified, then the removal."""

import pytest

from kwire.cluster.core.control import DrainStore
from kwire.cluster.core.messages import Copied, Copy, Drop, Incarnation, SegmentId
from tests.cluster.master.world import SETTINGS, World, finish, names


@pytest.fixture
def world() -> World:
    """A sealed segment on A, B and C, which are verified. D is free."""
    made = World("ABC")
    made.create()
    epoch = made.elect()
    made.open(epoch, 1)
    made.close(epoch, 1, 5)
    made.verify_all("ABC")
    made.hear("D")
    return made


def drops(world: World) -> list[tuple[str, Incarnation]]:
    return [(one.target, one.body.incarnation) for one in world.tick() if isinstance(one.body, Drop)]


def test_every_member_reports_its_copy_after_the_segment_is_sealed() -> None:
    world = World("ABC")
    world.create()
    epoch = world.elect()
    world.open(epoch, 1)
    assert world.tick() == ()
    world.close(epoch, 1, 5)
    orders = {one.target: one.body for one in world.tick()}
    assert orders.keys() == {"A", "B", "C"}
    assert orders["A"] == Copy(SegmentId("s", 1), 5, 1, ("B", "C"))
    # What is under way is not ordered again, before its time is over.
    assert world.tick() == ()
    world.pass_time(SETTINGS.copy_timeout_ms, "ABC")
    assert world.ordered_copies() == {("A", 1), ("B", 1), ("C", 1)}
    for store in "ABC":
        world.copied(store, 1)
    world.pass_time(10 * SETTINGS.copy_timeout_ms, "ABC")
    assert world.tick() == ()


@pytest.mark.proves("S4-40", "S4-41")
def test_a_failed_store_is_replaced_after_the_new_copy_is_verified(world: World) -> None:
    world.pass_time(SETTINGS.store_replace_ms - 1, "ABD")
    assert world.ordered_copies() == set()
    world.pass_time(1, "ABD")
    (order,) = world.tick()
    assert order.target == "D"
    assert isinstance(order.body, Copy)
    assert (order.body.segment, order.body.end, set(order.body.sources)) == (SegmentId("s", 1), 5, {"A", "B"})
    assert names(world.segment(1).record) == {"A", "B", "C"}
    world.copied("D", 1)
    # Added first, removed afterwards.
    assert names(world.segment(1).record) == {"A", "B", "C", "D"}
    world.tick()
    assert names(world.segment(1).record) == {"A", "B", "D"}
    record = world.segment(1).record
    assert (record.end_index, record.end_epoch, record.base) == (5, 1, 0)


def test_a_failed_store_stays_a_member_while_there_is_no_other_store(world: World) -> None:
    world.pass_time(SETTINGS.store_replace_ms, "AB")
    for _ in range(5):
        assert world.ordered_copies() == set()
        world.pass_time(SETTINGS.copy_timeout_ms, "AB")
    assert names(world.segment(1).record) == {"A", "B", "C"}
    world.hear("E")
    assert world.ordered_copies() == {("E", 1)}


def test_a_copy_with_another_content_is_not_counted(world: World) -> None:
    world.pass_time(SETTINGS.store_replace_ms, "ABD")
    world.tick()
    outcome = world.copied("D", 1, digest=8)
    assert "another content" in outcome.alarms[0]
    assert names(world.segment(1).record) == {"A", "B", "C"}
    outcome = world.copied("D", 1, end=6)
    assert "ends at 5" in outcome.alarms[0]
    assert names(world.segment(1).record) == {"A", "B", "C"}


def test_a_member_with_another_content_is_replaced() -> None:
    world = World("ABC")
    world.create()
    epoch = world.elect()
    world.open(epoch, 1)
    world.close(epoch, 1, 5)
    world.hear("D")
    world.tick()
    world.copied("A", 1, digest=8)
    world.copied("B", 1)
    assert world.ordered_copies() == set()
    outcome = world.copied("C", 1)
    assert not outcome.alarms
    assert world.copied("A", 1, digest=8).alarms
    assert world.ordered_copies() == {("D", 1)}
    world.copied("D", 1)
    world.tick()
    assert names(world.segment(1).record) == {"B", "C", "D"}


def test_members_that_all_have_different_contents_are_an_alarm() -> None:
    world = World("ABC")
    world.create()
    epoch = world.elect()
    world.open(epoch, 1)
    world.close(epoch, 1, 5)
    assert not world.copied("A", 1, digest=1).alarms
    assert not world.copied("B", 1, digest=2).alarms
    assert "different contents" in world.copied("C", 1, digest=3).alarms[0]
    world.hear("D")
    world.copied("D", 1, digest=1)
    world.tick()
    assert names(world.segment(1).record) == {"A", "B", "C"}


def test_the_last_copy_is_copied_if_all_other_members_have_failed(world: World) -> None:
    world.pass_time(SETTINGS.store_replace_ms, "AD")
    world.hear("E")
    assert world.ordered_copies() == {("D", 1), ("E", 1)}
    world.copied("D", 1)
    world.tick()
    # Two copies count, but the stream has three.
    assert names(world.segment(1).record) == {"A", "B", "C", "D"}
    world.copied("E", 1)
    world.tick()
    assert names(world.segment(1).record) == {"A", "D", "E"}


def test_a_store_that_drains_is_emptied(world: World) -> None:
    world.ask(DrainStore("A"))
    (order,) = world.tick()
    assert order.target == "D"
    assert isinstance(order.body, Copy)
    # A store that drains can still be read.
    assert set(order.body.sources) == {"A", "B", "C"}
    world.copied("D", 1)
    assert drops(world) == [("A", world.incarnations["A"])]
    assert names(world.segment(1).record) == {"B", "C", "D"}


def test_a_store_that_returns_drops_what_was_replaced(world: World) -> None:
    world.pass_time(SETTINGS.store_replace_ms, "ABD")
    world.verify_all("ABD")
    world.tick()
    world.incarnations["C"] = world.incarnations["C"]._replace(start=2)
    world.hear("C")
    assert drops(world) == [("C", world.incarnations["C"])]
    # A report of the copy that was dropped does not make it a member again.
    world.copied("C", 1)
    assert "C" not in names(world.segment(1).record)
    world.pass_time(SETTINGS.store_replace_ms, "ABC")
    # Its next copy is newer than the drop, which may be on its way for a long time.
    (copy,) = [one.body for one in world.tick() if one.target == "C"]
    assert isinstance(copy, Copy)
    assert copy.removals == 1
    world.copied("C", 1)
    assert "C" not in names(world.segment(1).record)
    world.copied("C", 1, removals=copy.removals)
    world.tick()
    assert names(world.segment(1).record) == {"A", "B", "C"}


def test_a_copy_that_is_no_longer_needed_is_dropped(world: World) -> None:
    world.pass_time(SETTINGS.store_replace_ms, "ABD")
    assert world.ordered_copies() == {("D", 1)}
    world.hear("C")
    outcome = world.copied("D", 1)
    assert [one.body for one in outcome.messages] == [Drop(SegmentId("s", 1), world.incarnations["D"], 1)]
    assert names(world.segment(1).record) == {"A", "B", "C"}


def test_a_report_of_an_earlier_incarnation_is_ignored() -> None:
    world = World("ABC")
    world.create()
    epoch = world.elect()
    world.open(epoch, 1)
    report = Copied(SegmentId("s", 1), 5, world.incarnations["A"], 7)
    finish(world.master.handle_copied("A", report, world.now))
    world.close(epoch, 1, 5)
    world.incarnations["A"] = world.incarnations["A"]._replace(start=2)
    world.hear("A")
    finish(world.master.handle_copied("A", report, world.now))
    for stranger in (report, Copied(SegmentId("s", 9), 5, world.incarnations["A"], 7)):
        finish(world.master.handle_copied("Z", stranger, world.now))
    assert world.segment(1).reports == ()


def test_a_damaged_copy_does_not_count_until_it_is_repaired(world: World) -> None:
    damaged = (SegmentId("s", 1),)
    world.hear("A", unclosed=damaged)
    (order,) = world.tick()
    assert order.target == "A"
    assert isinstance(order.body, Copy)
    assert set(order.body.sources) == {"B", "C"}
    # With a damaged copy, a member that drains can not leave before two others have replaced both.
    world.ask(DrainStore("B"))
    assert world.ordered_copies() == {("D", 1)}
    world.copied("D", 1)
    world.tick()
    assert names(world.segment(1).record) == {"A", "B", "C", "D"}
    world.hear("A")
    world.tick()
    assert names(world.segment(1).record) == {"A", "C", "D"}


def test_copies_at_a_time_are_bounded() -> None:
    world = World("ABC")
    world.create()
    epoch = world.elect()
    for number in range(1, 11):
        world.open(epoch, number)
        world.close(epoch, number, 5)
    assert len(world.ordered_copies()) == SETTINGS.copies_max
    assert world.ordered_copies() == set()
    world.verify_all("")
    world.pass_time(SETTINGS.copy_timeout_ms, "ABC")
    world.verify_all("ABC")
    for number in range(1, 11):
        assert len(world.segment(number).reports) == 3


def test_a_store_that_does_not_copy_is_replaced_by_another(world: World) -> None:
    world.hear("E")
    world.pass_time(SETTINGS.store_replace_ms, "ABDE")
    targets = []
    for _ in range(4):
        ((target, _),) = world.ordered_copies()
        targets.append(target)
        world.pass_time(SETTINGS.copy_timeout_ms, "ABDE")
    assert len(set(targets[:3])) == 1
    assert {targets[0], targets[3]} == {"D", "E"}


def test_a_new_master_continues_the_repair(world: World) -> None:
    world.pass_time(SETTINGS.store_replace_ms, "ABD")
    world.tick()
    world.new_master("next")
    assert world.ordered_copies() == set()
    # The copy that the earlier master had ordered is taken into account when it is needed.
    world.pass_time(SETTINGS.store_replace_ms, "ABD")
    world.copied("D", 1)
    world.tick()
    assert names(world.segment(1).record) == {"A", "B", "D"}


def test_a_partial_copy_that_nobody_needs_is_dropped(world: World) -> None:
    world.hear("D", unclosed=(SegmentId("s", 1), SegmentId("s", 2)))
    assert drops(world) == [("D", world.incarnations["D"])]
