"""A client of a stream and the answers of the master."""

import pytest

from kwire.cluster.core.control import (
    Granted,
    Heartbeat,
    NotLeader,
    OpenSegment,
    Renewed,
    SegmentChanged,
    SegmentRecord,
    SegmentState,
    StreamTrimmed,
    TrimStream,
    Unavailable,
)
from kwire.cluster.core.entries import Position
from kwire.cluster.core.leader.writer import Writer
from kwire.cluster.core.messages import Incarnation, Member, Seal, Sealed, SegmentId, Stored
from kwire.cluster.core.policies import Limits, Policy
from kwire.cluster.core.quorum import Quorum

SEGMENT = SegmentId("s", 1)
TTL_MS = 1000


def granted(epoch: int, candidacy: int = 1) -> Granted:
    return Granted("s", epoch, TTL_MS, 0, (), candidacy)


@pytest.fixture
def writer() -> Writer:
    """A leader with an open segment on the stores A, B and C; A and B are sealed."""
    writer = Writer("w", "s", Policy(Quorum(3, 2)), Limits(unacked_bytes=100))
    writer.tick(0)
    assert writer.take_output().requests == [Heartbeat("s", "w", 0, 0, candidacy=1)]
    writer.control(granted(1), 10)
    assert writer.take_output().requests == [OpenSegment("s", 1, 1)]
    writer.control(SegmentChanged("s", 1, record()), 20)
    assert [message.body for message in writer.take_output().messages] == [
        Seal(SEGMENT, 1, cookie) for cookie in (1, 2, 3)
    ]
    for store in ("A", "B"):
        writer.step(store, Sealed(SEGMENT, 1, Incarnation(1, 1), 0, (), ()), 30)
    writer.take_output()
    return writer


def record(state: SegmentState = SegmentState.OPEN, number: int = 1, epoch: int = 1) -> SegmentRecord:
    members = tuple(Member(store, cookie) for cookie, store in enumerate("ABC", start=1))
    return SegmentRecord(number, state, members, 2, epoch, 0)


def matched(index: int) -> Stored:
    return Stored(SEGMENT, 1, Incarnation(1, 1), index, 0, has_gap=False)


@pytest.mark.proves("S4-21")
def test_an_event_is_acknowledged_at_the_second_answer(writer: Writer) -> None:
    position = writer.append(b"one", 40)
    writer.step("A", matched(1), 50)
    # The same store again: it still counts once.
    writer.step("A", matched(1), 51)
    assert writer.take_output().acked == []
    writer.step("B", matched(1), 52)
    assert writer.take_output().acked == [position] == [Position(1, 1)]


def test_the_lease_counts_from_before_the_heartbeat_and_a_little_shorter(writer: Writer) -> None:
    assert writer.has_lease(899)
    assert not writer.has_lease(900)
    assert writer.append(b"late", 900) is None


@pytest.mark.proves("S4-42")
def test_the_master_can_make_the_leader_end_its_segment(writer: Writer) -> None:
    writer.append(b"one", 40)
    writer.control(Renewed("s", 1, TTL_MS, 0, must_roll=True), 50)
    assert writer.open_segment is None
    assert writer.append(b"two", 60) is None, "the segment has ended, and the next one is not open"
    writer.control(Renewed("s", 1, TTL_MS, 0, must_roll=True), 70)


@pytest.mark.parametrize("answer", [NotLeader("s", 2), granted(3)])
def test_events_in_flight_have_an_unknown_outcome_when_the_leadership_ends(
    writer: Writer, answer: NotLeader | Granted
) -> None:
    position = writer.append(b"one", 40)
    writer.control(answer, 50)
    output = writer.take_output()
    assert output.acked == []
    assert output.unknown == [position]
    writer.step("A", matched(1), 60)
    writer.step("B", matched(1), 60)
    assert writer.take_output().acked == [], "answers to an old epoch acknowledge nothing"


