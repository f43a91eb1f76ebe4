"""The cluster as a master sees it: the metadata as it is now, and what the master has heard since it took over."""

import msgspec

from kwire.cluster.core.control import SegmentState, StoreHeartbeat
from kwire.cluster.core.entries import FIRST_POSITION, Position
from kwire.cluster.core.messages import Member, SegmentId
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
    Versioned,
)
from kwire.cluster.master.stores import Health, StoreStatus, status_of
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
        # The start of each stream that is trimmed, as of the entries in the index.
        self._starts: dict[str, Position] = {}
        self.stream_count = 0
        self._store_names = dict.fromkeys(key.removeprefix(STORE_PREFIX) for key, _ in store.entries(STORE_PREFIX))
        self._load(store, now)

    def _load(self, store: MetaStore, now: int) -> None:
        streams = {}
        for _, entry in store.entries(STREAM_PREFIX):
            stream = msgspec.convert(entry.value, StreamEntry)
            self.stream_count += 1
            streams[stream.name] = stream
            if stream.start > FIRST_POSITION:
                self._starts[stream.name] = stream.start
        for _, entry in store.entries(SEGMENT_PREFIX):
            segment = msgspec.convert(entry.value, SegmentEntry)
            self.index.put(segment.from_start(streams[segment.stream]))
        for stream in streams.values():
            home = frozenset(self.home(stream, now))
            self.repairs.add(
                segment.id for segment in self.index.sealed(stream.name) if not _was_settled(segment, stream, home)
            )

    # --- changes

    def remember(self, change: Change) -> None:
        """Take note of a change that was committed."""
        if change.key.startswith(STREAM_PREFIX):
            self.stream_count += change.expected_revision == ABSENT
            self._trim(msgspec.convert(change.value, StreamEntry).name)
        elif change.key.startswith(SEGMENT_PREFIX):
            # The entry is read: the commit of a later change may have returned earlier.
            segment = self.segment(msgspec.convert(change.value, SegmentEntry).id)
            if segment is not None:
                self._put(segment.value, change.expected_revision == ABSENT)

    def _trim(self, name: str) -> None:
        """Look at the segments whose start has changed since the last call: their reports do not count any more."""
        stream = self.metadata.stream(name)
        before = self._starts.get(name, FIRST_POSITION)
        if stream is None or stream.value.start <= before:
            return
        start = self._starts[name] = stream.value.start
        for number in range(before.segment_number, start.segment_number + 1):
            segment = self.segment(SegmentId(name, number))
            if segment is not None:
                self._put(segment.value, is_new=False)

    def _put(self, segment: SegmentEntry, is_new: bool) -> None:
        self.index.put(segment)
        if segment.record.state is SegmentState.SEALED:
            self.repairs.add([segment.id])
        stream = self.metadata.stream(segment.stream)
        if is_new and stream is not None and stream.value.whole_log:
            before = self.metadata.segment(SegmentId(segment.stream, segment.record.number - 1))
            if before is not None and set(segment.record.copy_set) != set(before.value.record.copy_set):
                # The stores that hold the whole log have changed.
                self.repairs.add(one.id for one in self.index.sealed(segment.stream))

    def hear(self, request: StoreHeartbeat, now: int) -> None:
        """Take note of a heartbeat of a registered store."""
        before = self.heard.get(request.store)
        self._store_names[request.store] = None
        self.heard.hear(request, now)
        has_returned = before is None or now - before.heard_ms >= self.settings.store_timeout_ms
        if before is None or has_returned or before.incarnation != request.incarnation:
            self.repairs.add_drops(request.store, sorted(self.index.outside_replicas(request.store)))
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
        status = status_of(store, self.heard, self.index.load(store.name), self.settings, now)
        # An unfinished copy outside the copy set does not keep the store from getting others, nor a trimmed one.
        limbo = frozenset(
            segment
            for segment in status.limbo
            if not self.index.is_sealed(segment)
            or (self.index.is_member(store.name, segment) and not self.is_done(segment))
        )
        return msgspec.structs.replace(status, limbo=limbo)

    # --- segments

    def segment(self, segment_id: SegmentId) -> Versioned[SegmentEntry] | None:
        """The entry of a segment, with the reports that count."""
        segment, stream = self.metadata.segment(segment_id), self.metadata.stream(segment_id.stream)
        if segment is None or stream is None:
            return None
        return msgspec.structs.replace(segment, value=segment.value.from_start(stream.value))

    def is_done(self, segment_id: SegmentId) -> bool:
        """Whether no store needs the segment any more, because it is trimmed."""
        stream = self.metadata.stream(segment_id.stream)
        return stream is not None and stream.value.is_done(segment_id.number)

    def home(self, stream: StreamEntry, now: int) -> list[Member]:
        """The stores that hold all segments of a whole log: the copy set of its newest segment, without failed ones."""
        last = self.metadata.last_segment(stream) if stream.whole_log else None
        if last is None:
            return []
        stores = [self.status(one.store, now) for one in last.value.record.copy_set]
        kept = [one for one in stores if one is not None and one.health is not Health.FAILED and not one.is_draining]
        return [one.member for one in kept][: stream.replicas]


def _was_settled(segment: SegmentEntry, stream: StreamEntry, home: frozenset[Member]) -> bool:
    """Whether the segment needed nothing when its entry was written."""
    members = segment.record.copy_set
    is_complete = len(members) == len(verified_stores(segment)) == stream.replicas and home.issubset(members)
    return (is_complete or stream.is_done(segment.record.number)) and not any(
        one.incarnation is None for one in segment.outsiders
    )
