"""Replicas of a partition whose log start has moved: retention and DeleteRecords on sealed segments."""

from random import Random

import pytest
from msgspec.structs import replace

from kwire.cluster.core.control import Described, SegmentRecord, SegmentState
from kwire.cluster.core.entries import INDEX_MAX, Entry, Kind, Position, Range, Run
from kwire.cluster.core.messages import (
    Body,
    Copied,
    Copy,
    Fetch,
    Fetched,
    Incarnation,
    Member,
    Message,
    Pulled,
    Seal,
    Sealed,
    SegmentId,
    TrimBefore,
)
from kwire.cluster.core.policies import Limits
from kwire.cluster.core.reader.reader import Delivery, Reader, Trimmed
from kwire.cluster.core.store.segment_store import SegmentStore, StoreOutput
from kwire.cluster.core.writes import PutEntries, ReplicaState, SetClosed, SetComplete, SetSealedEpoch, Trim
from kwire.cluster.segment_files.segment_files import LOG_SUFFIX, SegmentFiles
from storage.log.settings import LogSettings
from tests.cluster.segment_files.test_partition_files import bridge, event, events
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles

DIRECTORY = "/data/segments"
SETTINGS = LogSettings(segment_bytes=250, index_interval_bytes=100)
STREAM = "orders"
ONE, TWO, THREE = (SegmentId(STREAM, number) for number in (1, 2, 3))
ENDS = {ONE: 6, TWO: 1, THREE: 5}


class Node:
    """A store with its disk. Messages to itself are delivered."""

    def __init__(self, name: str, cookie: int) -> None:
        self.name, self.cookie = name, cookie
        self.disk = SimulatedDisk()
        SimulatedFiles(self.disk).makedirs("/data")
        SimulatedFiles(self.disk).syncfs("/")
        self.start()

    def start(self) -> None:
        self.files = SegmentFiles.open(DIRECTORY, SimulatedFiles(self.disk), self.cookie, lambda _: SETTINGS)
        states = self.files.states()
        limits = Limits(retry_ms=100, read_bytes=200)
        self.core = SegmentStore(self.name, self.files.incarnation, states, limits, lambda _: True)

    def fill(self) -> None:
        """Three sealed segments; the second one has no events."""
        self.files.apply([SetSealedEpoch(ONE, 1), PutEntries(ONE, events(1, 5))])
        self.files.apply([PutEntries(ONE, (bridge(6, 1),)), SetComplete(ONE, 1), SetClosed(ONE, 6)])
        self.files.apply([SetSealedEpoch(TWO, 2), PutEntries(TWO, (bridge(1, 2),)), SetClosed(TWO, 1)])
        self.files.apply([SetSealedEpoch(THREE, 3), PutEntries(THREE, events(1, 4, 10, 3))])
        self.files.apply([PutEntries(THREE, (bridge(5, 3),)), SetClosed(THREE, 5)])
        self.start()

    def step(self, source: str, body: Body) -> list[Message]:
        return self._sent(self.core.step(Message(source, self.name, body), 0))

    def _sent(self, output: StoreOutput) -> list[Message]:
        self.files.apply(output.writes)
        messages = list(output.messages)
        for read in output.reads:
            entries = self.files.read(read.segment, read.first, read.last, read.bytes_max)
            messages.append(replace(read.message, body=replace(read.message.body, entries=entries)))
        sent = [message for message in messages if message.target != self.name]
        for message in messages:
            if message.target == self.name:
                sent += self.step(self.name, message.body)
        return sent

    def entries(self, segment: SegmentId) -> tuple[Entry, ...]:
        return self.files.read(segment, 1, INDEX_MAX, INDEX_MAX)

    @property
    def log_start(self) -> int:
        return self.files.partition_log(STREAM).log_start_offset

    def log_names(self) -> list[str]:
        files = SimulatedFiles(self.disk)
        (folder,) = (name for name in files.listdir(DIRECTORY) if name.endswith(LOG_SUFFIX))
        return sorted(name for name in files.listdir(f"{DIRECTORY}/{folder}") if name.endswith(".log"))


