"""What an observer of the whole simulation knows, and the checks that run when something happens.

Nodes report to the ledger. The ledger keeps the truth (what was acknowledged, what each store made durable, what
readers got) and calls the rules of `rules`, one function for each invariant.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kwire.cluster.core.control import Granted, SegmentRecord, SegmentState
from kwire.cluster.core.entries import FIRST_POSITION, Entry, Kind, Position, Range
from kwire.cluster.core.leader.replicator import Replicator
from kwire.cluster.core.messages import Fetched, Incarnation, Message, Sealed, SegmentId, Store, Stored
from kwire.cluster.core.policies import Policy
from kwire.cluster.core.reader.reader import Delivery, Trimmed
from kwire.cluster.core.writes import (
    PutEntries,
    RemoveReplica,
    ReplicaState,
    SetClosed,
    SetSealedEpoch,
    SetStamps,
    SetUnknown,
    Trim,
    Write,
)
from tests.cluster.simulator.rules import leader_rules, metadata_rules, reader_rules, store_rules
from tests.cluster.simulator.rules.partition_rules import PartitionRules
from tests.cluster.simulator.stream_kinds import is_partition

if TYPE_CHECKING:
    from tests.cluster.simulator.client_node import ClientNode, ReaderNode
    from tests.cluster.simulator.store_node import StoreNode


class Identity(NamedTuple):
    """What identifies the content of a slot."""

    segment: SegmentId
    slot: int
    kind: Kind
    birth_epoch: int


class Acknowledged(NamedTuple):
    """An event that a producer was told about, and the stores that held it then."""

    birth_epoch: int
    payload: bytes
    holders: frozenset[str]


class Ledger:
    """The truth about one run. A rule that does not hold raises Violation."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.records: dict[SegmentId, SegmentRecord] = {}
        self.epochs: dict[str, int] = {}
        # Where each stream starts: everything before it is trimmed.
        self.starts: dict[str, Position] = {}
        # The client of each epoch, by stream.
        self.leaders: dict[tuple[str, int], str] = {}
        self.pending: dict[tuple[str, SegmentId, int], bytes] = {}
        self.acknowledged: dict[SegmentId, dict[int, Acknowledged]] = {}
        # The largest acked index that a leader has sent, by segment, and by leader.
        self.acked_index: dict[SegmentId, int] = {}
        self.acked_by_leader: dict[tuple[str, SegmentId, int], int] = {}
        self.payloads: dict[Identity, int] = {}
        # The stores that have made this content durable at some time.
        self.holders: dict[Identity, set[str]] = {}
        # The answers to seals that each recovery has heard before it decided, by segment and epoch.
        self.heard: dict[tuple[SegmentId, int], dict[str, Sealed]] = {}
        self.ends_decided: dict[tuple[SegmentId, int], int] = {}
        # The durable sealed epoch, by disk and segment.
        self.fences: dict[tuple[int, SegmentId], int] = {}
        # The content of each slot of a segment that a leader could seal.
        self.ended_contents: dict[SegmentId, list[tuple[Kind, int]]] = {}
        # The content of each slot of a sealed segment.
        self.contents: dict[SegmentId, list[tuple[Kind, int]]] = {}
        self.delivered_slots: dict[tuple[SegmentId, int], tuple[Kind, int, int]] = {}
        self.delivered_events: dict[str, list[tuple[int, bytes]]] = {}
        # The gaps that each reader has reported, and the offset that it delivers next.
        self.gaps: dict[str, list[Trimmed]] = {}
        self.next_offsets: dict[str, int] = {}
        # What each reader of a partition has got.
        self.partition_rules: dict[str, PartitionRules] = {}
        self.serving_limits: dict[tuple[str, Incarnation, SegmentId], int] = {}
        self.ack_count: dict[str, int] = {}
        self.recovery_count = 0
        self._decided_slots: set[tuple[SegmentId, int, int]] = set()
        self._slots: dict[tuple[SegmentId, int], dict[Identity, set[str]]] = {}
        self._clients: dict[tuple[str, int], ClientNode] = {}

    def holders_at(self, segment: SegmentId, index: int) -> list[tuple[Identity, set[str]]]:
        """The contents of a slot that any store has held, with these stores."""
        return [(one, stores) for one, stores in self._slots.get((segment, index), {}).items()]

    def leader_log(self, segment: SegmentId, epoch: int) -> Replicator | None:
        """The log of the leader of this epoch, if it still leads."""
        client = self._clients.get((segment.stream, epoch))
        return None if client is None else client.replicator_of(segment, epoch)

    # --- the master

    def granted_by_master(self, client: str, granted: Granted) -> None:
        metadata_rules.check_i4_epochs(self, client, granted)
        self.leaders[granted.stream, granted.epoch] = client
        self.epochs[granted.stream] = max(self.epochs.get(granted.stream, 0), granted.epoch)

    def record_changed(self, stream: str, record: SegmentRecord) -> None:
        segment = SegmentId(stream, record.number)
        before = self.records.get(segment)
        if before == record:
            return
        self.records[segment] = record
        metadata_rules.check_i17_two_unsealed(self, stream)
        metadata_rules.check_i22_offsets(self, segment)
        if before is not None:
            metadata_rules.check_i18_sealed_record(before, record, segment)
            metadata_rules.check_copy_set_of_open_segment(before, record, segment)
        if record.state is SegmentState.SEALED and (before is None or before.state is not SegmentState.SEALED):
            metadata_rules.check_i1_end(self, segment)
            metadata_rules.check_i19_copies_at_sealing(self, segment)

    def alarmed(self, alarm: str) -> None:
        """The master alarms an operator about what must not occur: all copies from the start on are equal."""
        metadata_rules.check_i18_no_alarm(alarm)

    def start_moved(self, stream: str, start: Position) -> None:
        before = self.starts.get(stream, FIRST_POSITION)
        if start != before:
            metadata_rules.check_i24_start(self, stream, before, start)
            self.starts[stream] = start

    def start_of(self, segment: SegmentId) -> int:
        """The first entry of a segment that stores have to keep. A bridge always stays."""
        number, index = self.starts.get(segment.stream, FIRST_POSITION)
        if segment.number < number:
            return self.records[segment].end_index or 1
        return index if segment.number == number else 1

    # --- leaders

    def granted(self, client: ClientNode, granted: Granted) -> None:
        metadata_rules.check_i4_leader(self, client.name, granted)
        self._clients[granted.stream, granted.epoch] = client

    def client_stopped(self, client: ClientNode) -> None:
        """Its appends that were not acknowledged have an unknown outcome."""
        for key in [key for key in self.pending if key[0] == client.name]:
            del self.pending[key]

    def appended(self, client: ClientNode, segment: SegmentId, position: Position, payload: bytes) -> None:
        self.pending[client.name, segment, position.entry_index] = payload

    def recovery_hears(self, store: str, answer: Sealed) -> None:
        self.heard.setdefault((answer.segment, answer.epoch), {})[store] = answer

    def segment_ends(self, client: ClientNode, segment: SegmentId) -> None:
        """A leader has W copies of all entries and the bridge, and asks the master to seal the segment."""
        log = client.replicator_of(segment, client.writer.epoch)
        assert log is not None
        found = [(run.kind, run.birth_epoch) for run in log.log for _ in range(run.first, run.last + 1)]
        known = self.ended_contents.setdefault(segment, found)
        leader_rules.check_i2_agreement(client.name, segment, known, found)

    def acked(self, client: ClientNode, segment: SegmentId, position: Position) -> None:
        index = position.entry_index
        payload = self.pending.pop((client.name, segment, index))
        birth_epoch = self.records[segment].opened_by_epoch
        holders = self.holders.get(Identity(segment, index, Kind.EVENT, birth_epoch), set())
        slots = self.acknowledged.setdefault(segment, {})
        leader_rules.check_i3_one_ack(slots, segment, index, payload)
        leader_rules.check_i11_holders(self, segment, index, holders)
        leader_rules.check_i17_order(self, segment)
        leader_rules.check_ack_before_end(self, segment, index)
        slots[index] = Acknowledged(birth_epoch, payload, frozenset(holders))
        leader_rules.check_i9_later_seals(self, segment, slots[index], birth_epoch)
        self.ack_count[segment.stream] = self.ack_count.get(segment.stream, 0) + 1

    def leader_sends(self, client: ClientNode, message: Message) -> None:
        body = message.body
        if isinstance(body, Store):
            key = (client.name, body.segment, body.epoch)
            leader_rules.check_i10_acked(self.acked_by_leader.get(key, 0), body)
            self.acked_by_leader[key] = body.acked
            self.acked_index[body.segment] = max(self.acked_index.get(body.segment, 0), body.acked)
            self._decided(body)

    def _decided(self, body: Store) -> None:
        """A recovery that sends entries has decided: check what it has heard before.

        After the segment is sealed the leader only fills replicas, and other stores may have joined the copy set.
        """
        record = self.records[body.segment]
        if body.epoch == record.opened_by_epoch or not (body.entries or body.restamped):
            return
        if record.state is SegmentState.SEALED:
            return
        if (body.segment, body.epoch) not in self.ends_decided:
            self.recovery_count += 1
            self.ends_decided[body.segment, body.epoch] = 0
            leader_rules.check_i9_seals(self, body.segment, body.epoch, record)
        for entry in body.entries:
            slot = (body.segment, body.epoch, entry.index)
            # A repeated message is no new decision, whatever the stores have lost since.
            if entry.kind is not Kind.EVENT and entry.birth_epoch == body.epoch and slot not in self._decided_slots:
                self._decided_slots.add(slot)
                leader_rules.check_i20_definite(self, body.segment, body.epoch, entry, record)

    # --- stores

    def store_started(
        self, store: StoreNode, states: Mapping[SegmentId, ReplicaState], incarnation: Incarnation
    ) -> None:
        for segment, state in states.items():
            # A crash may come after a step became durable and before its answer was sent.
            for run in state.runs:
                for index in range(run.first, run.last + 1):
                    self._hold(store, Identity(segment, index, run.kind, run.birth_epoch))
            if state.closed_end:
                self._closed(store, segment, state.closed_end)
            store_rules.check_i1_trim(self, store.name, segment, state.first)
        for (cookie, segment), epoch in self.fences.items():
            if cookie == incarnation.cookie:
                found = states[segment].sealed_epoch if segment in states else 0
                store_rules.check_i5_fence(store.name, segment, epoch, found)

    def before_writes(self, store: StoreNode, writes: Iterable[Write]) -> None:
        """Check the entries that a store is about to change, against what it holds."""
        assert store.files is not None
        assert store.core is not None
        fences: dict[SegmentId, int] = {}
        for write in writes:
            segment = write.segment
            if isinstance(write, SetSealedEpoch):
                fences[segment] = write.epoch
                continue
            if isinstance(write, RemoveReplica):
                # A crash may come after the removal.
                self.fences.pop((store.files.incarnation.cookie, segment), None)
            content = store.files.content(segment)
            if content is None or not isinstance(write, PutEntries | SetStamps):
                continue
            record = self.records.get(segment)
            if record is not None and record.state is SegmentState.SEALED:
                continue  # copies of sealed segments keep the stamps of their source
            cookie = store.files.incarnation.cookie
            fence = max(fences.get(segment, 0), self.fences.get((cookie, segment), 0))
            runs = write.runs if isinstance(write, SetStamps) else ()
            stamps = [(one.index, one.index, one.stamp_epoch) for one in getattr(write, "entries", ())]
            stamps += [(run.first, run.last, run.stamp_epoch) for run in runs]
            for first, last, stamp in stamps:
                store_rules.check_i6_stale(store.name, segment, first, stamp, fence)
                store_rules.check_i7_stamps(store.name, segment, content.runs, first, last, stamp)

    def after_writes(self, store: StoreNode, writes: Iterable[Write]) -> None:
        """These writes are durable."""
        assert store.files is not None
        cookie = store.files.incarnation.cookie
        for write in writes:
            match write:
                case SetSealedEpoch():
                    key = (cookie, write.segment)
                    store_rules.check_i5_fence(store.name, write.segment, self.fences.get(key, 0), write.epoch)
                    self.fences[key] = write.epoch
                case PutEntries():
                    for entry in write.entries:
                        self._put(store, write.segment, entry)
                case SetClosed():
                    self._closed(store, write.segment, write.end)
                case Trim():
                    store_rules.check_i1_trim(self, store.name, write.segment, write.first)
                case SetUnknown():
                    store_rules.check_i21_limbo_exit(self, store, write.segment, write.ranges)

    def _put(self, store: StoreNode, segment: SegmentId, entry: Entry) -> None:
        identity = Identity(segment, entry.index, entry.kind, entry.birth_epoch)
        digest = zlib.crc32(entry.payload)
        store_rules.check_identity(self.payloads.setdefault(identity, digest), digest, identity)
        store_rules.check_i8_birth(self, segment, entry)
        store_rules.check_i15_prefix(self.policy, segment, entry)
        self._hold(store, identity)

    def _hold(self, store: StoreNode, identity: Identity) -> None:
        holders = self.holders.setdefault(identity, set())
        holders.add(store.name)
        self._slots.setdefault((identity.segment, identity.slot), {})[identity] = holders

    def _closed(self, store: StoreNode, segment: SegmentId, end: int) -> None:
        assert store.files is not None
        content = store.files.content(segment)
        if content is None:
            return  # a Drop in the same commit has removed the replica
        found = [(run.kind, run.birth_epoch) for run in content.runs for _ in range(run.first, run.last + 1)]
        known = self.contents.setdefault(segment, found)
        store_rules.check_i2_content(store.name, segment, known, found)
        store_rules.check_i16_one_bridge(store.name, segment, found, end, self.records.get(segment))
        store_rules.check_i1_content(self, segment, found)

    def store_sends(self, store: StoreNode, body: object) -> None:
        if isinstance(body, Sealed):
            # The answer is a promise, whatever was written.
            key = (body.incarnation.cookie, body.segment)
            self.fences[key] = max(self.fences.get(key, 0), body.epoch)
        elif isinstance(body, Stored):
            store_rules.check_i12_matched(self, store, body)
        elif isinstance(body, Fetched):
            reader_rules.check_i13_serve_safe(self, body)
            reader_rules.check_i24_served_from(self, store.name, body)
            assert store.files is not None
            served = (store.name, store.files.incarnation, body.segment)
            reader_rules.check_i10_limit(store.name, self.serving_limits.get(served, 0), body)
            self.serving_limits[served] = body.limit

    # --- readers

    def fetched(self, reader: ReaderNode, body: Fetched) -> None:
        for entry in body.entries:
            self._read(reader.name, body.segment, entry)

    def read_by_quorum(self, reader: ReaderNode, segment: SegmentId, entry: Entry) -> None:
        self._read(f"{reader.name} (quorum)", segment, entry)

    def _read(self, reader: str, segment: SegmentId, entry: Entry) -> None:
        found = (entry.kind, entry.birth_epoch, zlib.crc32(entry.payload))
        known = self.delivered_slots.setdefault((segment, entry.index), found)
        reader_rules.check_i14_repeatable(reader, segment, entry.index, known, found)
        reader_rules.check_i16_after_bridge(self, reader, segment, entry.index)
        reader_rules.check_i1_delivered(self, reader, segment, entry)

    def delivered(self, reader: ReaderNode, delivery: Delivery | Trimmed) -> None:
        rules = self.partition_rules.setdefault(reader.name, PartitionRules(reader.name))
        if isinstance(delivery, Trimmed):
            reader_rules.check_i24_gap(self, reader.name, reader.stream, delivery)
            self.gaps.setdefault(reader.name, []).append(delivery)
            base = self.records[SegmentId(reader.stream, delivery.following.segment_number)].base
            assert base is not None
            self.next_offsets[reader.name] = base + delivery.following.entry_index - 1
            rules.begin_gap()
            return
        events = self.delivered_events.setdefault(reader.name, [])
        reader_rules.check_i24_no_gap(reader.name, self.next_offsets.get(reader.name, 0), delivery)
        self.next_offsets[reader.name] = delivery.offset + 1
        if is_partition(reader.stream):
            rules.check_batch(delivery.payload)
        events.append((delivery.offset, b"" if delivery.payload is None else delivery.payload))


def is_inside(index: int, ranges: Iterable[Range]) -> bool:
    return any(one.first <= index <= one.last for one in ranges)
