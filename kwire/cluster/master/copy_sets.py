"""The copy set of a stream's next segment, and when a leader must open another segment."""

from collections.abc import Collection, Sequence

from kwire.cluster.core.control import SegmentRecord, SegmentState
from kwire.cluster.master.placement import place, without_avoided
from kwire.cluster.master.replica_index import ReplicaIndex
from kwire.cluster.master.settings import MasterSettings
from kwire.cluster.master.state import SegmentEntry, StreamEntry
from kwire.cluster.master.stores import StoreStatus


def choose_copy_set(
    stream: StreamEntry,
    last: SegmentEntry | None,
    stores: Sequence[StoreStatus],
    index: ReplicaIndex,
    avoid: Collection[str],
    settings: MasterSettings,
    choice: int,
) -> list[StoreStatus]:
    """Choose the stores of the segment after `last`. Fewer than the write quorum: no segment can be opened now.

    Fewer stores than replicas are enough, or a stream with three copies on three stores would not survive the failure
    of one. The repair adds the others when the segment is sealed.
    """
    kept: list[StoreStatus] = []
    joining = [one for one in stores if one.takes_segments]
    if stream.whole_log and last is not None:
        members = set(last.record.copy_set)
        joining = [one for one in joining if one.member not in members and has_all_sealed(one, stream, index)]
        kept = [one for one in stores if one.member in members and one.is_usable and not _in_limbo(one, stream)]
    allowed = without_avoided([*kept, *joining], avoid, stream.write_quorum)
    kept = [one for one in kept if one in allowed]
    joining = [one for one in joining if one in allowed]
    missing = stream.replicas - len(kept)
    return kept + place(joining, missing, chosen=kept, free_bytes_min=settings.free_bytes_min, choice=choice)


def _in_limbo(store: StoreStatus, stream: StreamEntry) -> bool:
    return any(one.stream == stream.name for one in store.limbo)


def has_all_sealed(store: StoreStatus, stream: StreamEntry, index: ReplicaIndex) -> bool:
    """Whether the store has a verified copy of every sealed segment."""
    verified = index.verified_numbers(store.name, stream.name)
    if len(verified) < stream.sealed_count:
        return False
    return not any(one.stream == stream.name and one.number in verified for one in (*store.incomplete, *store.limbo))


def is_about_to_join(
    stream: StreamEntry, record: SegmentRecord, stores: Sequence[StoreStatus], index: ReplicaIndex
) -> bool:
    """Whether a usable store outside the copy set of the last segment lacks only this segment."""
    members = set(record.copy_set)
    for store in stores:
        if store.takes_segments and store.member not in members:
            verified = index.verified_numbers(store.name, stream.name)
            if record.number not in verified and len(verified) == stream.sealed_count - 1 > 0:
                return True
    return False


def must_roll(
    stream: StreamEntry,
    last: SegmentEntry,
    stores: Sequence[StoreStatus],
    index: ReplicaIndex,
    settings: MasterSettings,
) -> bool:
    """Whether another segment would have a better copy set than the open segment.

    That is so if a member has failed, drains or is in limbo, or if more stores can be used than the segment has.
    """
    if last.record.state is not SegmentState.OPEN:
        return False
    next_set = choose_copy_set(stream, last, stores, index, last.avoided, settings, 0)
    if len(next_set) < stream.write_quorum:
        return False
    sound = {one.member for one in stores if one.is_usable and last.id not in one.limbo}
    return not sound.issuperset(last.record.copy_set) or len(next_set) > len(last.record.copy_set)
