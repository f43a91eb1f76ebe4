"""A segment store against leaders, readers and masters that do something wrong."""

import pytest

from kwire.cluster.core.control import Describe
from kwire.cluster.core.entries import Entry, Kind
from kwire.cluster.core.messages import (
    Body,
    Close,
    Fetch,
    Incarnation,
    Message,
    Peek,
    Pull,
    Pulled,
    Refused,
    Restarted,
    Seal,
    SegmentId,
    Store,
    Stored,
)
from kwire.cluster.core.policies import Limits
from kwire.cluster.core.store.replica import ProtocolViolation
from kwire.cluster.core.store.segment_store import SegmentStore

SEGMENT = SegmentId("s", 1)
OTHER = SegmentId("s", 2)
LIFE = Incarnation(7, 1)


@pytest.fixture
def store() -> SegmentStore:
    store = SegmentStore("A", LIFE, {}, Limits())
    answer(store, Seal(SEGMENT, 1, 7))
    return store


def answer(store: SegmentStore, body: Body, source: str = "w") -> list[Body]:
    output = store.step(Message(source, "A", body), 0)
    return [message.body for message in [*output.messages, *(read.message for read in output.reads)]]


def entry(index: int, epoch: int, kind: Kind = Kind.EVENT, birth: int = 1) -> Entry:
    return Entry(index, kind, birth, epoch, b"x")


def stored(*entries: Entry, epoch: int = 1, matched: int = 0, acked: int = 0, last: int = 9) -> Store:
    return Store(SEGMENT, epoch, LIFE, matched, acked, last, entries, leader="w")


def test_another_content_with_the_same_stamp_stops_the_store(store: SegmentStore) -> None:
    answer(store, stored(entry(1, 1)))
    with pytest.raises(ProtocolViolation, match=r"the leader sent .* after"):
        answer(store, stored(entry(1, 1, Kind.HOLE)))


def test_an_entry_with_the_stamp_of_another_leader_stops_the_store(store: SegmentStore) -> None:
    with pytest.raises(ProtocolViolation, match="has not the stamp of the leader, 1"):
        answer(store, stored(entry(1, 3)))


def test_a_closed_replica_takes_no_other_content(store: SegmentStore) -> None:
    bridge = entry(2, 1, Kind.BRIDGE)
    answer(store, stored(entry(1, 1), bridge, acked=2))
    answer(store, Close(SEGMENT, 1, LIFE, 2))
    (again,) = answer(store, stored(entry(1, 1), bridge, acked=2))
    assert isinstance(again, Stored), "a repeated message changes nothing"
    # The leader of a recovery goes on filling a replica that was copied from another one in the meantime.
    (filled,) = answer(store, stored(entry(1, 5), epoch=5))
    assert isinstance(filled, Stored)
    assert filled.matched == 2
    with pytest.raises(ProtocolViolation, match="closed replica"):
        answer(store, stored(entry(1, 5, birth=5), epoch=5))


def test_a_replica_is_not_closed_where_it_has_no_bridge(store: SegmentStore) -> None:
    answer(store, stored(entry(1, 1), entry(2, 1)))
    with pytest.raises(ProtocolViolation, match="the master closed it at 2"):
        answer(store, Close(SEGMENT, 1, LIFE, 2))


def test_requests_for_unknown_replicas_are_answered(store: SegmentStore) -> None:
    assert answer(store, Store(OTHER, 1, LIFE, 0, 0, 0, leader="w")) == [Restarted(OTHER, 1, LIFE)]
    for body in (Fetch(OTHER, 1), Peek(OTHER, 1), Pull(OTHER, 1)):
        assert answer(store, body) == [Refused(OTHER, 0, "the store has no replica of this segment")]
    assert answer(store, Pull(SEGMENT, 1)) == [Refused(SEGMENT, 0, "the replica is not complete")]
    assert answer(store, Pulled(SEGMENT, 1, 2, ())) == [], "nobody copies this segment"


def test_a_store_with_another_disk_refuses(store: SegmentStore) -> None:
    assert answer(store, Seal(SEGMENT, 2, 8)) == [Refused(SEGMENT, 2, "the store has another disk")]


def test_a_store_does_not_take_messages_of_other_roles(store: SegmentStore) -> None:
    with pytest.raises(ValueError, match="a segment store does not take Describe"):
        answer(store, Describe("s"))  # type: ignore[arg-type]
