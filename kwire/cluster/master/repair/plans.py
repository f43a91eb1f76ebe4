"""Repair of sealed segments: which copies to make, and which members to remove from the copy set afterwards.

A copy counts if its store is alive, has reported the agreed digest and does not report the segment as incomplete or in
limbo. Digests are over the entries from the start of the segment on; after a trim all members report again. A member
is removed only while as many other copies count as the stream has replicas. So the number of complete
copies in a copy set never falls below the write quorum.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import msgspec

from kwire.cluster.core.control import SegmentState
from kwire.cluster.core.messages import Copied, Copy, Drop, Member
from kwire.cluster.master.decisions import Decision, Order
from kwire.cluster.master.placement import place
from kwire.cluster.master.repair.digests import agreed_digest, verified_stores
from kwire.cluster.master.state import (
    COPY_SET_MAX,
    OUTSIDERS_MAX,
    Outsider,
    Report,
    SegmentEntry,
    StreamEntry,
    Versioned,
)
from kwire.cluster.master.stores import Health, StoreStatus


class Copies(NamedTuple):
    """The members of a sealed segment, as their stores are judged now.

    `complete` copies count. `hopeful` members are those, and the ones that may become complete; members that drain
    are not among them.
    """

    digest: int | None
    complete: list[StoreStatus]
    hopeful: list[StoreStatus]

    @property
    def usable(self) -> list[StoreStatus]:
        return [one for one in self.complete if not one.is_draining]


class RepairPlan(NamedTuple):
    """What a sealed segment needs now: copies to order, and members to remove.

    A segment is settled when all its members count, and are as many as the stream has replicas.
    """

    orders: list[Order]
    removed: list[Member]
    is_settled: bool


def copies_of(entry: SegmentEntry, stores: Sequence[StoreStatus]) -> Copies:
    by_member = {one.member: one for one in stores}
    members = [by_member[one] for one in entry.record.copy_set if one in by_member]
    answering = [one for one in members if one.health is not Health.FAILED]
    silent = {one.store for one in entry.record.copy_set} - {one.name for one in answering}
    digest = agreed_digest(entry, frozenset(silent))
    verified = verified_stores(entry, digest) if digest is not None else frozenset()
    reported = {one.store for one in entry.reports}
    complete = [
        one for one in answering if one.name in verified and one.health is Health.ALIVE and one.vouches_for(entry.id)
    ]
    hopeful = [
        one
        for one in answering
        if not one.is_draining and (digest is None or one.name in verified or one.name not in reported)
    ]
    return Copies(digest, complete, hopeful)


def plan_repair(
    entry: SegmentEntry,
    stream: StreamEntry,
    home: Collection[Member],
    stores: Sequence[StoreStatus],
    preference: Callable[[StoreStatus], tuple[bool, int]],
    excluded: Collection[str] = (),
    stranded: Collection[str] = (),
    choice: int = 0,
) -> RepairPlan:
    """Plan the next step for a sealed segment.

    `home` are the stores that hold all segments of a whole log, at most as many as it has replicas. Otherwise it is
    empty.
    New copies go to the stores with the highest `preference`, and not to those in `excluded`. Stores in
    `stranded` cannot complete a copy.
    """
    copies = copies_of(entry, stores)
    copies = copies._replace(hopeful=[one for one in copies.hopeful if one.name not in stranded])
    members = {one.store for one in entry.record.copy_set}
    targets = [one for one in stores if one.name not in members and _may_copy(one, entry, whole_log=stream.whole_log)]
    wanted = [one for one in copies.hopeful if one not in copies.complete and _must_report(one, entry, copies)]
    at_home = [one for one in targets if one.member in home]
    missing = stream.replicas - len(copies.hopeful) - len(at_home)
    others = [one for one in targets if one not in at_home and one.name not in excluded and one.name not in stranded]
    wanted += [*at_home, *_targets(others, missing, [*copies.hopeful, *at_home], preference, choice)]
    orders = [Order(one.name, _copy(entry, stream, _sources(entry, copies, stores, one))) for one in wanted]
    is_settled = not orders and len(entry.record.copy_set) == len(copies.usable) == stream.replicas
    return RepairPlan(orders, _surplus(entry, stream, home, copies), is_settled)


def _must_report(store: StoreStatus, entry: SegmentEntry, copies: Copies) -> bool:
    """Whether a member has to complete its copy, or to report it. A report counts when others agree with it."""
    if store.health is not Health.ALIVE:
        return False
    has_reported = any(one.store == store.name for one in entry.reports)
    return copies.digest is not None or not has_reported or not store.vouches_for(entry.id)


def _may_copy(store: StoreStatus, entry: SegmentEntry, *, whole_log: bool) -> bool:
    """Whether the store may get a copy.

    A store that has doubts about a later segment of a whole log needs this one first.
    """
    limbo = [one for one in store.limbo if not (whole_log and one > entry.id and one.stream == entry.stream)]
    return store.is_usable and not limbo


def _outsider(entry: SegmentEntry, store: str) -> Outsider | None:
    return next((one for one in entry.outsiders if one.store == store), None)


def _targets(
    stores: list[StoreStatus],
    count: int,
    chosen: list[StoreStatus],
    preference: Callable[[StoreStatus], tuple[bool, int]],
    choice: int,
) -> list[StoreStatus]:
    result: list[StoreStatus] = []
    for rank in sorted({preference(one) for one in stores}, reverse=True):
        equal = [one for one in stores if preference(one) == rank]
        result += place(equal, count - len(result), chosen=[*chosen, *result], choice=choice)
    return result


def _sources(
    entry: SegmentEntry, copies: Copies, stores: Sequence[StoreStatus], target: StoreStatus
) -> tuple[str, ...]:
    """The stores to copy from: first those whose copies count, then other members that may have the segment."""
    members = set(entry.record.copy_set)
    others = [
        one for one in stores if one.member in members and one.health is Health.ALIVE and one.vouches_for(entry.id)
    ]
    ordered = dict.fromkeys(one.name for one in [*copies.complete, *others])
    return tuple(one for one in ordered if one != target.name)


def _surplus(entry: SegmentEntry, stream: StreamEntry, home: Collection[Member], copies: Copies) -> list[Member]:
    """The members to remove: all but the best ones, if enough copies count without them."""
    if len(copies.usable) < stream.replicas:
        return []
    best = sorted(copies.usable, key=lambda one: one.member not in home)[: stream.replicas]
    kept = {one.member for one in best}
    return [one for one in entry.record.copy_set if one not in kept]


def decide_copies(segment: Versioned[SegmentEntry], orders: Collection[Order]) -> Decision:
    """Order copies. Stores outside the copy set are recorded first, so that no replica is forgotten on them."""
    entry = segment.value
    members = {one.store for one in entry.record.copy_set}
    added = []
    for order in orders:
        known = _outsider(entry, order.store)
        if order.store not in members and (known is None or known.incarnation is not None):
            added.append(Outsider(order.store, removal=known.removal if known is not None else 0))
    if not added:
        return Decision(None, orders=tuple(orders))
    changed = msgspec.structs.replace(entry, outsiders=_with_outsiders(entry, added))
    return Decision(None, (segment.changed(changed),), orders=tuple(orders))


def decide_removal(segment: Versioned[SegmentEntry], removed: Collection[Member]) -> Decision:
    """Remove members from the copy set. Their replicas are dropped later."""
    entry = segment.value
    names = {one.store for one in removed}
    record = msgspec.structs.replace(
        entry.record, copy_set=tuple(one for one in entry.record.copy_set if one not in removed)
    )
    changed = msgspec.structs.replace(
        entry,
        record=record,
        reports=tuple(one for one in entry.reports if one.store not in names),
        outsiders=_with_outsiders(entry, [Outsider(one) for one in sorted(names)]),
    )
    return Decision(None, (segment.changed(changed),))


def _with_outsiders(entry: SegmentEntry, added: list[Outsider]) -> tuple[Outsider, ...]:
    names = {one.store for one in added}
    result = [one for one in entry.outsiders if one.store not in names] + added
    unimportant = [one for one in result if one.incarnation is None and not one.removal]
    forgotten = unimportant[: max(len(result) - OUTSIDERS_MAX, 0)]
    return tuple(one for one in result if one not in forgotten)


def decide_drop(segment: Versioned[SegmentEntry], store: StoreStatus) -> Decision:
    """Order a store to drop the replica that it no longer needs. The entry names its incarnation first."""
    entry = segment.value
    known = _outsider(entry, store.name)
    if known is not None and known.incarnation == store.incarnation:
        return Decision(None, orders=(Order(store.name, Drop(entry.id, store.incarnation, known.removal)),))
    removal = entry.removals + 1
    outsiders = _with_outsiders(entry, [Outsider(store.name, store.incarnation, removal)])
    if len(outsiders) > OUTSIDERS_MAX:
        return Decision(None)
    changed = msgspec.structs.replace(entry, outsiders=outsiders, removals=removal)
    order = Order(store.name, Drop(entry.id, store.incarnation, removal))
    return Decision(None, (segment.changed(changed),), orders=(order,))


def decide_copied(
    report: Copied,
    segment: Versioned[SegmentEntry],
    stream: StreamEntry,
    home: Collection[Member],
    store: StoreStatus,
    stores: Sequence[StoreStatus],
) -> Decision:
    """Record that a store has the whole segment. A store outside the copy set becomes a member if it is needed."""
    entry = segment.value
    record = entry.record
    outsider = _outsider(entry, store.name)
    if (
        record.state is not SegmentState.SEALED
        or store.incarnation != report.incarnation
        or not store.vouches_for(entry.id)
        or (outsider is not None and report.removals < outsider.removal)
        # Other members have another part of the segment. The store is ordered to report the part from its start on.
        or report.start != stream.start_of(record)
    ):
        return Decision(None)
    title = f"stream {entry.stream}: segment {record.number}"
    if report.end != record.end_index:
        alarm = f"{title} ends at {record.end_index}, but {store.name} reports that it ends at {report.end}"
        return Decision(None, alarms=(alarm,))
    copies = copies_of(entry, stores)
    alarms: tuple[str, ...] = ()
    if copies.digest not in (None, report.digest):
        alarms = (f"{title}: the copy of {store.name} has another content than the others",)
    is_member = store.member in record.copy_set
    if not is_member:
        if alarms or copies.digest is None:
            return Decision(None, alarms=alarms)
        if len(copies.usable) >= stream.replicas and store.member not in home:
            return decide_drop(segment, store)
        if len(record.copy_set) >= COPY_SET_MAX:
            alarm = f"{title} has {COPY_SET_MAX} members, and too few of them have a complete copy"
            return Decision(None, alarms=(alarm,))
        record = msgspec.structs.replace(record, copy_set=(*record.copy_set, store.member))
    own = Report(store.name, report.digest, report.start)
    reports = (*(one for one in entry.reports if one.store != store.name), own)
    outsiders = tuple(one for one in entry.outsiders if one.store != store.name)
    if is_member and own in entry.reports:
        return Decision(None, alarms=alarms)
    changed = msgspec.structs.replace(entry, record=record, reports=reports, outsiders=outsiders)
    if len(reports) == len(record.copy_set) and agreed_digest(changed) is None:
        alarms = (f"{title}: the copies of its members have different contents, and too few of them agree",)
    return Decision(None, (segment.changed(changed),), alarms=alarms)


def _copy(entry: SegmentEntry, stream: StreamEntry, sources: tuple[str, ...]) -> Copy:
    record = entry.record
    if record.end_index is None or record.end_epoch is None:
        raise ValueError(f"stream {entry.stream}: segment {record.number} is not sealed")
    start = stream.start_of(record)
    return Copy(entry.id, record.end_index, record.end_epoch, sources, start, entry.removals)
