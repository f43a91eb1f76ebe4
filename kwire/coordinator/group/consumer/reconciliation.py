"""Reconciliation of one member: the steps from its current assignment to its target assignment.

The member first revokes the partitions that are not in its target assignment. Until it has confirmed the revocation, it
keeps its epoch. Then it gets the target epoch and those new partitions that have no owner. It gets each of the other
new partitions when the partition's owner has revoked it.
"""

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from kwire.coordinator.group.consumer.members import (
    NO_PARTITIONS,
    CurrentAssignment,
    MemberState,
    Partitions,
    Target,
)
from kwire.errors import ErrorCode, KafkaError

# The partitions that a member reports as owned, by topic id; None if the heartbeat does not contain them.
Owned = Mapping[bytes, Collection[int]] | None


class ReconciliationInput(Struct, frozen=True, kw_only=True):
    """The input of a reconciliation step, besides the member's current assignment."""

    target_epoch: int
    target: Target
    # The topics that the member subscribes to now. Partitions of other topics are revoked, even if `target` has them.
    subscribed_ids: Collection[bytes]
    has_subscription_changed: bool
    owned: Owned
    # Returns whether no other member owns the partition.
    is_free: Callable[[bytes, int], bool]


def reconciled(current: CurrentAssignment, inputs: ReconciliationInput) -> CurrentAssignment:
    """Return the member's next assignment. Returns `current` itself if nothing changes."""
    state = current.state
    if state is MemberState.STABLE:
        if current.member_epoch != inputs.target_epoch:
            return _towards_target(current, current.member_epoch, inputs)
        return _without_unsubscribed(current, inputs) if inputs.has_subscription_changed else current
    if state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(inputs.owned, current.revoking):
            return _without_unsubscribed(current, inputs) if inputs.has_subscription_changed else current
        # The target epoch may still be the member's epoch: after a change of its subscription, a member may have
        # revoked partitions before the new target assignment is computed.
        epoch = min(current.member_epoch + 1, inputs.target_epoch)
        return _towards_target(current, epoch, inputs)
    if state is MemberState.UNRELEASED_PARTITIONS:
        return _towards_target(current, current.member_epoch, inputs)
    if inputs.owned is None or inputs.owned:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in a state that this version does not know. It must abandon all its partitions and rejoin.",
        )
    return _towards_target(current, inputs.target_epoch, inputs)


def _still_owns(owned: Owned, partitions: Partitions) -> bool:
    """Return whether the member still owns any of these partitions. True if it has not reported its partitions."""
    if owned is None:
        return True
    return any(
        not partitions[topic_id].keys().isdisjoint(indexes)
        for topic_id, indexes in owned.items()
        if topic_id in partitions
    )


def _towards_target(current: CurrentAssignment, epoch: int, inputs: ReconciliationInput) -> CurrentAssignment:
    assigned: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    is_waiting = False
    for topic_id in [*current.assigned, *(one for one in inputs.target if one not in current.assigned)]:
        has = current.assigned.get(topic_id, {})
        wanted = inputs.target.get(topic_id, frozenset()) if topic_id in inputs.subscribed_ids else frozenset()
        keeps = {index: at for index, at in has.items() if index in wanted}
        gives_up = {index: at for index, at in has.items() if index not in wanted}
        for index in sorted(wanted - has.keys()):
            if inputs.is_free(topic_id, index):
                keeps[index] = inputs.target_epoch
            else:
                is_waiting = True
        if gives_up:
            revoking[topic_id] = gives_up
        if keeps:
            assigned[topic_id] = keeps
    if revoking and _still_owns(inputs.owned, revoking):
        kept = {
            topic_id: left
            for topic_id, indexes in assigned.items()
            if (left := {index: at for index, at in indexes.items() if index in current.assigned.get(topic_id, {})})
        }
        return _changed(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _changed(current, inputs.target_epoch, state, assigned, NO_PARTITIONS)


def _changed(
    current: CurrentAssignment, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions
) -> CurrentAssignment:
    if (
        state is current.state
        and epoch == current.member_epoch
        and assigned == current.assigned
        and revoking == current.revoking
    ):
        return current
    return CurrentAssignment(
        member_epoch=epoch,
        previous_member_epoch=current.member_epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )


def _without_unsubscribed(current: CurrentAssignment, inputs: ReconciliationInput) -> CurrentAssignment:
    """Revoke the partitions of topics that the member no longer subscribes to.

    This does not wait for a new target assignment.
    """
    assigned = {one: indexes for one, indexes in current.assigned.items() if one in inputs.subscribed_ids}
    if len(assigned) == len(current.assigned):
        return current
    revoking = dict(current.revoking)
    for topic_id, indexes in current.assigned.items():
        if topic_id not in assigned:
            revoking[topic_id] = {**revoking.get(topic_id, {}), **indexes}
    if _still_owns(inputs.owned, revoking):
        return replace(current, state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned, revoking=revoking)
    return replace(current, assigned=assigned)
