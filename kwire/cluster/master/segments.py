"""The segments of a stream: opening, recovery and closing, each guarded by the epoch of the leader.

Every decision can be repeated: if the answer was lost, the leader asks again and gets the record as it is.
"""

from collections.abc import Sequence

import msgspec

from kwire.cluster.core.control import (
    BeginRecovery,
    CloseSegment,
    CreateStream,
    NotLeader,
    OpenSegment,
    SegmentChanged,
    SegmentRecord,
    SegmentState,
    StreamCreated,
    StreamRefused,
    StreamTrimmed,
    TrimStream,
    Unavailable,
)
from kwire.cluster.core.entries import INDEX_MAX, Position
from kwire.cluster.core.messages import SegmentId
from kwire.cluster.core.quorum import Quorum
from kwire.cluster.master.decisions import Decision
from kwire.cluster.master.state import (
    AVOIDED_MAX,
    NAME_BYTES_MAX,
    REPLICAS_MAX,
    STREAMS_MAX,
    UNSEALED_MAX,
    Metadata,
    SegmentEntry,
    StreamEntry,
    Versioned,
    created,
    is_valid_name,
    segment_key,
    stream_key,
)
from kwire.cluster.master.stores import StoreStatus


def next_base(record: SegmentRecord) -> int | None:
    """Return the base of the segment after this one, or None if it is not known yet.

    The base is the number of entries in all earlier segments. The bridge is not an entry of the stream: a segment whose
    bridge has index `end_index` adds `end_index - 1` entries, events and holes. The entry with index i of a segment has
    the offset `base + i - 1` in the stream.
    """
    if record.base is None or record.end_index is None:
        return None
    return record.base + record.end_index - 1


def decide_creation(request: CreateStream, known: Versioned[StreamEntry] | None, stream_count: int) -> Decision:
    """Create a stream without segments."""
    if known is not None:
        entry = known.value
        settings = (entry.replicas, entry.write_quorum, entry.whole_log)
        if settings == (request.replicas, request.write_quorum, request.whole_log):
            return Decision(StreamCreated(request.stream))
        return Decision(StreamRefused(request.stream, "the stream exists with other settings"))
    reason = _reason_to_refuse(request, stream_count)
    if reason:
        return Decision(StreamRefused(request.stream, reason))
    entry = StreamEntry(request.stream, request.replicas, request.write_quorum, request.whole_log)
    return Decision(StreamCreated(request.stream), (created(stream_key(request.stream), entry),))


def _reason_to_refuse(request: CreateStream, stream_count: int) -> str:
    if not is_valid_name(request.stream):
        return f"the name of a stream has from 1 to {NAME_BYTES_MAX} bytes"
    if request.replicas > REPLICAS_MAX:
        return f"a segment has at most {REPLICAS_MAX} copies, got {request.replicas}"
    if stream_count >= STREAMS_MAX:
        return f"there are {STREAMS_MAX} streams, which is the maximum"
    try:
        Quorum(request.replicas, request.write_quorum)
    except ValueError as error:
        return str(error)
    return ""


def decide_opening(
    request: OpenSegment,
    stream: Versioned[StreamEntry],
    metadata: Metadata,
    copy_set: Sequence[StoreStatus],
    wait_reason: str,
) -> Decision:
    """Create the next segment with this copy set. `wait_reason` is why it should not be created yet, or empty."""
    entry = stream.value
    if request.epoch != entry.epoch:
        return Decision(NotLeader(entry.name, entry.epoch))
    if 0 < request.number <= entry.last:
        existing = _existing(metadata, entry, request.number).value.record
        if existing.opened_by_epoch == request.epoch:
            return Decision(SegmentChanged(entry.name, entry.epoch, existing))
        return _unavailable(entry, f"segment {request.number} was opened by epoch {existing.opened_by_epoch}")
    if request.number != entry.last + 1:
        return _unavailable(entry, f"the next segment is {entry.last + 1}, not {request.number}")
    if len(entry.unsealed) >= UNSEALED_MAX:
        return _unavailable(entry, f"segment {entry.unsealed[0]} must be sealed first: {UNSEALED_MAX} are unsealed")
    if wait_reason:
        return _unavailable(entry, wait_reason)
    if len(copy_set) < entry.write_quorum:
        return _unavailable(
            entry, f"an entry needs {entry.write_quorum} copies, but the stores that can be used are {len(copy_set)}"
        )
    last = metadata.last_segment(entry)
    record = SegmentRecord(
        number=request.number,
        state=SegmentState.OPEN,
        copy_set=tuple(one.member for one in copy_set),
        write_quorum=entry.write_quorum,
        opened_by_epoch=request.epoch,
        base=0 if last is None else next_base(last.value.record),
    )
    names = {one.name for one in copy_set}
    avoided = tuple(
        one for one in dict.fromkeys(request.avoid[:AVOIDED_MAX]) if one not in names and is_valid_name(one)
    )
    opened = SegmentEntry(entry.name, record, avoided)
    changed = msgspec.structs.replace(entry, last=request.number, unsealed=(*entry.unsealed, request.number))
    return Decision(
        SegmentChanged(entry.name, entry.epoch, record),
        (stream.changed(changed), created(segment_key(opened.id), opened)),
    )