def filled(name: str = "A", cookie: int = 1) -> Node:
    node = Node(name, cookie)
    node.fill()
    return node


def copied(target: Node, source: Node, segment: SegmentId, start: int = 1) -> Copied:
    """Let the target copy a segment, and return its report."""
    end = ENDS[segment]
    nodes = {target.name: target, source.name: source}
    messages = target.step("m", Copy(segment, end, 3, (source.name,), start))
    for _ in range(100):
        (message,) = messages
        if isinstance(message.body, Copied):
            return message.body
        messages = nodes[message.target].step(message.source, message.body)
    raise AssertionError("the copy does not end")


def test_a_trimmed_replica_answers_from_its_log_start_on() -> None:
    node = filled()
    before = {segment: node.core.replicas[segment].runs for segment in ENDS}
    node.step("m", TrimBefore(THREE, 3))
    for number in range(3):
        # A seal is answered as before: what the entries were is still known.
        for segment, runs in before.items():
            (message,) = node.step("w", Seal(segment, 9 + number, 1))
            assert isinstance(message.body, Sealed)
            assert (message.body.runs, message.body.unknown) == (tuple(runs), ())
        assert node.entries(ONE) == (bridge(6, 1),)
        assert node.entries(TWO) == (bridge(1, 2),)
        assert node.entries(THREE) == (*events(3, 4, 14, 3), bridge(5, 3))
        (message,) = node.step("r", Fetch(THREE, 1))
        assert isinstance(message.body, Fetched)
        assert (message.body.start, [entry.index for entry in message.body.entries][:1]) == (3, [3])
        assert node.log_start == 14
        node.disk = node.disk.after_power_cut(Random(number)) if number else node.disk.restarted()
        node.start()
        assert node.files.damages == []


def test_the_files_before_the_log_start_are_removed() -> None:
    node = filled()
    assert f"{0:020}.log" in node.log_names()
    node.step("m", TrimBefore(THREE, 1))
    assert node.log_start == 10
    assert node.log_names()[0] == f"{10:020}.log"
    node.step("m", TrimBefore(THREE, INDEX_MAX))
    assert (node.log_start, node.log_names()) == (18, [])
    assert node.entries(THREE) == (bridge(5, 3),)
    # The log continues where it was.
    four = SegmentId(STREAM, 4)
    node.files.apply([SetSealedEpoch(four, 4), PutEntries(four, (event(1, 18, 4),))])
    node.disk = node.disk.after_power_cut(Random(1))
    node.start()
    assert node.entries(four) == (event(1, 18, 4),)


def test_an_open_segment_is_not_trimmed() -> None:
    node = filled()
    four = SegmentId(STREAM, 4)
    node.files.apply([SetSealedEpoch(four, 4), PutEntries(four, events(1, 3, 18, 4))])
    node.start()
    node.step("m", TrimBefore(four, 3))
    assert node.entries(four) == events(1, 3, 18, 4)
    assert node.log_start == 18


@pytest.mark.parametrize("first", [1, 2, 3, 5])
def test_a_copy_from_a_trimmed_source_is_equal(first: int) -> None:
    source, target = filled(), Node("B", 2)
    source.step("m", TrimBefore(THREE, first))
    for segment in ENDS:
        report = copied(target, source, segment)
        verified = copied(source, source, segment)
        assert (report.digest, report.start) == (verified.digest, verified.start)
        assert target.entries(segment) == source.entries(segment)
    assert target.files.states().keys() == source.files.states().keys()
    for segment, state in source.files.states().items():
        copy = target.files.states()[segment]
        assert (copy.runs, copy.first, copy.closed_end) == (state.runs, state.first, state.closed_end)
    target.disk = target.disk.after_power_cut(Random(first))
    target.start()
    assert target.files.damages == []
    assert {segment: target.entries(segment) for segment in ENDS} == {
        segment: source.entries(segment) for segment in ENDS
    }


