"""Stores: their identity, and how failures are noticed."""

import pytest

from kwire.cluster.core.control import (
    DrainStore,
    Heartbeat,
    OpenSegment,
    Renewed,
    StoreAccepted,
    StoreRejected,
    Unavailable,
)
from kwire.cluster.core.messages import Incarnation, SegmentId
from kwire.cluster.master import stores as stores_module
from tests.cluster.master.world import SETTINGS, World, names, record_of


@pytest.fixture
def world() -> World:
    return World()


def rejected(world: World, store: str, **fields: object) -> str:
    answer = world.hear(store, **fields)
    assert isinstance(answer, StoreRejected), answer
    return answer.reason


def test_a_wiped_disk_is_refused_under_the_old_name(world: World) -> None:
    world.incarnations["A"] = Incarnation(999, 1)
    assert rejected(world, "A") == "the store was registered with another disk"


def test_the_disk_of_another_store_is_refused(world: World) -> None:
    world.incarnations["Z"] = world.incarnations["A"]
    assert rejected(world, "Z") == "its disk belongs to the store A"


def test_of_two_processes_of_a_store_the_earlier_one_is_refused(world: World) -> None:
    first = world.incarnations["A"]
    world.incarnations["A"] = first._replace(start=first.start + 1)
    assert world.hear("A") == StoreAccepted("A", world.incarnations["A"])
    world.incarnations["A"] = first
    assert "earlier process" in rejected(world, "A")
    # A new master knows it, too.
    world.new_master("next")
    assert "earlier process" in rejected(world, "A")


def test_names_and_numbers_of_a_heartbeat_are_checked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "names" in rejected(world, "")
    assert "names" in rejected(world, "A", rack="r" * 256)
    monkeypatch.setattr(stores_module, "REPORTED_SEGMENTS_MAX", 2)
    segments = tuple(SegmentId("s", number) for number in (1, 2, 3))
    assert "at most 2" in rejected(world, "A", unclosed=segments)
    monkeypatch.setattr(stores_module, "STORES_MAX", 3)
    assert "maximum" in rejected(world, "D")


def test_heartbeats_write_only_changes(world: World) -> None:
    revision = world.metastore.revision
    for free_bytes in (10, 20, 30):
        world.hear("A", free_bytes=free_bytes)
    assert world.metastore.revision == revision
    world.hear("A", rack="r1")
    assert world.metastore.revision == revision + 1


def test_an_unknown_store_can_not_be_drained(world: World) -> None:
    assert isinstance(world.ask(DrainStore("Z")), StoreRejected)
    assert world.ask(DrainStore("A")) == world.ask(DrainStore("A")) == StoreAccepted("A")


# --- failures and open segments


@pytest.fixture
def leading() -> World:
    """Stores A to E, and an open segment on three of them."""
    world = World("ABCDE")
    world.create()
    world.open(world.elect(), 1)
    return world


def must_roll(world: World) -> bool:
    renewed = world.ask(Heartbeat("s", "c", 1))
    assert isinstance(renewed, Renewed), renewed
    return renewed.must_roll


@pytest.mark.proves("S4-40", "S4-42")
def test_the_leader_rolls_away_from_a_store_that_has_failed(leading: World) -> None:
    (failed, *_) = members = sorted(names(leading.records()[0]))
    others = set("ABCDE") - {failed}
    leading.pass_time(SETTINGS.store_timeout_ms // 2, "ABCDE")
    assert not must_roll(leading)
    leading.pass_time(SETTINGS.store_timeout_ms, others)
    assert must_roll(leading)
    leading.close(1, 1, 5)
    record = leading.open(1, 2)
    assert failed not in names(record)
    assert len(record.copy_set) == len(members)
    assert not must_roll(leading)


def test_the_leader_rolls_away_from_a_store_that_drains(leading: World) -> None:
    (drained, *_) = names(leading.records()[0])
    leading.ask(DrainStore(drained))
    assert must_roll(leading)
    leading.close(1, 1, 5)
    assert drained not in names(leading.open(1, 2))
    assert not must_roll(leading)


def test_the_leader_rolls_away_from_a_store_that_can_not_vouch_for_the_segment(leading: World) -> None:
    (store, *_) = names(leading.records()[0])
    leading.hear(store, limbo=(SegmentId("other", 1),))
    assert not must_roll(leading)
    leading.hear(store, limbo=(SegmentId("s", 1),))
    assert must_roll(leading)
    leading.close(1, 1, 5)
    assert store not in names(leading.open(1, 2))


def test_the_leader_does_not_roll_if_no_segment_could_be_opened(leading: World) -> None:
    (survivor, *_) = names(leading.records()[0])
    leading.pass_time(SETTINGS.store_timeout_ms, survivor)
    assert not must_roll(leading)


def test_a_store_that_returns_is_used_again() -> None:
    world = World("ABC")
    world.create()
    epoch = world.elect()
    world.pass_time(SETTINGS.store_timeout_ms, "AB")
    assert names(world.open(epoch, 1)) == {"A", "B"}
    assert not must_roll(world)
    world.hear("C")
    assert must_roll(world)
    world.close(epoch, 1, 2)
    assert names(world.open(epoch, 2)) == {"A", "B", "C"}


def test_a_new_master_uses_a_store_only_after_a_heartbeat() -> None:
    world = World("ABC")
    world.create()
    epoch = world.elect()
    world.new_master("next")
    world.hear("A")
    assert isinstance(world.ask(OpenSegment("s", epoch, 1)), Unavailable)
    world.hear("B")
    assert names(record_of(world.ask(OpenSegment("s", epoch, 1)))) == {"A", "B"}


def test_a_heartbeat_that_was_overtaken_is_ignored() -> None:
    world = World("ABC")
    world.create()
    world.open(world.elect(), 1)
    world.hear("A", sequence=5, limbo=(SegmentId("s", 1),))
    world.hear("A", sequence=4)
    assert must_roll(world)
    world.hear("A", sequence=6)
    assert not must_roll(world)
