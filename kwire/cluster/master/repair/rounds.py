"""Rounds of repair: the sealed segments that the master looks at, and the decision about each."""

from collections.abc import Collection

from kwire.cluster.core.control import SegmentState
from kwire.cluster.core.messages import Copied, Member, SegmentId
from kwire.cluster.master.cluster_view import ClusterView
from kwire.cluster.master.decisions import Decision
from kwire.cluster.master.repair.plans import (
    RepairPlan,
    decide_copied,
    decide_copies,
    decide_drop,
    decide_removal,
    plan_repair,
)
from kwire.cluster.master.state import SegmentEntry, Versioned
from kwire.cluster.master.stores import Health, StoreStatus


class RepairRounds:
    """The decisions about copies of sealed segments."""

    def __init__(self, view: ClusterView, now: int) -> None:
        self._view = view
        # Which stores had failed, and which drained, in the last round.
        self._judged = self._judge(now)

    def _judge(self, now: int) -> dict[str, tuple[bool, bool]]:
        return {one.name: (one.health is Health.FAILED, one.is_draining) for one in self._view.statuses(now)}

    def judge_stores(self, now: int) -> None:
        """Look at all segments of the stores that have failed, returned, or begun or ceased to drain."""
        index = self._view.index
        before, self._judged = self._judged, self._judge(now)
        for store, judged in self._judged.items():
            if before.get(store, judged) == judged:
                continue
            for stream in index.streams_of(store):
                entry = self._view.metadata.stream(stream)
                # The other segments of a whole log are copied to the store, too.
                is_concerned = entry is not None and entry.value.whole_log
                self._view.repairs.add(
                    one.id for one in index.sealed(stream) if is_concerned or index.is_member(store, one.id)
                )

    def decide_repair(self, segment_id: SegmentId, now: int, choice: int) -> Decision:
        """Remove members that are not needed, or else order the copies that are missing."""
        repairs = self._view.repairs
        settings = self._view.settings
        segment = self._view.segment(segment_id)
        plan = self._plan(segment, now, choice) if segment is not None else None
        if segment is None or plan is None:
            repairs.settle(segment_id)
            return Decision(None)
        if plan.is_settled:
            repairs.settle(segment_id)
            for one in segment.value.outsiders:
                if one.incarnation is None:
                    repairs.add_drops(one.store, [segment_id])
            return Decision(None)
        if plan.removed:
            for member in plan.removed:
                repairs.add_drops(member.store, [segment_id])
            return decide_removal(segment, plan.removed)
        orders = []
        for order in plan.orders:
            if repairs.is_copying(segment_id, order.store, now) or self._must_wait(segment.value, order.store, now):
                continue
            if repairs.copy_count(now) >= settings.copies_max:
                break
            repairs.begin_copy(segment_id, order.store, now + settings.copy_timeout_ms)
            orders.append(order)
        if not plan.orders and repairs.given_up(segment_id):
            repairs.try_again(segment_id)
        return decide_copies(segment, orders)

    def _must_wait(self, entry: SegmentEntry, store_name: str, now: int) -> bool:
        """Whether a store needs the segment before this one first: the log of a partition is written in order."""
        stream = self._view.metadata.stream(entry.stream)
        store = self._view.status(store_name, now)
        if stream is None or store is None or not stream.value.whole_log or entry.record.number == 1:
            return False
        index = self._view.index
        return not any(
            index.is_member(store_name, segment) and store.vouches_for(segment)
            for segment in (entry.id, SegmentId(entry.stream, entry.record.number - 1))
        )

    def _stranded(self, entry: SegmentEntry, home: Collection[Member], now: int) -> set[str]:
        """The stores that would need the segment of a whole log before this one first, and will not get it.

        A member is among them if it has lost its copy after it had left the copy set of the segment before.
        """
        before = SegmentId(entry.stream, entry.record.number - 1)
        names = {one.store for one in entry.record.copy_set} | {one.name for one in self._view.stores()}
        return {
            name
            for name in names - {one.store for one in home}
            if not self._view.index.is_member(name, before) and self._must_wait(entry, name, now)
        }

    def decide_drop(self, store_name: str, segment_id: SegmentId, now: int) -> Decision:
        """Drop a replica outside the copy set. While copies are missing, it may still become one."""
        segment = self._view.segment(segment_id)
        store = self._view.status(store_name, now)
        if segment is None or store is None or store.health is not Health.ALIVE:
            return Decision(None)
        plan = self._plan(segment, now, 0)
        if plan is None or store.member in segment.value.record.copy_set:
            return Decision(None)
        if not plan.is_settled:
            self._view.repairs.add_drops(store_name, [segment_id])
            return Decision(None)
        return decide_drop(segment, store)

    def decide_copied(self, store_name: str, report: Copied, now: int) -> Decision:
        """Count a copy that a store has reported."""
        segment = self._view.segment(report.segment)
        stream = self._view.metadata.stream(report.segment.stream)
        store = self._view.status(store_name, now)
        if segment is None or stream is None or store is None:
            return Decision(None)
        home = self._view.home(stream.value, now)
        return decide_copied(report, segment, stream.value, home, store, self._view.statuses(now))

    def _plan(self, segment: Versioned[SegmentEntry], now: int, choice: int) -> RepairPlan | None:
        """Return the plan for a sealed segment, or None if it is not sealed."""
        entry = segment.value
        stream = self._view.metadata.stream(entry.stream)
        if stream is None or entry.record.state is not SegmentState.SEALED:
            return None
        if stream.value.is_done(entry.record.number):
            return RepairPlan([], [], is_settled=True)
        under_way = self._view.repairs.copies_by_store(entry.stream)
        whole_log = stream.value.whole_log
        home = self._view.home(stream.value, now)

        def preference(store: StoreStatus) -> tuple[bool, int]:
            replicas = self._view.index.replica_count(store.name, entry.stream) + under_way[store.name]
            return self._view.repairs.has_tried(entry.id, store.name), replicas if whole_log else 0

        return plan_repair(
            entry,
            stream.value,
            home,
            self._view.statuses(now),
            preference,
            self._view.repairs.given_up(entry.id),
            self._stranded(entry, home, now) if whole_log else (),
            choice + entry.record.number,
        )
