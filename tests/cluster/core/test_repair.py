"""Copying sealed segments between stores, with sources that fail or lie."""

import pytest
from msgspec.structs import replace

from kwire.cluster.core.entries import Entry, Kind
from kwire.cluster.core.messages import (
    Body,
    Copied,
    Copy,
    Finish,
    Incarnation,
    Message,
    Pull,
    Pulled,
    Seal,
    SegmentId,
    Stale,
)
from kwire.cluster.core.policies import Limits
from kwire.cluster.core.store.repair import content_digest
from kwire.cluster.core.store.segment_store import SegmentStore, StoreOutput
from kwire.cluster.core.writes import PutEntries, SetClosed
from tests.cluster.core.memory import MemoryStorage

SEGMENT = SegmentId("s", 1)
ENTRIES = (Entry(1, Kind.EVENT, 1, 1, b"one"), Entry(2, Kind.HOLE, 2, 2), Entry(3, Kind.BRIDGE, 2, 2))


class Target:
    """A store that copies the segment. Messages to itself are delivered, those to others are returned."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.store = SegmentStore("D", Incarnation(4, 1), {}, Limits(retry_ms=100))
        self.now = 0

    def step(self, source: str, body: Body) -> list[Message]:
        output = self.store.step(Message(source, "D", body), self.now)
        return self._sent(output)

    def tick(self) -> list[Message]:
        self.now += 100
        return self._sent(self.store.tick(self.now))

    def _sent(self, output: StoreOutput) -> list[Message]:
        self.storage.apply(output.writes)
        messages = [*output.messages, *(self.storage.read(read) for read in output.reads)]
        sent = [message for message in messages if message.target != "D"]
        for message in messages:
            if message.target == "D":
                sent += self.step("D", message.body)
        return sent

    def stored(self) -> tuple[Entry, ...]:
        return tuple(self.storage.replicas[SEGMENT].entries.values())


@pytest.fixture
def target() -> Target:
    target = Target()
    assert target.step("master", Copy(SEGMENT, 3, 2, ("A", "B"))) == [Message("D", "A", Pull(SEGMENT, 1))]
    return target


@pytest.mark.proves("S4-41")
def test_a_copy_is_read_back_from_the_disk_before_it_counts(target: Target) -> None:
    assert target.step("A", Pulled(SEGMENT, 1, 3, ENTRIES[:2])) == [Message("D", "A", Pull(SEGMENT, 3))]
    (report,) = target.step("A", Pulled(SEGMENT, 3, 3, ENTRIES[2:]))
    assert report == Message("D", "master", Copied(SEGMENT, 3, Incarnation(4, 1), content_digest(ENTRIES)))
    assert target.stored() == ENTRIES
    assert target.storage.replicas[SEGMENT].closed_end == 3
    assert target.step("master", Copy(SEGMENT, 3, 2, ("A", "B"))) == [report], "the report may have been lost"
    assert target.tick() == []


def test_another_source_is_asked_after_a_while(target: Target) -> None:
    assert target.tick() == [Message("D", "B", Pull(SEGMENT, 1))]
    assert target.step("A", Pulled(SEGMENT, 1, 3, ENTRIES)) == [], "A is no longer asked"
    assert len(target.step("B", Pulled(SEGMENT, 1, 3, ENTRIES))) == 1


@pytest.mark.parametrize(
    "page",
    [Pulled(SEGMENT, 2, 3, ENTRIES[1:]), Pulled(SEGMENT, 1, 2, ENTRIES[:2]), Pulled(SEGMENT, 1, 3, ENTRIES[1:])],
)
def test_pages_that_do_not_fit_are_dropped(target: Target, page: Pulled) -> None:
    assert target.step("A", page) == []
    assert target.stored() == ()


def test_a_disk_that_returns_something_else_makes_the_copy_begin_again(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = target.storage.read
    damaged = Pulled(SEGMENT, 1, 3, (replace(ENTRIES[0], payload=b"two"), *ENTRIES[1:]))
    monkeypatch.setattr(target.storage, "read", lambda pending: replace(read(pending), body=damaged))
    assert target.step("A", Pulled(SEGMENT, 1, 3, ENTRIES)) == [Message("D", "B", Pull(SEGMENT, 1))]
    monkeypatch.undo()
    (report,) = target.step("B", Pulled(SEGMENT, 1, 3, ENTRIES))
    assert isinstance(report.body, Copied)


def test_a_store_verifies_its_own_replica(target: Target) -> None:
    target.step("A", Pulled(SEGMENT, 1, 3, ENTRIES))
    again = SegmentStore("D", Incarnation(4, 2), target.storage.load(), Limits())
    target.store = again
    (report,) = target.step("master", Copy(SEGMENT, 3, 2, ("D",)))
    assert report.body == Copied(SEGMENT, 3, Incarnation(4, 2), content_digest(ENTRIES))


def test_the_digest_does_not_depend_on_stamps() -> None:
    restamped = tuple(replace(entry, stamp_epoch=9) for entry in ENTRIES)
    assert content_digest(restamped) == content_digest(ENTRIES)
    assert content_digest((replace(ENTRIES[0], birth_epoch=9), *ENTRIES[1:])) != content_digest(ENTRIES)
    assert content_digest(ENTRIES[1:], content_digest(ENTRIES[:1])) == content_digest(ENTRIES)


def test_finish_closes_only_a_replica_that_was_complete_under_that_leader(target: Target) -> None:
    target.storage.apply([PutEntries(SEGMENT, ENTRIES)])
    for complete_epoch, is_closed in ((1, False), (2, True)):
        target.storage.replicas[SEGMENT].complete_epoch = complete_epoch
        target.store = SegmentStore("D", Incarnation(4, 2), target.storage.load(), Limits())
        output = target.store.step(Message("master", "D", Finish(SEGMENT, 3, 2)), 0)
        assert (SetClosed(SEGMENT, 3) in output.writes) is is_closed
    assert target.step("master", Finish(SegmentId("s", 7), 3, 2)) == [], "the store has no such replica"


def test_a_copy_refuses_the_leaders_that_the_other_replicas_refuse(target: Target) -> None:
    (answer,) = target.step("w", Seal(SEGMENT, 1, 4))
    assert answer.body == Stale(SEGMENT, 1, 2)
