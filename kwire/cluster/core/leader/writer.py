"""A client of the Stream Engine: competes for the leadership of one stream, recovers it, and appends to it.

A client that starts again has lost its window, so it never resumes an epoch: it gets a new one. Leases decide only
about the order of leaders. The epochs make sure that no entry of an old leader is acknowledged.
"""

from msgspec import Struct
from msgspec.structs import replace

from kwire.cluster.core.control import (
    BeginRecovery,
    ClientAnswer,
    ClientRequest,
    CloseSegment,
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
    Unavailable,
)
from kwire.cluster.core.entries import Position
from kwire.cluster.core.leader.recovery import Phase, Recovery
from kwire.cluster.core.leader.replicator import Replicator
from kwire.cluster.core.messages import Message, SegmentId, StoreAnswer
from kwire.cluster.core.policies import Limits, Path, Policy
from kwire.cluster.core.quorum import Quorum

# The segments of a stream that are not sealed: one that is recovered or ends, and the next one.
UNSEALED_MAX = 2
# A leader counts its lease shorter than the master does, by this share: their clocks may run at different speeds.
CLOCK_DRIFT_SHARE = 0.1


class WriterOutput(Struct, frozen=True):
    """What a step asks for: messages to stores, requests to the master, and the outcomes of appends.

    `acked` are positions that are acknowledged, in order. `unknown` are those that were in flight when the leadership
    ended: the next leader may keep them or not.
    """

    messages: list[Message]
    requests: list[ClientRequest]
    acked: list[Position]
    unknown: list[Position]


class LedSegment:
    """A segment that this leader has opened, and what it has reported of it."""

    __slots__ = ("replicator", "reported", "size_bytes")

    def __init__(self, replicator: Replicator) -> None:
        self.replicator = replicator
        self.size_bytes = 0
        self.reported = 0

    def append(self, payload: bytes) -> int:
        self.size_bytes += len(payload)
        return self.replicator.append(payload)

    def report(self) -> list[Position]:
        """The events that were acknowledged since the last call."""
        first, self.reported = self.reported + 1, max(self.reported, self.replicator.acked)
        return self._positions(first, self.reported)

    def unreported(self) -> list[Position]:
        """The events that were not reported as acknowledged."""
        return self._positions(self.reported + 1, self.replicator.last)

    def _positions(self, first: int, last: int) -> list[Position]:
        number, bridge = self.replicator.segment.number, self.replicator.bridge
        return [Position(number, index) for index in range(first, last + 1) if index != bridge]


