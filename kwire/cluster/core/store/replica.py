"""One replica of a segment in a segment store: fencing, entries, matched index, and what it may serve."""

from typing import Final

from kwire.cluster.core.entries import INDEX_MAX, Entry, Kind, Range, Run, joined_ranges, run_of, without
from kwire.cluster.core.messages import Close, Closed, Incarnation, Seal, Sealed, SegmentId, Store, Stored
from kwire.cluster.core.runs import EntryRuns
from kwire.cluster.core.writes import (
    PutEntries,
    RemoveAfter,
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

# The unknown range of a replica that can not answer for anything.
EVERYTHING: Final = Range(1, INDEX_MAX)


class ProtocolViolation(Exception):
    """A leader has sent something that no correct leader sends. The replica stops, so that it spreads no damage."""


class Replica:
    """A replica of one segment. Its methods append to `writes` what must be durable before the answer leaves.

    `matched`: the replica equals the log of the leader of `sealed_epoch` up to this index. `limit`: the largest index
    that a reader may have. It is the largest `min(acked, matched)` so far: a slot that was acknowledged and matched
    once keeps its content under all later leaders.
    """

    __slots__ = (
        "acked",
        "closed_end",
        "complete_epoch",
        "first",
        "limit",
        "matched",
        "runs",
        "sealed_epoch",
        "segment",
        "unknown",
        "writes",
    )

    def __init__(self, segment: SegmentId, state: ReplicaState, writes: list[Write]) -> None:
        self.segment = segment
        self.sealed_epoch = state.sealed_epoch
        self.acked = state.acked
        self.closed_end = state.closed_end
        self.complete_epoch = state.complete_epoch
        # Entries before this one were trimmed: the replica knows what they were, but has no payloads.
        self.first = state.first
        self.runs = EntryRuns(state.runs)
        self.unknown = joined_ranges(state.unknown)
        self.matched = self.limit = state.closed_end
        self.writes = writes

    def fence(self, epoch: int) -> None:
        """Refuse smaller epochs from now on. What this leader's log is, the replica does not know yet."""
        if epoch > self.sealed_epoch:
            self.sealed_epoch = epoch
            self.matched = self.closed_end
            self.writes.append(SetSealedEpoch(self.segment, epoch))

    def seal(self, request: Seal, incarnation: Incarnation) -> Sealed:
        return Sealed(self.segment, request.epoch, incarnation, self.acked, tuple(self.runs), tuple(self.unknown))

    def store(self, request: Store, pending_entries: int | None) -> Stored:
        """Store entries of the leader of `sealed_epoch`, and advance the matched and the acked index.

        Entries more than `pending_entries` after the matched index are dropped; with None, all entries after a gap.
        """
        if request.matched > self.matched:
            self.matched = request.matched
            self.make_known(Range(1, request.matched))
        if pending_entries is None:
            index_max = _last_without_gap(self.matched, request.entries)
        else:
            index_max = self.matched + pending_entries
        highest = self._put(request.entries, index_max)
        highest = max(highest, self._restamp(request.restamped))
        self._advance_matched()
        if request.acked > self.acked:
            self.acked = request.acked
            self.writes.append(SetAcked(self.segment, request.acked))
        if self.matched >= request.last:
            # The leader has sealed this incarnation, so its log has everything that the replica ever confirmed to it.
            self.make_known(Range(request.last + 1, INDEX_MAX))
        self._raise_limit()
        return Stored(
            self.segment,
            request.epoch,
            request.incarnation,
            self.matched,
            self.acked,
            has_gap=highest > self.matched,
        )

    def close(self, request: Close) -> Closed | Stored:
        """Make the replica immutable. It answers with Stored if entries up to the bridge are missing."""
        if self.matched < request.end and not self.closed_end:
            return Stored(self.segment, request.epoch, request.incarnation, self.matched, self.acked, has_gap=True)
        if not self.closed_end:
            self._check_end(request.end)
            self.set_closed(request.end)
        return Closed(self.segment, request.epoch, request.incarnation, self.closed_end)

    def finish(self, end: int, end_epoch: int) -> None:
        """The segment was closed by the leader of `end_epoch`: so is this replica, if it was complete under it."""
        if not self.closed_end and self.complete_epoch == end_epoch:
            self._check_end(end)
            self.set_closed(end)

    def trim(self, first: int) -> None:
        """Become a trimmed replica: drop the payloads before `first`. Readers no longer need them; the bridge stays."""
        if self.closed_end and (first := min(first, self.closed_end)) > self.first:
            self.first = first
            self.writes.append(Trim(self.segment, first))

    def adopt_trimmed(self, first: int, runs: tuple[Run, ...]) -> None:
        """Take over the entries before `first` from a replica that has no payloads for them."""
        for run in runs:
            self.runs.put(run)
        self.first = max(self.first, first)
        self.writes.append(Trim(self.segment, self.first, runs))

    def set_closed(self, end: int) -> None:
        self.closed_end = self.acked = self.matched = self.limit = end
        self.make_known(EVERYTHING)
        self.writes.append(SetClosed(self.segment, end))

    # --- entries

    def _put(self, entries: tuple[Entry, ...], index_max: int) -> int:
        """Store what is new. Returns the largest index that was sent, dropped or not."""
        highest = 0
        stored = []
        for entry in entries:
            highest = max(highest, entry.index)
            if entry.index <= index_max and self._is_new(run_of(entry)):
                stored.append(entry)
        if stored:
            self.writes.append(PutEntries(self.segment, tuple(stored)))
            for entry in stored:
                self.runs.put(run_of(entry))
                self.make_known(Range(entry.index, entry.index))
        for entry in stored:
            if entry.kind is Kind.BRIDGE:
                self._end(entry.index)
        return highest

    def _is_new(self, run: Run) -> bool:
        """Whether the first entry of the run replaces what is at its index."""
        if run.stamp_epoch != self.sealed_epoch:
            raise ProtocolViolation(f"{self.segment}: {run} has not the stamp of the leader, {self.sealed_epoch}")
        present = self.runs.at(run.first)
        if self.closed_end:
            # The leader goes on filling a replica that was copied from another one in the meantime.
            if present is None or present.identity() != run.identity():
                raise ProtocolViolation(f"{self.segment}: the leader sent {run} to a closed replica with {present}")
            return False
        if present is None or present.stamp_epoch < run.stamp_epoch:
            return True
        if present.identity() != run.identity():
            raise ProtocolViolation(f"{self.segment}: the leader sent {run} after {present}")
        return False

    def _restamp(self, runs: tuple[Run, ...]) -> int:
        """Give entries whose content is here the stamp of the leader. Returns the largest index that was sent."""
        highest = 0
        stamped: list[Run] = []
        for run in runs:
            highest = max(highest, run.last)
            for present in list(self.runs.between(run.first, run.last)):
                new = present._replace(stamp_epoch=run.stamp_epoch)
                if present.identity() == run.identity() and self._is_new(new):
                    stamped.append(new)
        if stamped:
            self.writes.append(SetStamps(self.segment, tuple(stamped)))
        for run in stamped:
            self.runs.put(run)
            self.make_known(Range(run.first, run.last))
            if run.kind is Kind.BRIDGE:
                self._end(run.first)
        return highest

    def _end(self, bridge: int) -> None:
        """The segment ends with the bridge: entries after it are left over from earlier leaders."""
        if self.runs.last > bridge:
            self.runs.remove_after(bridge)
            self.writes.append(RemoveAfter(self.segment, bridge))
        self.make_known(Range(bridge + 1, INDEX_MAX))

    def _check_end(self, end: int) -> None:
        if not self._is_ended_at(end) or self.runs.last != end:
            raise ProtocolViolation(f"{self.segment}: the master closed it at {end}, where {self.runs.at(end)} is")

    # --- indexes

    def _advance_matched(self) -> None:
        while (run := self.runs.at(self.matched + 1)) is not None and run.stamp_epoch == self.sealed_epoch:
            self.matched = run.last
        if self.complete_epoch != self.sealed_epoch and not self.closed_end and self._is_ended_at(self.matched):
            # After a restart the replica knows that it lacks nothing, should this leader have closed the segment. The
            # bridge may have an older stamp, if it was acknowledged before.
            self.complete_epoch = self.sealed_epoch
            self.writes.append(SetComplete(self.segment, self.sealed_epoch))

    def _is_ended_at(self, index: int) -> bool:
        run = self.runs.at(index)
        return run is not None and run.kind is Kind.BRIDGE

    def _raise_limit(self) -> None:
        self.limit = max(self.limit, min(self.acked, self.matched))

    def make_known(self, known: Range) -> None:
        if self.unknown and (left := without(self.unknown, known)) != self.unknown:
            self.unknown = left
            self.writes.append(SetUnknown(self.segment, tuple(left)))


def _last_without_gap(matched: int, entries: tuple[Entry, ...]) -> int:
    for entry in entries:
        if entry.index == matched + 1:
            matched += 1
    return matched