def test_a_store_that_has_more_is_trimmed_as_its_source() -> None:
    source, target = filled(), Node("B", 2)
    for segment in (ONE, TWO):
        copied(target, source, segment)
    assert target.log_start == 0
    source.step("m", TrimBefore(THREE, 3))
    copied(target, source, THREE)
    assert target.entries(ONE) == (bridge(6, 1),)
    assert target.entries(THREE) == source.entries(THREE)
    assert target.log_start == source.log_start == 14


def test_digests_name_their_start() -> None:
    one, two = filled("A", 1), filled("B", 2)
    two.step("m", TrimBefore(THREE, 3))
    whole, rest = copied(one, one, THREE), copied(two, two, THREE)
    assert (whole.start, rest.start) == (1, 3)
    assert whole.digest != rest.digest
    # The master names the start from which on it compares.
    again = Node("C", 3)
    for segment in (ONE, TWO):
        copied(again, one, segment)
    assert copied(again, one, THREE, 3).digest == rest.digest


def test_a_source_that_is_trimmed_during_a_copy() -> None:
    source, target = filled(), Node("B", 2)
    for segment in (ONE, TWO):
        copied(target, source, segment)
    nodes = {target.name: target, source.name: source}
    messages = target.step("m", Copy(THREE, 5, 3, ("A",)))
    for turn in range(100):
        (message,) = messages
        if isinstance(message.body, Copied):
            break
        if turn == 3:
            source.step("m", TrimBefore(THREE, 4))
        messages = nodes[message.target].step(message.source, message.body)
    assert isinstance(message.body, Copied)
    assert message.body.start == 4
    assert message.body.digest == copied(source, source, THREE).digest
    assert target.entries(THREE) == source.entries(THREE)


def test_a_reader_goes_on_at_the_log_start() -> None:
    node = filled()
    node.step("m", TrimBefore(THREE, 3))
    reader = Reader("r", STREAM, Limits(retry_ms=100))
    members = (Member("A", 1),)
    records = tuple(
        SegmentRecord(segment.number, SegmentState.SEALED, members, 1, segment.number, base, end, segment.number)
        for (segment, end), base in zip(ENDS.items(), (0, 5, 5), strict=True)
    )
    reader.control(Described(STREAM, 3, records, 3), 0)
    for _ in range(20):
        messages, reader.messages = reader.messages, []
        for message in messages:
            for answer in node.step("r", message.body):
                assert isinstance(answer.body, Fetched)
                reader.step(answer.body, 0)
    # The bridge of a trimmed segment stays, and leads to the next one.
    gaps, found = reader.deliveries[:2], reader.deliveries[2:]
    assert gaps == [Trimmed(Position(1, 1), Position(1, 6)), Trimmed(Position(3, 1), Position(3, 3))]
    assert [(one.position, one.payload) for one in found if isinstance(one, Delivery)] == [
        ((3, entry.index), entry.payload) for entry in events(3, 4, 14, 3)
    ]
    # Another reader hears of the start before it reads.
    late = Reader("late", STREAM, Limits(retry_ms=100))
    late.control(Described(STREAM, 3, records, 3, Position(3, 3)), 0)
    assert late.deliveries == [Trimmed(Position(1, 1), Position(3, 3))]
    assert [message.body for message in late.messages] == [Fetch(THREE, 3)]


def test_a_crash_at_any_call_of_a_trim() -> None:
    node = filled()
    start = node.disk.call_count
    node.step("m", TrimBefore(THREE, 3))
    calls = node.disk.call_count - start
    expected = {segment: node.entries(segment) for segment in ENDS}
    for call in range(1, calls + 1):
        for is_power_cut in (False, True):
            node = filled()
            whole = {segment: node.entries(segment) for segment in ENDS}
            node.disk.crash_at = node.disk.call_count + call
            with pytest.raises(Crashed):
                node.step("m", TrimBefore(THREE, 3))
            node.disk = node.disk.after_power_cut(Random(call)) if is_power_cut else node.disk.restarted()
            node.start()
            assert node.files.damages == []
            for segment in ENDS:
                assert node.entries(segment) in (whole[segment], expected[segment])
            node.step("m", TrimBefore(THREE, 3))
            assert {segment: node.entries(segment) for segment in ENDS} == expected
            assert node.log_start == 14


