"""The leader's side of one segment: sends its log to the copy set and computes the acked index.

It replicates the entries of an open segment and, in a recovery, the content that was decided. A slow or failed replica
delays only itself: the others are sent further entries as long as their windows have room.
"""

from collections import deque
from collections.abc import Sequence

from kwire.cluster.core.entries import Entry, Kind, Range, Run
from kwire.cluster.core.leader.decision import Decision
from kwire.cluster.core.leader.payloads import Payloads
from kwire.cluster.core.leader.progress import Progress
from kwire.cluster.core.messages import (
    Body,
    Close,
    Closed,
    Entries,
    Hop,
    Member,
    Message,
    Read,
    Refused,
    Restarted,
    Seal,
    Sealed,
    SegmentId,
    Stale,
    Store,
    StoreAnswer,
    Stored,
)
from kwire.cluster.core.policies import ENTRY_BYTES, Limits, Policy, Topology
from kwire.cluster.core.runs import EntryRuns


class Replicator:
    """Replicates the log of one segment under one epoch. `messages` collects what to send; the owner takes it.

    `log` has a run for every index from 1 on. Entries up to `base` were acknowledged under earlier leaders. A replica
    may hold them with any stamp; everything else is sent with the stamp of this leader.
    """

    def __init__(
        self,
        leader: str,
        segment: SegmentId,
        epoch: int,
        members: Sequence[Member],
        policy: Policy,
        limits: Limits,
        decision: Decision | None = None,
        *,
        is_held: bool = False,
    ) -> None:
        """While `is_held`, entries are replicated but not acknowledged: an earlier segment is not sealed."""
        self.segment, self.epoch = segment, epoch
        self._leader, self._policy, self._limits = leader, policy, limits
        self._peers = {member.store: Progress(member) for member in members}
        self.log = EntryRuns()
        self.base = self.acked = 0
        self._is_held = is_held
        self.bridge: int | None = None
        # The epoch that a store has accepted, if it is larger than this leader's.
        self.stale_epoch = 0
        self.messages: list[Message] = []
        self._payloads = Payloads(limits.kept_bytes)
        # The index and the size of appended entries that are not acknowledged.
        self._unacked: deque[tuple[int, int]] = deque()
        self._unacked_bytes = 0
        self._closed_end: int | None = None
        # The entries that were asked for, the store that was asked, and when.
        self._reading: tuple[Range, str, int] | None = None
        # Whether an entry was to be read in this tick, and since when none was read although one is needed.
        self._is_lacking = False
        self._lacking_since: int | None = None
        if decision is not None:
            self._adopt(decision)

    def _adopt(self, decision: Decision) -> None:
        self.base = self.acked = min(decision.base, decision.end)
        self.bridge = decision.end
        for run in decision.runs:
            self.log.put(run)
        self.log.put(Run(decision.end, decision.end, Kind.BRIDGE, decision.bridge_birth_epoch, self.epoch))
        for run in list(self.log.between(self.base + 1, decision.end)):
            self.log.put(run._replace(stamp_epoch=self.epoch))

    # --- appending

    @property
    def last(self) -> int:
        """The largest index of the log."""
        return self.log.last

    @property
    def has_room(self) -> bool:
        return self._unacked_bytes < self._limits.unacked_bytes

    def append(self, payload: bytes) -> int:
        """Add an event and return its index. The owner has checked `has_room` and calls `flush` after some appends."""
        assert self.bridge is None, "the segment has ended"
        index = self._put(Kind.EVENT)
        self._payloads.add(index, payload)
        self._unacked.append((index, len(payload) + ENTRY_BYTES))
        self._unacked_bytes += len(payload) + ENTRY_BYTES
        return index

    def end(self) -> None:
        """Add the bridge: no entry follows."""
        assert self.bridge is None, "the segment has ended"
        self.bridge = self._put(Kind.BRIDGE)

    def _put(self, kind: Kind) -> int:
        index = self.log.last + 1
        self.log.put(Run(index, index, kind, self.epoch, self.epoch))
        return index

    # --- time and messages

    def tick(self, now: int) -> None:
        """Repeat what was not answered, and spread the acked index while nothing else is sent."""
        for peer in self._peers.values():
            silence = now - peer.sent_at
            if peer.incarnation is None:
                if silence >= self._limits.retry_ms:
                    self._seal(peer, now)
            elif peer.matched < self.last:
                if silence >= self._limits.retry_ms:
                    peer.rewind()
            elif peer.confirmed < self.last:
                # The replica has everything, but does not know that it equals this leader's log.
                if silence >= self._limits.retry_ms:
                    self._send(peer, now)
            elif self._closed_end is not None and not peer.is_closed:
                if silence >= self._limits.retry_ms:
                    self._close(peer, now)
            elif not peer.is_closed and silence >= self._idle_ms(peer):
                self._send(peer, now)
        if self._reading is not None and now - self._reading[2] >= self._limits.retry_ms:
            self._reading = None
        self._is_lacking = False
        self.flush(now)
        if not self._is_lacking:
            self._lacking_since = None
        elif self._lacking_since is None:
            self._lacking_since = now

    def _idle_ms(self, peer: Progress) -> int:
        """A replica that knows everything still gets messages: the leader notices that its store has started again."""
        return self._limits.idle_ms if peer.acked_sent < self.acked else self._limits.heartbeat_ms

    def step(self, store: str, answer: StoreAnswer, now: int) -> None:
        """Take the answer of a store of the copy set."""
        peer = self._peers.get(store)
        if peer is None or answer.epoch != self.epoch:
            return
        match answer:
            case Stale():
                self.stale_epoch = max(self.stale_epoch, answer.sealed_epoch)
            case Sealed():
                self.add(store, answer, now)
            case Restarted():
                if peer.incarnation != answer.incarnation:
                    peer.forget()
                    self._seal(peer, now)
            case Stored() if answer.incarnation == peer.incarnation:
                self._stored(peer, answer)
            case Entries() if answer.incarnation == peer.incarnation:
                self._take(answer)
            case Closed() if answer.incarnation == peer.incarnation:
                peer.is_closed = True
            case Stored() | Entries() | Closed() | Refused():
                pass  # of an earlier incarnation, or from a store that can not help; tick asks again
        self.flush(now)

    def add(self, store: str, answer: Sealed, now: int) -> None:
        """The replica has been sealed: replicate to it."""
        peer = self._peers[store]
        if peer.incarnation is not None and answer.incarnation <= peer.incarnation:
            return  # a repeated or a delayed answer: the replica holds more by now, or has started again
        peer.seal(answer, self._common_prefix(answer))
        self._send(peer, now)

    def _stored(self, peer: Progress, answer: Stored) -> None:
        peer.stored(answer.matched)
        if answer.has_gap and peer.rewound_to != peer.matched + 1 and peer.next_index > peer.matched + 1:
            peer.rewind()
        self._raise_acked()
        # Replicas that are sealed later get older entries from another replica.
        needed = min(one.matched for one in self._peers.values() if one.incarnation is not None)
        self._payloads.trim(self.acked, needed)

    def _raise_acked(self) -> None:
        if self._is_held:
            return
        # One number for each replica, however often it has answered.
        matched = sorted((one.matched for one in self._peers.values()), reverse=True)
        self.acked = max(self.acked, matched[self._policy.quorum.writes - 1])
        while self._unacked and self._unacked[0][0] <= self.acked:
            self._unacked_bytes -= self._unacked.popleft()[1]

    def release(self, now: int) -> None:
        """All earlier segments are sealed: acknowledge entries from now on."""
        if self._is_held:
            self._is_held = False
            self._raise_acked()
            self.flush(now)

    # --- sending

    def take_messages(self) -> list[Message]:
        messages, self.messages = self.messages, []
        return messages

    def flush(self, now: int) -> None:
        """Send what fits in the windows of the replicas."""
        if self._policy.topology is Topology.CHAIN:
            self._flush_chain(now)
        for peer in self._peers.values():
            while self._may_send(peer):
                if not self._send_batch(peer, now):
                    break

    def _may_send(self, peer: Progress) -> bool:
        return (
            peer.incarnation is not None
            and peer.next_index <= self.last
            and peer.unanswered_bytes < self._limits.window_bytes
        )

    def _send_batch(self, peer: Progress, now: int, forward: tuple[Hop, ...] = ()) -> bool:
        """Send one batch. False if a payload must be read from another replica first."""
        entries: list[Entry] = []
        restamped: list[Run] = []
        index, size = peer.next_index, 0
        while index <= self.last and size < self._limits.batch_bytes:
            run = next(self.log.between(index, self.last))
            held = peer.holds(run)
            if held is not None:
                if held.stamp_epoch != self.epoch:
                    restamped.append(held._replace(stamp_epoch=self.epoch))
                index, size = held.last + 1, size + ENTRY_BYTES
                continue
            payload = self._payloads.get(index) if run.kind is Kind.EVENT else b""
            if payload is None:
                if index == peer.next_index:
                    self._read(index, now)
                    return False
                break
            entries.append(Entry(index, run.kind, run.birth_epoch, self.epoch, payload))
            index, size = index + 1, size + ENTRY_BYTES + len(payload)
        self._send(peer, now, tuple(entries), tuple(restamped), forward)
        peer.sent(index - 1, size, now)
        return True

    def _send(
        self,
        peer: Progress,
        now: int,
        entries: tuple[Entry, ...] = (),
        restamped: tuple[Run, ...] = (),
        forward: tuple[Hop, ...] = (),
    ) -> None:
        assert peer.incarnation is not None
        body = Store(
            self.segment, self.epoch, peer.incarnation, peer.asserted, self.acked, self.last, entries, restamped,
            forward, self._leader,
        )  # fmt: skip
        self._post(peer, body, now)
        peer.acked_sent = self.acked

    def _flush_chain(self, now: int) -> None:
        """Send batches to the first replica only, which sends them on, as long as all replicas need the same entries.

        A replica that lags, or was sealed with entries already, is sent its entries directly until it has caught up.
        """
        peers = list(self._peers.values())
        while all(
            self._may_send(peer) and peer.next_index == peers[0].next_index and peer.held.last < peer.next_index
            for peer in peers
        ):
            first = peers[0].next_index
            hops = tuple(
                Hop(peer.member.store, peer.incarnation, peer.asserted)
                for peer in peers[1:]
                if peer.incarnation is not None
            )
            if not self._send_batch(peers[0], now, hops):
                return
            last, size = peers[0].unanswered[-1]
            assert last >= first
            for peer in peers[1:]:
                peer.sent(last, size, now)
                peer.acked_sent = self.acked

    def _seal(self, peer: Progress, now: int) -> None:
        self._post(peer, Seal(self.segment, self.epoch, peer.member.cookie), now)

    def _post(self, peer: Progress, body: Body, now: int) -> None:
        peer.sent_at = now
        self.messages.append(Message(self._leader, peer.member.store, body))

    # --- payloads that this leader does not have

    def _read(self, index: int, now: int) -> None:
        """Ask a replica that holds the entry. One request at a time; `tick` gives up on one without an answer."""
        self._is_lacking = True
        if self._reading is not None:
            return
        run = next(self.log.between(index, self.last))
        holders = [
            peer
            for peer in self._peers.values()
            if peer.incarnation is not None and (peer.matched >= index or peer.holds(run) is not None)
        ]
        if holders:
            # Another one each time, so that a dead replica does not hold up the recovery.
            peer = holders[now // self._limits.retry_ms % len(holders)]
            assert peer.incarnation is not None
            self._reading = (Range(index, run.last), peer.member.store, now)
            body = Read(self.segment, self.epoch, peer.incarnation, index, run.last)
            self.messages.append(Message(self._leader, peer.member.store, body))

    def _take(self, answer: Entries) -> None:
        """Keep payloads whose entries have the identity that was decided: a replica may hold something else by now."""
        # Without the entry, because it was lost or trimmed there, tick asks another replica.
        has_first = bool(answer.entries) and answer.entries[0].index == answer.first
        if has_first and self._reading is not None and self._reading[0].first == answer.first:
            self._reading = None
        for entry in answer.entries:
            run = self.log.at(entry.index)
            if run is not None and run.identity() == (entry.kind, entry.birth_epoch):
                self._payloads.add(entry.index, entry.payload)
                self._lacking_since = None

    def _common_prefix(self, answer: Sealed) -> int:
        """The largest index up to which the replica holds the acknowledged part of the log."""
        held = EntryRuns(answer.runs)
        index = 1
        while index <= self.base:
            run, present = self.log.at(index), held.at(index)
            if run is None or present is None or run.identity() != present.identity():
                break
            index = min(run.last, present.last, self.base) + 1
        return index - 1

    def lacks_entry(self, now: int) -> bool:
        """Whether a decided entry could not be read for `lacking_ms`: the replicas that hold it are lost or silent.

        If it was not acknowledged, another recovery may decide without it. That one needs another epoch, because some
        replicas hold what follows with the stamp of this one.
        """
        return self._lacking_since is not None and now - self._lacking_since >= self._limits.lacking_ms

    # --- closing

    @property
    def can_close(self) -> bool:
        """Whether the bridge is acknowledged, and W replicas know that they are complete.

        Should this leader stop after the master has recorded the end, these replicas can finish without it.
        """
        if self.bridge is None or self.acked < self.bridge:
            return False
        return sum(peer.confirmed >= self.bridge for peer in self._peers.values()) >= self._policy.quorum.writes

    def close(self, now: int) -> None:
        """The master has recorded the segment as sealed: tell every replica that has all entries, and go on filling."""
        self._closed_end = self.bridge
        for peer in self._peers.values():
            if peer.incarnation is not None and peer.matched >= self.last:
                self._close(peer, now)

    def _close(self, peer: Progress, now: int) -> None:
        assert peer.incarnation is not None
        assert self._closed_end is not None
        self._post(peer, Close(self.segment, self.epoch, peer.incarnation, self._closed_end), now)

    @property
    def is_everywhere(self) -> bool:
        """Whether all replicas are complete and closed."""
        return all(peer.is_closed for peer in self._peers.values())
