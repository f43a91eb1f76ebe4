"""The storage of a segment store and a master, in memory and without faults, for tests of the core."""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from kwire.cluster.core.control import (
    BeginRecovery,
    ClientAnswer,
    ClientRequest,
    CloseSegment,
    Describe,
    Described,
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
)
from kwire.cluster.core.entries import FIRST_POSITION, Entry, Position, Range, joined, run_of
from kwire.cluster.core.messages import Copy, Entries, Fetched, Finish, Member, Message, Peeked, Pulled, SegmentId
from kwire.cluster.core.store.segment_store import PendingRead
from kwire.cluster.core.writes import (
    PutEntries,
    RemoveAfter,
    RemoveReplica,
    ReplicaState,
    SetAcked,
    SetClosed,
    SetComplete,
    SetSealedEpoch,
    SetStamps,
    SetUnknown,
    Trim,
    Write,
)

TTL_MS = 3000


class StoredReplica(Struct):
    """A replica on the disk."""

    sealed_epoch: int = 0
    acked: int = 0
    closed_end: int = 0
    complete_epoch: int = 0
    unknown: tuple[Range, ...] = ()
    entries: dict[int, Entry] = {}
    first: int = 1


class MemoryStorage:
    """The durable state of one store: every write is durable at once."""

    def __init__(self) -> None:
        self.replicas: dict[SegmentId, StoredReplica] = {}

    def apply(self, writes: Iterable[Write]) -> None:
        for write in writes:
            if isinstance(write, RemoveReplica):
                self.replicas.pop(write.segment, None)
                continue
            replica = self.replicas.setdefault(write.segment, StoredReplica(entries={}))
            match write:
                case SetSealedEpoch():
                    replica.sealed_epoch = write.epoch
                case PutEntries():
                    replica.entries.update((entry.index, entry) for entry in write.entries)
                case SetStamps():
                    for run in write.runs:
                        for index in range(run.first, run.last + 1):
                            entry = replica.entries[index]
                            assert (entry.kind, entry.birth_epoch) == run.identity()
                            replica.entries[index] = replace(entry, stamp_epoch=run.stamp_epoch)
                case RemoveAfter():
                    replica.entries = {k: v for k, v in replica.entries.items() if k <= write.index}
                case SetAcked():
                    replica.acked = write.acked
                case SetUnknown():
                    replica.unknown = write.ranges
                case SetComplete():
                    replica.complete_epoch = write.epoch
                case SetClosed():
                    replica.closed_end = replica.acked = write.end
                case Trim():
                    self._trim(replica, write)

    def _trim(self, replica: StoredReplica, write: Trim) -> None:
        """Drop the payloads before `write.first`. What the entries were stays, or comes with the write."""
        replica.first = write.first
        trimmed = [entry for entry in replica.entries.values() if entry.index < write.first]
        trimmed += [Entry(index, *run[2:]) for run in write.runs for index in range(run.first, run.last + 1)]
        replica.entries.update((entry.index, replace(entry, payload=b"")) for entry in trimmed)

    def load(self) -> dict[SegmentId, ReplicaState]:
        return {
            segment: ReplicaState(
                replica.sealed_epoch,
                replica.acked,
                replica.closed_end,
                replica.complete_epoch,
                tuple(joined(run_of(replica.entries[index]) for index in sorted(replica.entries))),
                replica.unknown,
                replica.first,
            )
            for segment, replica in self.replicas.items()
        }

    def read(self, read: PendingRead) -> Message:
        """Fill in the entries of an answer."""
        entries: list[Entry] = []
        size = 0
        replica = self.replicas[read.segment]
        for index in sorted(one for one in replica.entries if read.first <= one <= read.last):
            entries.append(replica.entries[index])
            size += len(replica.entries[index].payload)
            if size >= read.bytes_max:
                break
        body = read.message.body
        assert isinstance(body, Entries | Fetched | Peeked | Pulled)
        return replace(read.message, body=replace(body, entries=tuple(entries)))