def test_answers_to_earlier_leaderships_change_nothing(writer: Writer) -> None:
    writer.append(b"one", 40)
    for answer in (
        granted(1),
        granted(3, candidacy=0),
        NotLeader("s", 1),
        Renewed("s", 0, TTL_MS, 0, must_roll=True),
        NotLeader("s", 0),
        SegmentChanged("s", 0, record()),
        SegmentChanged("s", 1, record()),
        SegmentChanged("s", 1, record(number=2, epoch=7)),
        SegmentChanged("s", 1, record(SegmentState.SEALED, number=9)),
        Unavailable("s", 1, "too few stores"),
    ):
        writer.control(answer, 50)
    assert writer.epoch == 1
    assert writer.open_segment == SEGMENT


def test_an_epoch_that_was_given_up_is_not_taken_up_again(writer: Writer) -> None:
    """The answer of the master arrives twice: what the leader of this epoch had sent is lost."""
    writer.control(NotLeader("s", 2), 40)
    writer.control(granted(1), 50)
    assert writer.epoch == 0
    writer.control(granted(3, candidacy=2), 60)
    assert writer.epoch == 3


def test_candidacies_go_on_from_those_of_earlier_processes() -> None:
    writer = Writer("w", "s", Policy(Quorum(1, 1)), Limits(), candidacy=7)
    writer.tick(0)
    assert writer.take_output().requests == [Heartbeat("s", "w", 0, 0, candidacy=8)]
    writer.control(granted(5, candidacy=7), 0)
    assert writer.epoch == 0, "the answer was for the process before"


def test_appends_are_refused_above_the_bound_for_unacknowledged_bytes(writer: Writer) -> None:
    accepted = [writer.append(b"x" * 40, 40) for _ in range(4)]
    assert accepted == [Position(1, 1), Position(1, 2), None, None]
    writer.step("A", matched(2), 50)
    writer.step("B", matched(2), 50)
    assert writer.append(b"x", 60) == Position(1, 3)


def test_unanswered_requests_are_sent_to_the_master_again() -> None:
    writer = Writer("w", "s", Policy(Quorum(1, 1)), Limits())
    writer.tick(0)
    writer.control(granted(1), 0)
    writer.take_output()
    writer.tick(100)
    assert writer.take_output().requests == []
    writer.tick(200)
    assert writer.take_output().requests == [OpenSegment("s", 1, 1)]


def trims(writer: Writer) -> list[TrimStream]:
    return [request for request in writer.take_output().requests if isinstance(request, TrimStream)]


@pytest.fixture
def acknowledged(writer: Writer) -> Writer:
    """Two events are acknowledged, and the third one is not."""
    for payload in (b"one", b"two", b"three"):
        writer.append(payload, 40)
    for store in ("A", "B"):
        writer.step(store, matched(2), 50)
    writer.take_output()
    return writer


def test_a_trim_is_sent_to_the_master_until_it_is_answered(acknowledged: Writer) -> None:
    writer = acknowledged
    assert writer.trim(Position(1, 2), 100)
    assert trims(writer) == [TrimStream("s", 1, 1, 2)]
    writer.tick(200)
    assert trims(writer) == []
    # Another answer does not end the request: it was for an earlier start.
    writer.control(StreamTrimmed("s", 1, 1, 1), 250)
    writer.tick(300)
    assert trims(writer) == [TrimStream("s", 1, 1, 2)]
    writer.control(StreamTrimmed("s", 1, 1, 2), 350)
    for now in (500, 700, 900):
        writer.tick(now)
        assert trims(writer) == []


def test_only_acknowledged_entries_are_trimmed(acknowledged: Writer) -> None:
    writer = acknowledged
    for start in (Position(1, 4), Position(2, 1), Position(2, 2)):
        assert not writer.trim(start, 100)
        assert trims(writer) == []
    assert writer.trim(Position(1, 3), 100)
    # An earlier start does not replace it.
    assert writer.trim(Position(1, 2), 100)
    assert trims(writer) == [TrimStream("s", 1, 1, 3)]


def test_a_trim_ends_with_the_leadership(acknowledged: Writer) -> None:
    writer = acknowledged
    assert writer.trim(Position(1, 2), 100)
    writer.control(NotLeader("s", 2), 150)
    writer.take_output()
    writer.tick(1000)
    assert trims(writer) == []
    assert not writer.trim(Position(1, 2), 1000)
