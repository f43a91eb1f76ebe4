"""The way of one member from the partitions it has to those it shall have.

First it gives up what it shall not have; while it does, it stays at its epoch. Once it has said that it did, it comes
to the epoch of the target and is given what is free; what others still have follows when they give it up.
"""

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from kwire.coordinator.group.consumer.members import (
    NOTHING,
    CurrentAssignment,
    MemberState,
    Partitions,
    Target,
)
from kwire.errors import ErrorCode, KafkaError

# What a member says it has, by topic id; None if it says nothing about it.
Owned = Mapping[bytes, Collection[int]] | None


class Surroundings(Struct, frozen=True, kw_only=True):
    """All that a member's next step depends on besides the member."""

    target_epoch: int
    target: Target
    # Ids of the topics it is subscribed to now; what it has of others goes, whatever the target says.
    subscribed_ids: Collection[bytes]
    has_subscription_changed: bool
    owned: Owned
    # Whether a partition is with nobody else.
    is_free: Callable[[bytes, int], bool]


def reconciled(current: CurrentAssignment, around: Surroundings) -> CurrentAssignment:
    """The member's next state; the very same object if nothing moves."""
    state = current.state
    if state is MemberState.STABLE:
        if current.member_epoch != around.target_epoch:
            return _towards_target(current, current.member_epoch, around)
        return _without_unsubscribed(current, around) if around.has_subscription_changed else current
    if state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(around.owned, current.revoking):
            return _without_unsubscribed(current, around) if around.has_subscription_changed else current
        # A member that gave something up because its subscription changed may be here before there is a new target.
        epoch = min(current.member_epoch + 1, around.target_epoch)
        return _towards_target(current, epoch, around)
    if state is MemberState.UNRELEASED_PARTITIONS:
        return _towards_target(current, current.member_epoch, around)
    if around.owned is None or around.owned:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in a state that this version does not know. It must give up all its partitions and rejoin.",
        )
    return _towards_target(current, around.target_epoch, around)


def _still_owns(owned: Owned, partitions: Partitions) -> bool:
    """Whether the member has any of these. One that says nothing has not given them up yet."""
    if owned is None:
        return True
    return any(
        not partitions[topic_id].keys().isdisjoint(indexes)
        for topic_id, indexes in owned.items()
        if topic_id in partitions
    )


def _towards_target(current: CurrentAssignment, epoch: int, around: Surroundings) -> CurrentAssignment:
    assigned: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    is_waiting = False
    for topic_id in [*current.assigned, *(one for one in around.target if one not in current.assigned)]:
        has = current.assigned.get(topic_id, {})
        wanted = around.target.get(topic_id, frozenset()) if topic_id in around.subscribed_ids else frozenset()
        keeps = {index: at for index, at in has.items() if index in wanted}
        gives_up = {index: at for index, at in has.items() if index not in wanted}
        for index in sorted(wanted - has.keys()):
            if around.is_free(topic_id, index):
                keeps[index] = around.target_epoch
            else:
                is_waiting = True
        if gives_up:
            revoking[topic_id] = gives_up
        if keeps:
            assigned[topic_id] = keeps
    if revoking and _still_owns(around.owned, revoking):
        kept = {
            topic_id: left
            for topic_id, indexes in assigned.items()
            if (left := {index: at for index, at in indexes.items() if index in current.assigned.get(topic_id, {})})
        }
        return _moved(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _moved(current, around.target_epoch, state, assigned, NOTHING)


def _moved(
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


def _without_unsubscribed(current: CurrentAssignment, around: Surroundings) -> CurrentAssignment:
    """A member may not keep what it does not subscribe to any more, even while there is no target for that yet."""
    assigned = {one: indexes for one, indexes in current.assigned.items() if one in around.subscribed_ids}
    if len(assigned) == len(current.assigned):
        return current
    revoking = dict(current.revoking)
    for topic_id, indexes in current.assigned.items():
        if topic_id not in assigned:
            revoking[topic_id] = {**revoking.get(topic_id, {}), **indexes}
    if _still_owns(around.owned, revoking):
        return replace(current, state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned, revoking=revoking)
    return replace(current, assigned=assigned)