def decide_recovery(request: BeginRecovery, stream: Versioned[StreamEntry], metadata: Metadata) -> Decision:
    """Record that the segment is in recovery. A sealed segment stays as it is."""
    entry = stream.value
    if request.epoch != entry.epoch:
        return Decision(NotLeader(entry.name, entry.epoch))
    if not 0 < request.number <= entry.last:
        return _unavailable(entry, f"segment {request.number} does not exist")
    segment = _existing(metadata, entry, request.number)
    if segment.value.record.state is not SegmentState.OPEN:
        return Decision(SegmentChanged(entry.name, entry.epoch, segment.value.record))
    record = msgspec.structs.replace(segment.value.record, state=SegmentState.SEALING)
    return Decision(
        SegmentChanged(entry.name, entry.epoch, record),
        (segment.changed(msgspec.structs.replace(segment.value, record=record)),),
        (stream.unchanged(),),
    )


def decide_closing(request: CloseSegment, stream: Versioned[StreamEntry], metadata: Metadata) -> Decision:
    """Record the end of a segment, and the base of the next one if that is open already."""
    entry = stream.value
    if request.epoch != entry.epoch:
        return Decision(NotLeader(entry.name, entry.epoch))
    if not 0 < request.number <= entry.last:
        return _unavailable(entry, f"segment {request.number} does not exist")
    segment = _existing(metadata, entry, request.number)
    record = segment.value.record
    if record.state is SegmentState.SEALED:
        if record.end_index == request.end_index:
            return Decision(SegmentChanged(entry.name, entry.epoch, record))
        reason = (
            f"stream {entry.name}: segment {request.number} is sealed with its bridge at {record.end_index}, "
            f"but epoch {request.epoch} has found it at {request.end_index}"
        )
        return Decision(Unavailable(entry.name, entry.epoch, reason), alarms=(reason,))
    if request.number != entry.unsealed[0]:
        return _unavailable(entry, f"segment {entry.unsealed[0]} must be sealed before segment {request.number}")
    if not 0 < request.end_index <= INDEX_MAX:
        return _unavailable(entry, f"the index of a bridge is from 1 to {INDEX_MAX}, got {request.end_index}")
    if record.state is SegmentState.OPEN and record.opened_by_epoch != request.epoch:
        return _unavailable(entry, f"segment {request.number} was opened by another leader: its recovery has not begun")
    closed = msgspec.structs.replace(
        record, state=SegmentState.SEALED, end_index=request.end_index, end_epoch=request.epoch
    )
    changes = [
        stream.changed(msgspec.structs.replace(entry, unsealed=entry.unsealed[1:])),
        segment.changed(SegmentEntry(entry.name, closed)),
    ]
    if request.number < entry.last:
        following = _existing(metadata, entry, request.number + 1)
        based = msgspec.structs.replace(following.value.record, base=next_base(closed))
        changes.append(following.changed(msgspec.structs.replace(following.value, record=based)))
    return Decision(SegmentChanged(entry.name, entry.epoch, closed), tuple(changes))


def decide_trim(request: TrimStream, stream: Versioned[StreamEntry], metadata: Metadata) -> Decision:
    """Move the start of the stream. It never goes back, and never beyond the end of the segment.

    The leader knows which entries of its open segment are acknowledged; none is before earlier segments are sealed.
    """
    entry = stream.value
    if request.epoch != entry.epoch:
        return Decision(NotLeader(entry.name, entry.epoch))
    if not 0 < request.number <= entry.last or request.first < 1:
        return _unavailable(entry, f"segment {request.number} has no entry {request.first}")
    record = _existing(metadata, entry, request.number).value.record
    if record.state is not SegmentState.SEALED and (
        record.state is not SegmentState.OPEN
        or record.opened_by_epoch != request.epoch
        or request.number != entry.unsealed[0]
    ):
        return _unavailable(entry, f"the entries of segment {request.number} are not known to be acknowledged")
    answer = StreamTrimmed(entry.name, entry.epoch, request.number, request.first)
    start = Position(request.number, min(request.first, record.end_index or request.first))
    if start <= entry.start:
        return Decision(answer)
    return Decision(answer, (stream.changed(msgspec.structs.replace(entry, start=start)),))


def _existing(metadata: Metadata, stream: StreamEntry, number: int) -> Versioned[SegmentEntry]:
    segment = metadata.segment(SegmentId(stream.name, number))
    if segment is None:
        raise LookupError(f"stream {stream.name}: the metadata of segment {number} is missing")
    return segment


def _unavailable(stream: StreamEntry, reason: str) -> Decision:
    return Decision(Unavailable(stream.name, stream.epoch, reason))
