"""Copying a sealed segment to a store: to replace a failed replica, to fill a learner, or to verify a replica.

Entries are pulled from a complete replica. Then the store reads its own copy from the disk and compares the digests.
The digest covers the index, kind, birth epoch and payload of every entry, but not the stamps: complete replicas may
have different stamps for entries that were acknowledged before a recovery.

Entries that were trimmed have no payload and are not in the digest: it begins at the largest of the starts that the
request, the source and the copy have.
"""

from collections.abc import Callable

from crc32c import crc32c
from msgspec.structs import replace

from kwire.cluster.core.entries import Entry, Kind, Run, joined, run_of
from kwire.cluster.core.messages import Copied, Copy, Incarnation, Message, Pull, Pulled
from kwire.cluster.core.policies import Limits
from kwire.cluster.core.store.replica import Replica
from kwire.cluster.core.writes import PutEntries, RemoveAfter, Write


def content_digest(entries: tuple[Entry, ...], digest: int = 0) -> int:
    """The digest of entries that follow those of `digest`."""
    for entry in entries:
        head = f"{entry.index},{entry.kind},{entry.birth_epoch},{len(entry.payload)};".encode()
        digest = crc32c(entry.payload, crc32c(head, digest))
    return digest


class SegmentCopy:
    """The copying of one segment to this store. It pulls one page at a time; after a time-out from the next source."""

    def __init__(
        self,
        name: str,
        incarnation: Incarnation,
        master: str,
        request: Copy,
        replica: Replica,
        writes: list[Write],
        limits: Limits,
        is_ready: Callable[[], bool],
    ) -> None:
        """`is_ready`: whether the store may take entries of the segment now. Otherwise it tries again later."""
        self._name, self._incarnation, self._master = name, incarnation, master
        self._request, self._replica, self._writes, self._limits = request, replica, writes, limits
        self._is_ready = is_ready
        self.removals = request.removals
        # A closed replica is verified only.
        self._was_closed = replica.closed_end == request.end
        self._source = 0
        self._asked_at = 0
        self._next = 1
        # The first entry of the digest.
        self._start = max(request.start, replica.first)
        self._digest = 0
        # The digest of what was pulled from another store, while this store's own copy is verified.
        self._pulled_digest: int | None = None

    @property
    def is_own_copy(self) -> bool:
        return self._pulled_digest is not None or self._was_closed

    def start(self, request: Copy, now: int) -> list[Message]:
        """Begin, or repeat the report if the copy is complete: the master has sent the request again.

        A copy that was trimmed since is verified again: the master compares digests from the new start on.
        """
        self.removals = max(self.removals, request.removals)
        start = max(request.start, self._replica.first)
        if self._is_finished() and start <= self._start:
            return [self._report()]
        self._request = replace(request, start=max(request.start, self._request.start))
        if self._replica.closed_end == request.end and (start > self._start or not self.is_own_copy):
            # The leader may have filled and closed the replica in the meantime.
            self._was_closed, self._pulled_digest = True, None
            self._digest, self._next, self._start = 0, 1, start
        return self._pull(now)

    def tick(self, now: int) -> list[Message]:
        if self._is_finished() or now - self._asked_at < self._limits.retry_ms:
            return []
        self._source += 1
        return self._pull(now)

    def step(self, source: str, answer: Pulled, now: int) -> list[Message]:
        """Take one page. Pages that are not the next one, or of a shorter segment, are dropped."""
        if self._is_finished() or answer.first != self._next or answer.end != self._request.end:
            return []
        first = max(self._next, answer.start)
        if source != self._target() or [entry.index for entry in answer.entries] != list(
            range(first, first + len(answer.entries))
        ):
            return []
        if answer.start > self._start:
            if self._digest:
                return self._begin_again(now)  # trimmed since the copy began
            self._start = answer.start
        if not self.is_own_copy:
            self._adopt(answer)
            self._write(tuple(one for one in answer.entries if one.index >= self._replica.first))
        self._digest = content_digest(tuple(one for one in answer.entries if one.index >= self._start), self._digest)
        self._next = first + len(answer.entries)
        if self._next <= self._request.end:
            return self._pull(now)
        return self._end_of_pass(now)

    def _is_finished(self) -> bool:
        return self.is_own_copy and self._next > self._request.end

    def _target(self) -> str | None:
        """The store to pull from. None if the master knows of none yet: it sends the request again."""
        if self.is_own_copy:
            return self._name
        sources = self._request.sources
        return sources[self._source % len(sources)] if sources else None

    def _pull(self, now: int) -> list[Message]:
        self._asked_at = now
        target = self._target()
        if target is None or not (self.is_own_copy or self._is_ready()):
            return []
        return [Message(self._name, target, Pull(self._request.segment, self._next))]

    def _end_of_pass(self, now: int) -> list[Message]:
        if self._pulled_digest is None and not self.is_own_copy:
            self._close()
            self._pulled_digest, self._digest, self._next = self._digest, 0, 1
            return self._pull(now)
        if self._pulled_digest is not None and self._digest != self._pulled_digest:
            # The disk returned something else than was written, or the sources differ.
            return self._begin_again(now)
        return [self._report()]

    def _begin_again(self, now: int) -> list[Message]:
        self._pulled_digest, self._digest, self._next = None, 0, 1
        self._start = max(self._request.start, self._replica.first)
        self._source += 1
        return self._pull(now)

    def _report(self) -> Message:
        body = Copied(
            self._request.segment, self._request.end, self._incarnation, self._digest, self._start, self.removals
        )
        return Message(self._name, self._master, body)

    def _adopt(self, answer: Pulled) -> None:
        """Take over what the trimmed entries were. A damaged replica may have lost it, although it was trimmed too."""
        replica = self._replica
        first = max(replica.first, answer.start)
        early = (run_of(entry) for entry in answer.entries if entry.index < first)
        lost = tuple(run for run in joined([*answer.trimmed, *early]) if not self._has(run))
        if first > replica.first or lost:
            replica.adopt_trimmed(first, lost)

    def _has(self, run: Run) -> bool:
        found = list(self._replica.runs.between(run.first, run.last))
        count = sum(one.last - one.first + 1 for one in found)
        return count == run.last - run.first + 1 and all(one.identity() == run.identity() for one in found)

    def _write(self, entries: tuple[Entry, ...]) -> None:
        """Store the entries that are missing or differ. The content of a sealed segment is final, with any stamps."""
        replica = self._replica
        new = tuple(
            entry
            for entry in entries
            if (present := replica.runs.at(entry.index)) is None or present.identity() != run_of(entry).identity()
        )
        if new:
            self._writes.append(PutEntries(replica.segment, new))
        for entry in new:
            replica.runs.put(run_of(entry))

    def _close(self) -> None:
        replica, end = self._replica, self._request.end
        bridge = replica.runs.at(end)
        assert bridge is not None
        assert bridge.kind is Kind.BRIDGE
        if replica.runs.last > end:
            replica.runs.remove_after(end)
            self._writes.append(RemoveAfter(replica.segment, end))
        replica.set_closed(end)
        replica.trim(self._request.start)
