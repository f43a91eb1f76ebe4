"""The decision about each request: which entries it needs, and which rule decides."""

from collections.abc import Iterator

from msgspec.structs import replace

from kwire.cluster.core.control import (
    AdminRequest,
    BeginRecovery,
    ClientRequest,
    CloseSegment,
    CreateStream,
    Describe,
    Described,
    DrainStore,
    Heartbeat,
    OpenSegment,
    SegmentState,
    StoreAccepted,
    StoreHeartbeat,
    TrimStream,
    Unavailable,
)
from kwire.cluster.core.messages import Finish, SegmentId, TrimBefore
from kwire.cluster.master.cluster_view import ClusterView
from kwire.cluster.master.copy_sets import choose_copy_set, is_about_to_join, must_roll
from kwire.cluster.master.decisions import Decision, Order
from kwire.cluster.master.elections import decide_heartbeat
from kwire.cluster.master.liveness import Candidate
from kwire.cluster.master.segments import decide_closing, decide_creation, decide_opening, decide_recovery, decide_trim
from kwire.cluster.master.state import StreamEntry, Versioned
from kwire.cluster.master.stores import decide_drain, decide_registration

Request = ClientRequest | StoreHeartbeat | AdminRequest


def decide(request: Request, view: ClusterView, now: int, choice: int) -> Decision:
    """Decide about a request. Nothing has changed until the decision is committed."""
    view.leases.observe(now)
    match request:
        case StoreHeartbeat():
            others = (one for one in view.stores() if one.name != request.store)
            decision = decide_registration(request, view.metadata.store(request.store), others)
            if isinstance(decision.answer, StoreAccepted):
                return replace(decision, orders=(*decision.orders, *_finish_orders(request, view)))
            return decision
        case DrainStore():
            return decide_drain(request, view.metadata.store(request.store))
        case CreateStream():
            return decide_creation(request, view.metadata.stream(request.stream), view.stream_count)
    stream = view.metadata.stream(request.stream)
    if stream is None:
        return Decision(Unavailable(request.stream, 0, "the stream does not exist"))
    match request:
        case Heartbeat():
            return _heartbeat(request, stream, view, now, choice)
        case OpenSegment():
            return _opening(request, stream, view, now, choice)
        case BeginRecovery():
            return decide_recovery(request, stream, view.metadata)
        case CloseSegment():
            decision = decide_closing(request, stream, view.metadata)
            if decision.changes:
                view.sealed_ms[request.stream] = now
            return decision
        case TrimStream():
            decision = decide_trim(request, stream, view.metadata)
            return replace(decision, orders=tuple(_trim_orders(request, view))) if decision.changes else decision
        case Describe():
            entry = stream.value
            records = view.metadata.records(entry, request.first)
            return Decision(Described(request.stream, entry.epoch, records, entry.last, entry.start))


def _trim_orders(request: TrimStream, view: ClusterView) -> Iterator[Order]:
    """The new start for each store with replicas of the segments up to it.

    They are not repeated: a lost one costs disk space until the next one, or the next Copy, which cover it.
    """
    body = TrimBefore(SegmentId(request.stream, request.number), request.first)
    for store in view.index.holders(request.stream, request.number):
        yield Order(store, body)


def _finish_orders(request: StoreHeartbeat, view: ClusterView) -> Iterator[Order]:
    """The end of each sealed segment that the store has not closed: the Close of the leader may have been lost."""
    for segment_id in request.unclosed:
        segment = view.metadata.segment(segment_id)
        record = segment.value.record if segment is not None else None
        if record is not None and record.end_index is not None and record.end_epoch is not None:
            yield Order(request.store, Finish(segment_id, record.end_index, record.end_epoch))


def _heartbeat(
    request: Heartbeat, stream: Versioned[StreamEntry], view: ClusterView, now: int, choice: int
) -> Decision:
    last = view.metadata.last_segment(stream.value)

    def hosts_replica(candidate: Candidate) -> bool:
        store = view.status(candidate.store, now)
        if last is None or store is None or not store.is_usable:
            return False
        return store.member in last.value.record.copy_set and store.vouches_for(last.value.id)

    def rolls() -> bool:
        return last is not None and must_roll(stream.value, last.value, view.statuses(now), view.index, view.settings)

    return decide_heartbeat(
        request,
        stream,
        () if request.epoch else view.metadata.last_records(stream.value),
        hosts_replica,
        rolls,
        view.leases,
        view.candidates,
        view.settings,
        now,
        choice,
    )


def _opening(
    request: OpenSegment, stream: Versioned[StreamEntry], view: ClusterView, now: int, choice: int
) -> Decision:
    entry = stream.value
    last = view.metadata.last_segment(entry)
    stores = view.statuses(now)
    copy_set = choose_copy_set(
        entry, last.value if last else None, stores, view.index, request.avoid, view.settings, choice
    )
    wait_reason = ""
    if (
        entry.whole_log
        and last is not None
        and last.value.record.state is SegmentState.SEALED
        and entry.write_quorum <= len(copy_set) < entry.replicas
        and now < view.sealed_ms.get(entry.name, now) + view.settings.learner_wait_ms
        and is_about_to_join(entry, last.value.record, stores, view.index)
    ):
        wait_reason = f"a store that joins the copy set still copies segment {entry.last}"
    return decide_opening(request, stream, view.metadata, copy_set, wait_reason)
