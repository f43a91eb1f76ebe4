"""ConsumerGroupHeartbeat: what a heartbeat changes, and what the member is told.

Three steps, each of which may write records: the member (who is it, what does it say of itself), the group (does that,
or a change of topics, need a new group epoch, and with it a new target), and the member's own way to the target. Most
heartbeats change nothing; they are answered after a few comparisons.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from kwire.broker.internal_records import KeyValue
from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.group.consumer import records
from kwire.coordinator.group.consumer.commands import NO_TIMEOUT, ConsumerHeartbeat, ConsumerHeartbeatAnswer
from kwire.coordinator.group.consumer.group import ConsumerGroup, ascending
from kwire.coordinator.group.consumer.members import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NEW_ASSIGNMENT,
    NEW_SUBSCRIPTION,
    NO_TARGET,
    ConsumerMember,
    CurrentAssignment,
    Partitions,
    Subscription,
    Target,
)
from kwire.coordinator.group.consumer.patterns import check_pattern
from kwire.coordinator.group.consumer.reconciliation import Owned, Surroundings, reconciled
from kwire.coordinator.group.consumer.regexes import Resolution
from kwire.coordinator.group.consumer.target import (
    metadata_hash,
    preferred_assignor,
    subscribed_by_any,
    subscribed_names,
    target_assignment,
)
from kwire.coordinator.group.consumer.web_sessions import web_session_ms
from kwire.coordinator.group.settings import ConsumerSettings
from kwire.errors import ErrorCode, KafkaError

# New topics are looked for no more often than this while a catalogue keeps changing.
REGEX_REFRESH_MIN_MS = 1_000
# The pause between two turns of a search among many topics.
SEARCH_PAUSE_MS = 5


def check_heartbeat(command: ConsumerHeartbeat, settings: ConsumerSettings) -> None:
    """What can be said of a request alone. Raises KafkaError."""
    if not command.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if not command.member_id.strip() and (command.brings_member_id or command.member_epoch != JOINING_EPOCH):
        raise _invalid("MemberId can't be empty.")
    if command.instance_id is not None and not command.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if command.rack_id is not None and not command.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if command.member_epoch == JOINING_EPOCH:
        if command.rebalance_timeout_ms == NO_TIMEOUT:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if command.owned is None or command.owned:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if command.subscribed_topic_names is None and command.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif command.member_epoch == LEAVING_STATIC_EPOCH:
        if command.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif command.member_epoch < LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if command.server_assignor is not None and command.server_assignor not in settings.assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {command.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(settings.assignors)}.",
        )


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


def heartbeat(group: ConsumerGroup, command: ConsumerHeartbeat, moment: Moment, result: Result) -> None:
    """A member joins or goes on. Raises KafkaError before anything is decided."""
    who = _find(group, command)
    said = _said(who.said, command)
    if (said is who.said or said == who.said) and is_settled(group, who):
        group.renew_session(who.member_id, moment, web_session_ms(said))
        result.reply(command, _answer(group, command, who, who.current))
        return
    plan = Plan(group, who, said)
    plan.subscribe()
    plan.search_topics(moment)
    plan.assign(moment)
    current = plan.reconcile(command.owned)
    if current is not who.current:
        group.watch_revocation(who.member_id, said, current, moment)
    group.renew_session(who.member_id, moment, web_session_ms(said))
    result.records += plan.records
    result.reply(command, _answer(group, command, who, current))


def go_on_searching(group: ConsumerGroup, moment: Moment, result: Result) -> None:
    """The next turn of a search for topics; when it is over, the group learns what was found."""
    resolution = group.resolution
    if resolution is None:
        return
    if not resolution.advance():
        group.wake_by(moment.steady_ms + SEARCH_PAUSE_MS)
        return
    everybody = {one.member_id: one.subscription for one in group.members.values()}
    wanted = {said.topic_regex for said in everybody.values() if said.topic_regex}
    found = _take_found(group, resolution, wanted, moment, result.records)
    if found:
        names = subscribed_by_any(everybody.values(), {**group.resolved, **found})
        raise_epoch(group, metadata_hash(names, group.topics), result.records)


# The member


class Who(Struct, frozen=True):
    """The member that asks: what is known of it, and of the process it takes the place of."""

    member_id: str
    said: Subscription
    current: CurrentAssignment
    replaces: ConsumerMember | None = None


def _find(group: ConsumerGroup, command: ConsumerHeartbeat) -> Who:
    member_id = command.member_id or command.fresh_id
    check_room(group, member_id)
    member = group.members.get(member_id)
    if command.member_epoch == JOINING_EPOCH:
        if command.instance_id is None or (static_id := group.static_members.get(command.instance_id)) is None:
            if member is None:
                return Who(member_id, NEW_SUBSCRIPTION, NEW_ASSIGNMENT)
            return Who(member_id, member.subscription, member.current)
        return _rejoining_static(group.members[static_id], member_id, command.instance_id)
    if command.instance_id is not None:
        member = group.static_member(command.instance_id, member_id)
    else:
        member = group.member(member_id)
    _check_epoch(member.current, command.member_epoch, command.owned)
    return Who(member_id, member.subscription, member.current)


def _rejoining_static(old: ConsumerMember, member_id: str, instance_id: str) -> Who:
    if old.current.member_epoch != LEAVING_STATIC_EPOCH and not old.is_classic:
        # Its place is taken until it leaves or its session ends. The same process may begin again.
        if old.member_id == member_id:
            return Who(member_id, old.subscription, old.current)
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {old.member_id} member.",
        )
    current = replace(old.current, member_epoch=0, previous_member_epoch=0)
    return Who(member_id, old.subscription, current, replaces=old)


def check_room(group: ConsumerGroup, member_id: str) -> None:
    max_size = group.settings.max_size
    if len(group.members) >= max_size and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
        )


def _check_epoch(current: CurrentAssignment, epoch: int, owned: Owned) -> None:
    known = current.member_epoch
    if epoch == known:
        return
    if epoch == current.previous_member_epoch and epoch < known and _has_no_more_than(owned, current.assigned):
        # The answer with the new epoch may have been lost.
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if epoch > known else 'smaller'} member epoch ({epoch}) than the "
        f"one known by the group coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def _has_no_more_than(owned: Owned, assigned: Partitions) -> bool:
    return owned is not None and all(
        topic_id in assigned and assigned[topic_id].keys() >= set(indexes) for topic_id, indexes in owned.items()
    )


def _said(before: Subscription, command: ConsumerHeartbeat) -> Subscription:
    """What the member says of itself now: what it leaves out is as before."""
    names, regex = command.subscribed_topic_names, command.subscribed_topic_regex
    if (
        names is None
        and regex is None
        and command.rebalance_timeout_ms == NO_TIMEOUT
        and command.rack_id is None
        and command.server_assignor is None
        and before.classic is None
        and command.instance_id in (None, before.instance_id)
        and command.client_id == before.client_id
        and command.client_host == before.client_host
    ):
        # Nearly every heartbeat.
        return before
    return Subscription(
        instance_id=before.instance_id if command.instance_id is None else command.instance_id,
        rack_id=before.rack_id if command.rack_id is None else command.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topic_names=before.topic_names if names is None else names,
        topic_regex=before.topic_regex if regex is None else regex,
        server_assignor=before.server_assignor if command.server_assignor is None else command.server_assignor,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if command.rebalance_timeout_ms == NO_TIMEOUT else command.rebalance_timeout_ms
        ),
    )


def is_settled(group: ConsumerGroup, who: Who) -> bool:
    return (
        who.replaces is None
        and group.seen_revision == group.topics.revision
        and group.group_epoch == group.target_epoch != 0
        and who.current.is_reconciled_to(group.target_epoch)
        and who.member_id in group.members
    )


def _answer(
    group: ConsumerGroup, command: ConsumerHeartbeat, who: Who, current: CurrentAssignment
) -> ConsumerHeartbeatAnswer:
    """A member that says all of itself may have lost what it was told: it is told its assignment again."""
    is_full = (
        command.rebalance_timeout_ms != NO_TIMEOUT
        and (command.subscribed_topic_names is not None or command.subscribed_topic_regex is not None)
        and command.owned is not None
    )
    is_told = command.member_epoch == JOINING_EPOCH or is_full or not _is_same(current.assigned, who.current.assigned)
    return ConsumerHeartbeatAnswer(
        error=ErrorCode.NONE,
        member_id=who.member_id,
        member_epoch=current.member_epoch,
        heartbeat_interval_ms=group.settings.heartbeat_interval_ms,
        assignment=ascending(current.assigned) if is_told else None,
    )


def _is_same(one: Partitions, other: Partitions) -> bool:
    """Whether these are the same partitions, whenever they were given."""
    return one is other or (
        one.keys() == other.keys() and all(one[topic_id].keys() == other[topic_id].keys() for topic_id in one)
    )


# The group


class Plan:
    """What one heartbeat, or join, wants to change. Nothing of the group changes before the records are applied."""

    def __init__(self, group: ConsumerGroup, who: Who, said: Subscription) -> None:
        self.records: list[KeyValue] = []
        self._group = group
        self._who = who
        self._said = said
        self._has_new_names = said.topic_names != who.said.topic_names
        self._has_new_regex = said.topic_regex != who.said.topic_regex
        self.target_epoch = group.target_epoch
        # Whether this plan ends with a target for the newest epoch of the group.
        self.is_target_current = True
        before_id = who.member_id if who.replaces is None else who.replaces.member_id
        self._target: Target = group.targets.get(before_id, NO_TARGET)
        self._resolved: Mapping[str, frozenset[str]] = group.resolved
        # Expressions of which this heartbeat found other topics than before, and whether a search has to wait.
        self._found: Mapping[str, frozenset[str]] = {}
        self._is_search_due = False
        # Everybody's words once this heartbeat is applied.
        self._everybody = {one.member_id: one.subscription for one in group.members.values()}
        self._everybody.pop(before_id, None)
        self._everybody[who.member_id] = said

    def subscribe(self) -> None:
        group, who = self._group, self._who
        if who.replaces is not None:
            # The new process takes over all that the old one had, at epoch 0. The same process may come back: it stays.
            if who.replaces.member_id != who.member_id:
                self.records += records.member_tombstones(group.group_id, who.replaces.member_id)
            self.records.append(records.subscription_record(group.group_id, who.member_id, who.said))
            self.records.append(records.target_record(group.group_id, who.member_id, self._target))
            self.records.append(records.assignment_record(group.group_id, who.member_id, who.current))
        if self._said != who.said or (who.member_id not in group.members and who.replaces is None):
            self.records.append(records.subscription_record(group.group_id, who.member_id, self._said))
        if self._has_new_regex:
            if self._said.topic_regex and not group.regex_members(self._said.topic_regex):
                check_pattern(self._said.topic_regex)
            old = who.said.topic_regex
            if old in group.resolved and all(one.topic_regex != old for one in self._everybody.values()):
                self.records.append(records.regex_tombstone(group.group_id, old))
                self._resolved = {regex: topics for regex, topics in self._resolved.items() if regex != old}

    def search_topics(self, moment: Moment) -> None:
        """Find out what expressions mean, if that is not known or topics have changed; at once if there are few."""
        group = self._group
        wanted = {said.topic_regex for said in self._everybody.values() if said.topic_regex}
        if not wanted:
            group.resolution = None
            return
        if group.resolution is not None and group.resolution.wanted >= wanted:
            return
        self._is_search_due = group.regexes_revision != group.topics.revision
        is_early = (
            group.regexes_searched_ms is not None
            and moment.steady_ms < group.regexes_searched_ms + REGEX_REFRESH_MIN_MS
        )
        if wanted <= self._resolved.keys() and (is_early or not self._is_search_due):
            return
        group.resolution = resolution = group.resolver.begin(wanted)
        if not resolution.advance():
            group.wake_by(moment.steady_ms + SEARCH_PAUSE_MS)
            return
        self._found = _take_found(group, resolution, wanted, moment, self.records)
        self._resolved = {**self._resolved, **self._found}
        self._is_search_due = False

    def assign(self, moment: Moment) -> None:
        group = self._group
        is_regex_known = not self._said.topic_regex or self._said.topic_regex in self._resolved
        has_change = (
            group.group_epoch == 0
            or self._has_new_names
            # An expression that is not resolved yet brings its own change when it is.
            or (self._has_new_regex and is_regex_known)
            or bool(self._found)
        )
        epoch = group.group_epoch
        if has_change or group.seen_revision != group.topics.revision:
            found_hash = metadata_hash(subscribed_by_any(self._everybody.values(), self._resolved), group.topics)
            if has_change or found_hash != group.metadata_hash:
                epoch = raise_epoch(group, found_hash, self.records)
            elif not self._is_search_due and group.resolution is None:
                group.seen_revision = group.topics.revision
        if epoch > group.target_epoch and group.may_assign(moment):
            self._compute_target(epoch, moment)
        self.is_target_current = epoch == self.target_epoch

    def _compute_target(self, epoch: int, moment: Moment) -> None:
        group, who = self._group, self._who
        before = dict(group.targets)
        if who.replaces is not None:
            before.pop(who.replaces.member_id, None)
            before[who.member_id] = self._target
        assignor = preferred_assignor(self._everybody.values(), group.settings.assignors)
        after = target_assignment(self._everybody, before, self._resolved, group.topics, assignor)
        for member_id, target in after.items():
            if target != before.get(member_id):
                self.records.append(records.target_record(group.group_id, member_id, target))
        self.records.append(records.target_epoch_record(group.group_id, epoch, moment.wall_ms))
        group.target_ms = moment.steady_ms
        partition_count = sum(len(indexes) for target in after.values() for indexes in target.values())
        group.target_size = partition_count + len(after)
        self.target_epoch = epoch
        self._target = after[who.member_id]

    def reconcile(self, owned: Owned) -> CurrentAssignment:
        group, who = self._group, self._who
        has_changed = self._has_new_names or self._has_new_regex
        if not has_changed and who.current.is_reconciled_to(self.target_epoch):
            return who.current
        ids = {
            shape.topic_id
            for name in subscribed_names(self._said, self._resolved)
            if (shape := group.topics.find(name)) is not None
        }
        own_ids = (who.member_id,) if who.replaces is None else (who.member_id, who.replaces.member_id)
        around = Surroundings(
            target_epoch=self.target_epoch,
            target=self._target,
            subscribed_ids=ids,
            has_subscription_changed=has_changed,
            owned=owned,
            is_free=lambda topic_id, index: group.is_free(topic_id, index, own_ids),
        )
        current = reconciled(who.current, around)
        if current is not who.current:
            self.records.append(records.assignment_record(group.group_id, who.member_id, current))
        return current


def raise_epoch(group: ConsumerGroup, found_hash: int, into: list[KeyValue]) -> int:
    """The next group epoch: everybody's target is computed anew, at the latest with the next heartbeat of anybody."""
    epoch = group.group_epoch + 1
    into.append(records.group_epoch_record(group.group_id, epoch, found_hash))
    if group.has_partition_metadata:
        into.append(records.group_tombstone(records.PARTITION_METADATA, group.group_id))
    return epoch


def _take_found(
    group: ConsumerGroup, resolution: Resolution, wanted: set[str], moment: Moment, into: list[KeyValue]
) -> dict[str, frozenset[str]]:
    """A search is over: write down what is new in it, and return that."""
    group.resolver.keep(resolution)
    group.resolution = None
    group.regexes_searched_ms = moment.steady_ms
    new = {
        regex: topics
        for regex, topics in resolution.topics.items()
        if regex in wanted and group.resolved.get(regex) != topics
    }
    for regex, topics in new.items():
        into.append(records.regex_record(group.group_id, regex, topics, resolution.revision, moment.wall_ms))
    if not new:
        # What is new counts as found only when it has been applied, that is, when the next search finds the same.
        group.regexes_revision = resolution.revision
    return new