def test_a_plain_stream_is_trimmed_too() -> None:
    disk = SimulatedDisk()
    SimulatedFiles(disk).makedirs("/data")
    files = SegmentFiles.open(DIRECTORY, SimulatedFiles(disk), 1)
    entries = tuple(Entry(index, Kind.EVENT, 1, 1, b"x") for index in (1, 2, 3))
    files.apply([SetSealedEpoch(ONE, 1), PutEntries(ONE, (*entries, bridge(4, 1))), SetClosed(ONE, 4), Trim(ONE, 3)])
    for _ in range(2):
        state = files.states()[ONE]
        assert (state.first, state.closed_end) == (3, 4)
        assert state.runs == (Run(1, 3, Kind.EVENT, 1, 1), Run(4, 4, Kind.BRIDGE, 1, 1))
        assert files.read(ONE, 1, 9, INDEX_MAX) == (entries[2], bridge(4, 1))
        files = SegmentFiles.open(DIRECTORY, SimulatedFiles(disk.restarted()), 1)
    assert files.incarnation == Incarnation(1, 3)


def test_pages_of_a_trimmed_source_name_what_was_trimmed() -> None:
    source = filled()
    source.step("m", TrimBefore(THREE, 3))
    target = Node("B", 2)
    for segment in (ONE, TWO):
        copied(target, source, segment)
    (pull,) = target.step("m", Copy(THREE, 5, 3, ("A",)))
    (page,) = source.step("B", pull.body)
    assert isinstance(page.body, Pulled)
    assert (page.body.first, page.body.start) == (1, 3)
    assert page.body.trimmed == (Run(1, 2, Kind.EVENT, 3, 3),)


@pytest.mark.parametrize("first", [1, 3, 4])
def test_a_copy_restores_what_the_trimmed_entries_were(first: int) -> None:
    """Damage has lost it, although the replica knows where it starts. Its source is trimmed less, as much, or more."""
    source = filled()
    source.step("m", TrimBefore(THREE, first))
    state = ReplicaState(sealed_epoch=3, unknown=(Range(1, INDEX_MAX),), first=3)
    target = SegmentStore("B", Incarnation(2, 1), {THREE: state}, Limits(read_bytes=200))
    (message,) = target.step(Message("m", "B", Copy(THREE, 5, 3, ("A",), 3)), 0).messages
    for _ in range(10):
        (page,) = source.step("B", message.body)
        (message,) = target.step(page, 0).messages
        if message.target == "B":
            break
    replica = target.replicas[THREE]
    assert (replica.closed_end, replica.first) == (5, max(first, 3))
    assert tuple(replica.runs) == tuple(source.core.replicas[THREE].runs)


def test_a_copy_that_names_the_start_trims_the_replica() -> None:
    """The TrimBefore was lost, or it came before the segment was closed."""
    node, other = filled(), filled("B", 2)
    whole = copied(node, node, THREE)
    other.step("m", TrimBefore(THREE, 3))
    trimmed = copied(node, node, THREE, 3)
    assert (whole.start, trimmed.start) == (1, 3)
    assert trimmed.digest == copied(other, other, THREE, 3).digest
    assert node.entries(THREE) == (*events(3, 4, 14, 3), bridge(5, 3))
    assert node.entries(ONE) == (bridge(6, 1),)
    # An order from before the trim arrives late.
    assert copied(node, node, THREE, 1) == trimmed
    new = Node("C", 3)
    for segment in (ONE, TWO):
        copied(new, node, segment)
    assert copied(new, filled("D", 4), THREE, 3).digest == trimmed.digest
    assert new.entries(THREE) == node.entries(THREE)