class MemoryMaster:
    """The decisions of a master for one stream. Leaders are elected when the test says so."""

    def __init__(self, stream: str, copy_sets: list[tuple[str, ...]], write_quorum: int) -> None:
        self.stream = stream
        self.copy_sets, self.write_quorum = copy_sets, write_quorum
        self.epoch = 0
        self.leader = ""
        self.segments: dict[int, SegmentRecord] = {}
        self.start = FIRST_POSITION

    def elect(self, client: str, sent_at: int, candidacy: int) -> Granted:
        self.epoch += 1
        self.leader = client
        return Granted(self.stream, self.epoch, TTL_MS, sent_at, tuple(self.segments.values()), candidacy)

    def handle(self, request: ClientRequest) -> ClientAnswer | None:
        match request:
            case Describe():
                return Described(request.stream, self.epoch, tuple(self.segments.values()), start=self.start)
            case Heartbeat():
                if request.epoch == self.epoch and request.client == self.leader:
                    return Renewed(request.stream, self.epoch, TTL_MS, request.sent_at, must_roll=False)
                return NotLeader(request.stream, self.epoch) if request.epoch else None
        if request.epoch != self.epoch:
            return NotLeader(request.stream, self.epoch)
        if isinstance(request, TrimStream):
            self.start = max(self.start, Position(request.number, request.first))
            return StreamTrimmed(request.stream, self.epoch, request.number, request.first)
        self._change(request)
        record = self.segments[request.number]
        return SegmentChanged(request.stream, self.epoch, record)

    def _change(self, request: OpenSegment | BeginRecovery | CloseSegment) -> None:
        record = self.segments.get(request.number)
        match request:
            case OpenSegment():
                if record is None:
                    assert request.number == len(self.segments) + 1
                    assert sum(one.state is not SegmentState.SEALED for one in self.segments.values()) < 2
                    stores = self.copy_sets[request.number % len(self.copy_sets)]
                    members = tuple(Member(store, cookie_of(store)) for store in stores)
                    base = self._base(request.number)
                    self.segments[request.number] = SegmentRecord(
                        request.number, SegmentState.OPEN, members, self.write_quorum, self.epoch, base
                    )
            case BeginRecovery():
                assert record is not None
                if record.state is SegmentState.OPEN:
                    self.segments[record.number] = replace(record, state=SegmentState.SEALING)
            case CloseSegment():
                assert record is not None
                if record.state is not SegmentState.SEALED:
                    self._seal(record, request.end_index)
                else:
                    assert record.end_index == request.end_index

    def repairs(self, unclosed: Mapping[str, Collection[SegmentId]]) -> list[Message]:
        """What completes the replicas of sealed segments, given what each store has not closed."""
        messages = []
        for record in self.segments.values():
            if record.state is not SegmentState.SEALED:
                continue
            assert record.end_index is not None
            assert record.end_epoch is not None
            segment = SegmentId(self.stream, record.number)
            stores = [member.store for member in record.copy_set]
            closed = tuple(store for store in stores if segment not in unclosed[store])
            for store in stores:
                if segment in unclosed[store]:
                    messages.append(Message("master", store, Finish(segment, record.end_index, record.end_epoch)))
                    if closed:
                        messages.append(
                            Message("master", store, Copy(segment, record.end_index, record.end_epoch, closed))
                        )
        return messages

    def _seal(self, record: SegmentRecord, end_index: int) -> None:
        assert record.base is not None, "an earlier segment is not sealed"
        self.segments[record.number] = replace(
            record, state=SegmentState.SEALED, end_index=end_index, end_epoch=self.epoch
        )
        following = self.segments.get(record.number + 1)
        if following is not None:
            self.segments[following.number] = replace(following, base=self._base(following.number))

    def _base(self, number: int) -> int | None:
        if number == 1:
            return 0
        previous = self.segments[number - 1]
        if previous.base is None or previous.end_index is None:
            return None
        return previous.base + previous.end_index - 1


def cookie_of(store: str) -> int:
    """The cookie of a store's first disk."""
    return sum(map(ord, store))
