"""A store takes the entries of a partition in order: its log is written at the end only."""

import pytest

from kwire.cluster.core.entries import Entry, Kind, Run
from kwire.cluster.core.messages import (
    Body,
    Close,
    Closed,
    Copy,
    Drop,
    Fetch,
    Fetched,
    Finish,
    Incarnation,
    Message,
    Pull,
    Seal,
    SegmentId,
    Store,
    Stored,
)
from kwire.cluster.core.policies import Limits
from kwire.cluster.core.store.segment_store import SegmentStore
from kwire.cluster.core.writes import PutEntries, SetClosed, Write

ONE, TWO, THREE = (SegmentId("orders", number) for number in (1, 2, 3))
LIFE = Incarnation(7, 1)


class Partition:
    """A store that has the segments of a partition."""

    def __init__(self) -> None:
        self.store = SegmentStore("A", LIFE, {}, Limits(retry_ms=100), lambda stream: stream == "orders")
        self.writes: list[Write] = []

    def step(self, body: Body, source: str = "w") -> list[Body]:
        output = self.store.step(Message(source, "A", body), 0)
        self.writes += output.writes
        return [message.body for message in output.messages]

    def stored(self, segment: SegmentId, *entries: Entry, matched: int = 0, acked: int = 0, epoch: int = 1) -> Stored:
        (answer,) = self.step(Store(segment, epoch, LIFE, matched, acked, 9, entries, leader="w"))
        assert isinstance(answer, Stored)
        return answer

    def indexes(self, segment: SegmentId) -> list[int]:
        puts = [one for one in self.writes if isinstance(one, PutEntries) and one.segment == segment]
        return [entry.index for put in puts for entry in put.entries]


@pytest.fixture
def partition() -> Partition:
    found = Partition()
    for segment in (ONE, TWO):
        found.step(Seal(segment, 1, 7))
    return found


def event(index: int, epoch: int = 1) -> Entry:
    return Entry(index, Kind.EVENT, epoch, epoch, b"x")


def bridge(index: int, epoch: int = 1) -> Entry:
    return Entry(index, Kind.BRIDGE, epoch, epoch)


def test_entries_after_a_gap_are_dropped(partition: Partition) -> None:
    answer = partition.stored(ONE, event(1), event(2), event(4), event(5))
    assert (answer.matched, answer.has_gap) == (2, True)
    assert partition.indexes(ONE) == [1, 2]
    assert partition.stored(ONE, event(5)).matched == 2
    assert partition.stored(ONE, event(3), event(4), event(5)).matched == 5
    assert partition.indexes(ONE) == [1, 2, 3, 4, 5]


def test_a_segment_is_filled_after_the_one_before_it_is_closed(partition: Partition) -> None:
    partition.stored(ONE, event(1), bridge(2), acked=2)
    answer = partition.stored(TWO, event(1))
    assert (answer.matched, answer.has_gap) == (0, False), "the leader sends the entries again, but not at once"
    assert partition.step(Close(ONE, 1, LIFE, 2)) == [Closed(ONE, 1, LIFE, 2)]
    assert partition.stored(TWO, event(1)).matched == 1
    assert partition.indexes(TWO) == [1]


def test_all_earlier_replicas_have_to_be_closed(partition: Partition) -> None:
    # The second segment has no events, and is closed although the first one lost some.
    partition.stored(TWO, bridge(1))
    partition.step(Finish(TWO, 1, 1), "m")
    partition.step(Seal(THREE, 1, 7))
    assert partition.stored(THREE, event(1)).matched == 0
    partition.stored(ONE, event(1), bridge(2), acked=2)
    partition.step(Close(ONE, 1, LIFE, 2))
    partition.stored(TWO, bridge(1))
    partition.step(Close(TWO, 1, LIFE, 1))
    assert partition.stored(THREE, event(1)).matched == 1


def test_a_segment_without_the_one_before_it_waits(partition: Partition) -> None:
    for segment in (ONE, TWO):
        partition.stored(segment, bridge(1), acked=1)
        partition.step(Close(segment, 1, LIFE, 1))
    partition.step(Seal(THREE, 1, 7))
    partition.step(Drop(TWO, LIFE, 1), "m")
    assert partition.stored(THREE, event(1)).matched == 0
    partition.step(Drop(ONE, LIFE, 1), "m")
    assert partition.stored(THREE, event(1)).matched == 0


def test_a_copy_waits_for_the_segment_before(partition: Partition) -> None:
    copy = Copy(TWO, 2, 1, ("B",))
    assert partition.step(copy, "m") == []
    assert partition.store.tick(100).messages == []
    partition.stored(ONE, bridge(1), acked=1)
    partition.step(Close(ONE, 1, LIFE, 1))
    (message,) = partition.store.tick(200).messages
    assert (message.target, message.body) == ("B", Pull(TWO, 1))


def test_plain_streams_take_entries_after_a_gap() -> None:
    store = SegmentStore("A", LIFE, {}, Limits(), lambda stream: stream == "orders")
    segment = SegmentId("plain", 2)
    store.step(Message("w", "A", Seal(segment, 1, 7)), 0)
    output = store.step(Message("w", "A", Store(segment, 1, LIFE, 0, 0, 2, (event(2),), leader="w")), 0)
    assert [write for write in output.writes if isinstance(write, PutEntries)]


def test_a_replica_whose_bridge_was_acknowledged_before_is_complete_under_a_later_leader(partition: Partition) -> None:
    partition.stored(ONE, event(1), bridge(2), acked=2)
    # The next leader finds that nothing has to be replicated: it asserts the whole log, and closes the segment.
    partition.step(Seal(ONE, 5, 7))
    assert partition.stored(ONE, matched=2, acked=2, epoch=5).matched == 2
    # Its Close is lost, and the master repeats it.
    partition.step(Finish(ONE, 2, 5), "m")
    assert partition.writes[-1] == SetClosed(ONE, 2)


def test_a_restamped_run_makes_room_for_the_entries_after_it(partition: Partition) -> None:
    partition.stored(ONE, event(1), event(2))
    partition.step(Seal(ONE, 2, 7))
    request = Store(ONE, 2, LIFE, 0, 0, 3, (bridge(3, 2),), (Run(1, 2, Kind.EVENT, 1, 2),), leader="w")
    (answer,) = partition.step(request)
    assert isinstance(answer, Stored)
    assert (answer.matched, answer.has_gap) == (2, True)
    assert partition.stored(ONE, bridge(3, 2), epoch=2).matched == 3


def test_readers_get_nothing_of_a_segment_that_waits(partition: Partition) -> None:
    partition.stored(TWO, event(1), acked=1)
    (answer,) = partition.step(Fetch(TWO, 1), "r")
    assert answer == Fetched(TWO, 1, 0, ())
