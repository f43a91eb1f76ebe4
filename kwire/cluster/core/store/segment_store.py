"""A segment store: replicas of many segments, fenced by epochs.

The caller applies the writes of a step in order and syncs them. Only then it sends the step's messages and those of
later steps. A failed write or sync ends this object: the store starts again from its disk as a new incarnation.
"""

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from kwire.cluster.core.entries import INDEX_MAX
from kwire.cluster.core.messages import (
    Body,
    Close,
    Copy,
    Drop,
    Entries,
    Fetch,
    Fetched,
    Finish,
    Incarnation,
    Message,
    Peek,
    Peeked,
    Pull,
    Pulled,
    Read,
    Refused,
    Restarted,
    Seal,
    SegmentId,
    Stale,
    Store,
    Stored,
    TrimBefore,
)
from kwire.cluster.core.policies import Limits, no_partitions
from kwire.cluster.core.store.repair import SegmentCopy
from kwire.cluster.core.store.replica import EVERYTHING, Replica
from kwire.cluster.core.writes import RemoveReplica, ReplicaState, SetUnknown, Write


class PendingRead(Struct, frozen=True):
    """A message that lacks its entries: the caller reads them from the storage and sends it.

    At most `bytes_max` of entries from `first` to `last` are read, but at least one.
    """

    message: Message
    segment: SegmentId
    first: int
    last: int
    bytes_max: int


class StoreOutput(Struct, frozen=True):
    """What a step asks for, in this order: writes that become durable, then reads and messages."""

    writes: list[Write]
    reads: list[PendingRead]
    messages: list[Message]