class Writer:
    """A client for one stream. It leads while `epoch` is not 0."""

    def __init__(self, name: str, stream: str, policy: Policy, limits: Limits, candidacy: int = 0) -> None:
        """`candidacy` is the largest one of earlier processes with this name, or 0 if the name is new."""
        self.name, self.stream = name, stream
        # Grows each time when this client becomes a candidate.
        self.candidacy = candidacy + 1
        self._policy, self._limits = policy, limits
        self._heartbeat_at: int | None = None
        self._messages: list[Message] = []
        self._requests: list[ClientRequest] = []
        self._acked: list[Position] = []
        self._unknown: list[Position] = []
        self._reset()

    def _reset(self) -> None:
        """Forget the leadership."""
        self.epoch = 0
        self._lease_end = 0
        # The segments that are not sealed, in order. The first ones are recovered, the last one may be this leader's.
        self._unsealed: dict[int, SegmentRecord] = {}
        self._next_number = 1
        self._recovery: Recovery | None = None
        # The segments that this leader has opened, by number: at most two. Only the last one takes entries.
        self._led: dict[int, LedSegment] = {}
        # Entries before it are no longer needed, and the master has not confirmed that yet.
        self._start: Position | None = None
        # Sealed segments whose replicas are not complete everywhere.
        self._filling: list[Replicator] = []
        self._asked_at: dict[tuple[type, int], int] = {}

    # --- for the owner

    @property
    def open_segment(self) -> SegmentId | None:
        """The segment that takes entries."""
        return None if (led := self._open()) is None else led.replicator.segment

    def _open(self) -> "LedSegment | None":
        led = next(reversed(self._led.values()), None)
        return led if led is not None and led.replicator.bridge is None else None

    def has_lease(self, now: int) -> bool:
        """Whether no other client can have been elected. Reads that must be current need this; writes do not."""
        return self.epoch != 0 and now < self._lease_end

    def can_append(self, now: int) -> bool:
        return self.has_lease(now) and (led := self._open()) is not None and led.replicator.has_room

    def append(self, payload: bytes, now: int) -> Position | None:
        """Append an event. None if this client can not take it now: it does not lead, recovers, or has no room."""
        led = self._open()
        if led is None or not self.can_append(now):
            return None
        index = led.append(payload)
        if led.size_bytes >= self._limits.segment_bytes or index >= self._limits.segment_entries:
            led.replicator.end()
        led.replicator.flush(now)
        return Position(led.replicator.segment.number, index)

    def roll(self, now: int) -> None:
        """End the open segment and continue in a new one."""
        if (led := self._open()) is not None:
            led.replicator.end()
            led.replicator.flush(now)
            self._advance(now)

    def trim(self, start: Position, now: int) -> bool:
        """Let the master record that the entries before `start` are no longer needed.

        False if this client does not lead, or some of these entries are not acknowledged. A request that is not
        answered ends with the leadership.
        """
        if not self.epoch or not self._is_acknowledged_before(start):
            return False
        self._start = max(start, self._start or start)
        self._advance(now)
        return True

    def _is_acknowledged_before(self, start: Position) -> bool:
        oldest = next(iter(self._unsealed), self._next_number)
        if start.segment_number == oldest and (led := self._led.get(oldest)) is not None:
            return start.entry_index <= led.reported + 1
        return start.segment_number < oldest

    def take_output(self) -> WriterOutput:
        """What the calls since the last one ask for."""
        if self._recovery is not None:
            self._messages += self._recovery.take_messages()
        for replicator in self._replicators():
            self._messages += replicator.take_messages()
        output = WriterOutput(self._messages, self._requests, self._acked, self._unknown)
        self._messages, self._requests, self._acked, self._unknown = [], [], [], []
        return output

    # --- time and messages

    def tick(self, now: int) -> None:
        if self._heartbeat_at is None or now - self._heartbeat_at >= self._limits.heartbeat_ms:
            self._heartbeat_at = now
            self._requests.append(Heartbeat(self.stream, self.name, self.epoch, now, self.candidacy))
        if self.epoch:
            if self._recovery is not None:
                self._recovery.tick(now)
                if self._recovery.lacks_entry(now):
                    self._resign()
                    return
            for replicator in self._replicators():
                replicator.tick(now)
            self._advance(now)

    def step(self, store: str, answer: StoreAnswer, now: int) -> None:
        """Take the answer of a store."""
        if answer.epoch != self.epoch:
            return
        steppers: list[Recovery | Replicator] = [*self._replicators()]
        if self._recovery is not None:
            steppers.append(self._recovery)
        for one in steppers:
            if one.segment == answer.segment:
                one.step(store, answer, now)
                if one.stale_epoch > self.epoch:
                    self._resign()
                    return
        self._advance(now)

    def _replicators(self) -> list[Replicator]:
        return [*(led.replicator for led in self._led.values()), *self._filling]

    def control(self, answer: ClientAnswer, now: int) -> None:
        """Take the answer of the master."""
        match answer:
            case Granted() if answer.epoch > self.epoch and answer.candidacy == self.candidacy:
                self._end_leadership()
                self._lead(answer)
            case Renewed() if answer.epoch == self.epoch:
                self._renew(answer)
                if answer.must_roll:
                    self.roll(now)
            case NotLeader() if self.epoch and answer.epoch > self.epoch:
                self._resign()
            case SegmentChanged() if answer.epoch == self.epoch:
                self._change(answer.record, now)
            case StreamTrimmed() if answer.epoch == self.epoch:
                self._trimmed(Position(answer.number, answer.first))
            case Granted() | Renewed() | NotLeader() | SegmentChanged() | StreamTrimmed() | Unavailable() | Described():
                pass  # of an earlier leadership, or asked again after a while
        if self.epoch:
            self._advance(now)

    def _renew(self, answer: Granted | Renewed) -> None:
        """Extend the lease. It counts from when the heartbeat was sent, not from when the answer arrived."""
        self._lease_end = max(self._lease_end, answer.sent_at + int(answer.ttl_ms * (1 - CLOCK_DRIFT_SHARE)))

    # --- leadership

    def _lead(self, grant: Granted) -> None:
        self.epoch = grant.epoch
        self._renew(grant)
        self._unsealed = {one.number: one for one in grant.segments if one.state is not SegmentState.SEALED}
        self._next_number = max((one.number for one in grant.segments), default=0) + 1

    def _resign(self) -> None:
        """Another leader exists or may exist: nothing more is acknowledged, and nothing is sent."""
        self._end_leadership()
        self.candidacy += 1

    def _end_leadership(self) -> None:
        for led in self._led.values():
            self._unknown += led.unreported()
        self._reset()

    def _advance(self, now: int) -> None:
        """Do the next step of the leadership: recover, open, acknowledge, close."""
        self._recover(now)
        self._open_next(now)
        self._acknowledge(now)
        if self._start is not None:
            self._request(TrimStream(self.stream, self.epoch, *self._start), now)
        # The master orders copies of what a leader can not fill, for example after all replicas were trimmed.
        self._filling = [one for one in self._filling if not one.is_everywhere and not one.lacks_entry(now)]

    def _recover(self, now: int) -> None:
        """Recover the oldest segment that an earlier leader left unsealed."""
        if self._recovery is None:
            record = next((one for one in self._unsealed.values() if one.opened_by_epoch != self.epoch), None)
            if record is not None:
                self._request(BeginRecovery(self.stream, self.epoch, record.number), now)
        elif self._recovery.phase is Phase.REPLICATED:
            replicator = self._recovery.replicator
            assert replicator is not None
            assert replicator.bridge is not None
            number = self._recovery.segment.number
            self._request(CloseSegment(self.stream, self.epoch, number, replicator.bridge), now)

    def _open_next(self, now: int) -> None:
        """Open a segment for new entries, when the path of the policy allows it."""
        unsealed_max = UNSEALED_MAX - 1 if self._policy.path is Path.PARALLEL else 0
        if self._open() is None and len(self._unsealed) <= unsealed_max:
            self._request(OpenSegment(self.stream, self.epoch, self._next_number), now)

    def _acknowledge(self, now: int) -> None:
        """Report acknowledged entries of the oldest unsealed segment, and close it if its bridge is among them.

        Nothing in a later segment is acknowledged: a recovery may still change the end of this one.
        """
        number = next(iter(self._unsealed), 0)
        led = self._led.get(number)
        if led is None:
            return
        led.replicator.release(now)
        self._acked += led.report()
        bridge = led.replicator.bridge
        if bridge is not None and led.replicator.can_close:
            self._request(CloseSegment(self.stream, self.epoch, number, bridge), now)

    def _request(self, request: OpenSegment | BeginRecovery | CloseSegment | TrimStream, now: int) -> None:
        """Send a request to the master, and again after a while."""
        key = (type(request), request.number)
        asked_at = self._asked_at.get(key)
        if asked_at is None or now - asked_at >= self._limits.retry_ms:
            self._asked_at[key] = now
            self._requests.append(request)

    # --- the answers of the master

    def _change(self, record: SegmentRecord, now: int) -> None:
        match record.state:
            case SegmentState.OPEN:
                self._opened(record, now)
            case SegmentState.SEALING:
                self._begin_recovery(record, now)
            case SegmentState.SEALED:
                self._sealed(record, now)

    def _opened(self, record: SegmentRecord, now: int) -> None:
        if record.number != self._next_number or record.opened_by_epoch != self.epoch:
            return
        self._unsealed[record.number] = record
        self._next_number += 1
        segment, policy = SegmentId(self.stream, record.number), self._policy_of(record)
        replicator = Replicator(
            self.name, segment, self.epoch, record.copy_set, policy, self._limits, is_held=len(self._unsealed) > 1
        )
        self._led[record.number] = LedSegment(replicator)
        replicator.tick(now)

    def _begin_recovery(self, record: SegmentRecord, now: int) -> None:
        if self._recovery is None and record.number in self._unsealed:
            segment = SegmentId(self.stream, record.number)
            self._recovery = Recovery(
                self.name, segment, self.epoch, record.copy_set, self._policy_of(record), self._limits
            )
            self._recovery.tick(now)

    def _sealed(self, record: SegmentRecord, now: int) -> None:
        if self._unsealed.pop(record.number, None) is None:
            return
        replicator: Replicator | None = None
        if self._recovery is not None and self._recovery.segment.number == record.number:
            self._messages += self._recovery.take_messages()
            replicator, self._recovery = self._recovery.replicator, None
        elif (led := self._led.pop(record.number, None)) is not None:
            replicator = led.replicator
        if replicator is not None:
            replicator.close(now)
            self._filling.append(replicator)

    def _trimmed(self, start: Position) -> None:
        if self._start is not None and self._start <= start:
            self._start = None
        # Replicas of earlier segments have nothing to serve, and those that could fill others have no payloads.
        self._filling = [one for one in self._filling if one.segment.number >= start.segment_number]

    def _policy_of(self, record: SegmentRecord) -> Policy:
        """The policy with the quorum that the segment was opened with."""
        return replace(self._policy, quorum=Quorum(len(record.copy_set), record.write_quorum))
