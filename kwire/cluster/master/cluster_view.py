"""The cluster as a master sees it: the metadata as it is now, and what the master has heard since it took over."""

import msgspec

from kwire.cluster.core.control import SegmentState, StoreHeartbeat
from kwire.cluster.core.messages import Member
from kwire.cluster.master.liveness import Candidates, Heard, Leases
from kwire.cluster.master.repair.digests import verified_stores
from kwire.cluster.master.repair.queue import RepairQueue
from kwire.cluster.master.replica_index import ReplicaIndex
from kwire.cluster.master.settings import MasterSettings
from kwire.cluster.master.state import (
    SEGMENT_PREFIX,
    STORE_PREFIX,
    STREAM_PREFIX,
    Metadata,
    SegmentEntry,
    StoreEntry,
    StreamEntry,
)
from kwire.cluster.master.stores import StoreStatus, status_of
from kwire.metastore.interface import ABSENT, Change, MetaStore


class ClusterView:
    """Everything that decisions use. Only the metadata outlives the master."""

    def __init__(self, store: MetaStore, settings: MasterSettings, now: int) -> None:
        self.settings = settings
        self.metadata = Metadata(store.get)
        self.leases = Leases()
        self.candidates = Candidates(settings.candidate_ttl_ms)
        self.heard = Heard(now)
        self.index = ReplicaIndex()
        self.repairs = RepairQueue()
        # When the last segment of a stream was sealed.
        self.sealed_ms: dict[str, int] = {}
        self.stream_count = 0
        self._store_names = dict.fromkeys(key.removeprefix(STORE_PREFIX) for key, _ in store.entries(STORE_PREFIX))
        self._load(store, now)

    def _load(self, store: MetaStore, now: int) -> None:
        replicas = {}
        for _, entry in store.entries(STREAM_PREFIX):
            stream = msgspec.convert(entry.value, StreamEntry)
            self.stream_count += 1
            replicas[stream.name] = stream.replicas
            if stream.leader is not None:
                # The time that an earlier master may have promised to the leader begins now.
                self.leases.is_live(stream.name, stream.epoch, stream.leader.ttl_ms, now)
        for _, entry in store.entries(SEGMENT_PREFIX):
            segment = msgspec.convert(entry.value, SegmentEntry)
            self.index.put(segment)
            if segment.record.state is SegmentState.SEALED:
                count = replicas[segment.stream]
                if not len(segment.record.copy_set) == len(verified_stores(segment)) == count:
                    self.repairs.add([segment.id])

    # --- changes

    def remember(self, change: Change) -> None:
        """Take note of a change that was committed."""
        if change.key.startswith(STREAM_PREFIX):
            self.stream_count += change.expected_revision == ABSENT
        elif change.key.startswith(SEGMENT_PREFIX):
            # The entry is read: the commit of a later change may have returned earlier.
            segment = self.metadata.segment(msgspec.convert(change.value, SegmentEntry).id)
            if segment is not None:
                self.index.put(segment.value)
                if segment.value.record.state is SegmentState.SEALED:
                    self.repairs.add([segment.value.id])

    def hear(self, request: StoreHeartbeat, now: int) -> None:
        """Take note of a heartbeat of a registered store."""
        before = self.heard.get(request.store)
        self._store_names[request.store] = None
        self.heard.hear(request, now)
        has_returned = before is None or now - before.heard_ms >= self.settings.store_timeout_ms
        if before is None or has_returned or before.incarnation != request.incarnation:
            self.repairs.add_drops(request.store, self.index.removed_from(request.store))
        for segment in request.unclosed:
            if not self.index.is_sealed(segment):
                continue
            if self.index.is_member(request.store, segment):
                self.repairs.add([segment])
            elif not self.repairs.is_copying(segment, request.store, now):
                self.repairs.add_drops(request.store, [segment])

    # --- stores

    def stores(self) -> list[StoreEntry]:
        found = (self.metadata.store(name) for name in self._store_names)
        return [one.value for one in found if one is not None]

    def statuses(self, now: int) -> list[StoreStatus]:
        return [self._judge(one, now) for one in self.stores()]

    def status(self, name: str, now: int) -> StoreStatus | None:
        store = self.metadata.store(name)
        return self._judge(store.value, now) if store is not None else None

    def _judge(self, store: StoreEntry, now: int) -> StoreStatus:
        return status_of(store, self.heard, self.index.load(store.name), self.settings, now)

    # --- segments

    def home(self, stream: StreamEntry) -> tuple[Member, ...]:
        """The stores that hold all segments of a whole log: the copy set of its newest segment."""
        last = self.metadata.last_segment(stream) if stream.whole_log else None
        return last.value.record.copy_set if last is not None else ()