class SegmentStore:
    """One incarnation of a store.

    `is_limbo`: after an unclean stop without syncs, the store can not answer for segments that are not closed.
    `is_partition`: whether the segments of a stream share one log, which is written at its end only. Their entries are
    stored without gaps, and those of a segment after the one before it is closed.
    """

    def __init__(
        self,
        name: str,
        incarnation: Incarnation,
        states: Mapping[SegmentId, ReplicaState],
        limits: Limits,
        is_partition: Callable[[str], bool] = no_partitions,
        *,
        is_limbo: bool = False,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self._limits = limits
        self._is_partition = is_partition
        self._is_limbo = is_limbo
        self._writes: list[Write] = []
        self._reads: list[PendingRead] = []
        self._messages: list[Message] = []
        self.replicas = {segment: Replica(segment, state, self._writes) for segment, state in states.items()}
        self._copies: dict[SegmentId, SegmentCopy] = {}
        # Segments of partitions that have all entries before them. A closed replica is never opened again.
        self._ready: set[SegmentId] = set()
        if is_limbo:
            for replica in self.replicas.values():
                self._doubt(replica)

    def step(self, message: Message, now: int) -> StoreOutput:
        """Handle one message. A message of a kind that stores do not receive raises ValueError."""
        match message.body:
            case Seal() | Store() | Read() | Close() as request:
                self._lead(message, request)
            case Fetch() | Peek() | Pull() as request:
                self._serve(message.source, request)
            case TrimBefore() as request:
                self._trim(request.segment, request.first)
            case Copy() | Finish() | Pulled() | Drop() as request:
                self._repair(message.source, request, now)
            case Refused():
                pass  # the source of a copy has no complete replica; tick asks another one
            case other:
                raise ValueError(f"a segment store does not take {type(other).__name__}")
        return self._output()

    def tick(self, now: int) -> StoreOutput:
        for copy in self._copies.values():
            self._messages += copy.tick(now)
        return self._output()

    def _output(self) -> StoreOutput:
        output = StoreOutput(self._writes.copy(), self._reads, self._messages)
        # The replicas append to this list.
        self._writes.clear()
        self._reads, self._messages = [], []
        return output

    def _answer(self, target: str, body: Body) -> None:
        self._messages.append(Message(self.name, target, body))

    # --- requests of leaders

    def _lead(self, message: Message, request: Seal | Store | Read | Close) -> None:
        segment, epoch = request.segment, request.epoch
        leader = request.leader if isinstance(request, Store) else message.source
        if isinstance(request, Seal) and request.cookie != self.incarnation.cookie:
            self._answer(leader, Refused(segment, epoch, "the store has another disk"))
            return
        replica = self.replicas.get(segment)
        if replica is None:
            if not isinstance(request, Seal):
                self._answer(leader, Restarted(segment, epoch, self.incarnation))
                return
            replica = self._create(segment)
        if epoch < replica.sealed_epoch:
            self._answer(leader, Stale(segment, epoch, replica.sealed_epoch))
            return
        # Every request fences, not only Seal: the Seal of this leader may have been lost.
        replica.fence(epoch)
        if isinstance(request, Seal):
            self._answer(leader, replica.seal(request, self.incarnation))
        elif request.incarnation != self.incarnation:
            self._answer(leader, Restarted(segment, epoch, self.incarnation))
        elif isinstance(request, Store):
            self._answer(leader, self._store(replica, request))
            self._forward(request)
        elif isinstance(request, Close):
            self._answer(leader, replica.close(request))
        else:
            answer = Entries(segment, epoch, self.incarnation, request.first, ())
            self._read(leader, answer, segment, max(request.first, replica.first), request.last)

    def _store(self, replica: Replica, request: Store) -> Stored:
        if not self._is_partition(request.segment.stream):
            return replica.store(request, self._limits.pending_entries)
        if not self._has_all_before(request.segment):
            request = replace(request, entries=())  # the leader sends them again
        return replica.store(request, None)

    def _has_all_before(self, segment: SegmentId) -> bool:
        """Whether entries of the segment may be stored: those of a partition after all entries of earlier segments."""
        if segment.number == 1 or segment in self._ready or not self._is_partition(segment.stream):
            return True
        before = [
            replica
            for replica in self.replicas.values()
            if replica.segment.stream == segment.stream and replica.segment.number < segment.number
        ]
        is_next = max((replica.segment.number for replica in before), default=0) == segment.number - 1
        is_ready = is_next and all(replica.closed_end for replica in before)
        if is_ready:
            self._ready.add(segment)
        return is_ready

    def _create(self, segment: SegmentId) -> Replica:
        replica = self.replicas[segment] = Replica(segment, ReplicaState(), self._writes)
        if self._is_limbo:
            self._doubt(replica)
        return replica

    def _doubt(self, replica: Replica) -> None:
        if not replica.closed_end:
            replica.unknown = [EVERYTHING]
            self._writes.append(SetUnknown(replica.segment, (EVERYTHING,)))

    def _forward(self, request: Store) -> None:
        if request.forward:
            hop, *rest = request.forward
            body = replace(request, incarnation=hop.incarnation, matched=hop.matched, forward=tuple(rest))
            self._messages.append(Message(self.name, hop.store, body))

    # --- readers

    def _serve(self, reader: str, request: Fetch | Peek | Pull) -> None:
        segment, first = request.segment, request.first
        replica = self.replicas.get(segment)
        if replica is None:
            self._answer(reader, Refused(segment, 0, "the store has no replica of this segment"))
        elif isinstance(request, Fetch):
            fetched = Fetched(segment, first, replica.limit, (), replica.first)
            self._read(reader, fetched, segment, max(first, replica.first), replica.limit)
        elif isinstance(request, Peek):
            runs = tuple(replica.runs.between(first, INDEX_MAX))
            peeked = Peeked(segment, first, self.incarnation, replica.acked, runs, tuple(replica.unknown), ())
            self._read(reader, peeked, segment, max(first, replica.first), replica.runs.last)
        elif replica.closed_end and not replica.unknown:
            trimmed = tuple(replica.runs.between(1, replica.first - 1))
            pulled = Pulled(segment, first, replica.closed_end, (), replica.first, trimmed)
            self._read(reader, pulled, segment, max(first, replica.first), replica.closed_end)
        else:
            self._answer(reader, Refused(segment, 0, "the replica is not complete"))

    def _read(
        self, target: str, answer: Entries | Fetched | Peeked | Pulled, segment: SegmentId, first: int, last: int
    ) -> None:
        message = Message(self.name, target, answer)
        if first > last or first > INDEX_MAX:
            self._messages.append(message)
        else:
            self._reads.append(PendingRead(message, segment, first, last, self._limits.read_bytes))

    # --- trimming and repair

    def _trim(self, segment: SegmentId, first: int) -> None:
        for replica in sorted(self.replicas.values(), key=lambda one: one.segment):
            if replica.segment.stream == segment.stream and replica.segment.number <= segment.number:
                replica.trim(first if replica.segment == segment else INDEX_MAX)

    def _repair(self, source: str, request: Copy | Finish | Pulled | Drop, now: int) -> None:
        segment = request.segment
        if isinstance(request, Drop):
            copy = self._copies.get(segment)
            if request.incarnation != self.incarnation or (copy is not None and copy.removals >= request.removal):
                return
            self._copies.pop(segment, None)
            self._ready.discard(segment)
            if self.replicas.pop(segment, None) is not None:
                self._writes.append(RemoveReplica(segment))
        elif isinstance(request, Finish):
            if (replica := self.replicas.get(segment)) is not None:
                replica.finish(request.end, request.end_epoch)
        elif isinstance(request, Copy):
            copy = self._copies.get(segment)
            if copy is None:
                replica = self.replicas.get(segment) or self._create(segment)
                replica.fence(request.end_epoch)
                is_ready = partial(self._has_all_before, segment)
                copy = self._copies[segment] = SegmentCopy(
                    self.name, self.incarnation, source, request, replica, self._writes, self._limits, is_ready
                )
            if request.start > 1:
                # The TrimBefore may have been lost, or the replica was not closed when it arrived.
                self._trim(segment, request.start)
            self._messages += copy.start(request, now)
        elif (copy := self._copies.get(segment)) is not None:
            if request.start > 1 and not copy.is_own_copy:
                # Everything before the log start is trimmed. A log begins with the first batch that is copied.
                self._trim(segment, request.start)
            self._messages += copy.step(source, request, now)
