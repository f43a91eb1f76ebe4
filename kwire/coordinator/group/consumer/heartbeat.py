"""ConsumerGroupHeartbeat: joins and heartbeats of members, and the answers to them.

A heartbeat is handled in three steps. Each step may write records:
1. Update the member's subscription.
2. If the subscription or topics have changed, increase the group epoch and compute a new target assignment.
3. Reconcile the member with its target assignment.

Most heartbeats change nothing and are answered after a few comparisons.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from kwire.access.scope import plain_part
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
from kwire.coordinator.group.consumer.reconciliation import Owned, ReconciliationInput, reconciled
from kwire.coordinator.group.consumer.regexes import NO_TOPICS, Resolution, TopicAccess
from kwire.coordinator.group.consumer.target import (
    metadata_hash,
    preferred_assignor,
    subscribed_by_any,
    target_assignment,
)
from kwire.coordinator.group.consumer.web_sessions import web_session_ms
from kwire.coordinator.group.settings import ConsumerSettings
from kwire.coordinator.log_records import KeyValue
from kwire.errors import ErrorCode, KafkaError

# The minimum time between two topic searches of a group, even if the topics change more often.
REGEX_REFRESH_MIN_MS = 1_000
# The pause between two chunks of a topic search.
SEARCH_PAUSE_MS = 5


def check_heartbeat(command: ConsumerHeartbeat, settings: ConsumerSettings) -> None:
    """Check the fields of a request that can be checked without the group. Raises KafkaError."""
    if not plain_part(command.group_id).strip():
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
    """Handle a heartbeat of a member that joins or stays. If this raises KafkaError, `result` is unchanged."""
    sender = _find_sender(group, command)
    subscription = _new_subscription(sender.subscription, command)
    if subscription.topic_regex:
        set_access(group, sender, subscription, command.topic_access)
    if (subscription is sender.subscription or subscription == sender.subscription) and is_up_to_date(group, sender):
        group.renew_session(sender.member_id, moment, web_session_ms(subscription))
        result.reply(command, _answer(group, command, sender, sender.current))
        return
    plan = Plan(group, sender, subscription)
    plan.subscribe()
    plan.search_topics(moment)
    plan.assign(moment)
    current = plan.reconcile(command.owned)
    if current is not sender.current:
        group.watch_revocation(sender.member_id, subscription, current, moment)
    group.renew_session(sender.member_id, moment, web_session_ms(subscription))
    result.records += plan.records
    result.reply(command, _answer(group, command, sender, current))


def set_access(group: ConsumerGroup, sender: "Sender", subscription: Subscription, access: TopicAccess | None) -> None:
    """Store which topics a member with a regular expression may describe."""
    regex, stored = subscription.topic_regex, None
    if sender.member_id in group.members and regex == sender.subscription.topic_regex:
        stored = group.resolved.get(regex)
    group.visibility.set(sender.member_id, regex, access, stored)


def continue_topic_search(group: ConsumerGroup, moment: Moment, result: Result) -> None:
    """Run the next chunk of the group's topic search. After the last chunk, write the result as records."""
    resolution = group.resolution
    if resolution is None:
        return
    if not resolution.advance():
        group.wake_by(moment.steady_ms + SEARCH_PAUSE_MS)
        return
    subscriptions = {one.member_id: one.subscription for one in group.members.values()}
    regexes = _regexes(subscriptions)
    found = _finish_search(group, resolution, regexes, moment, result.records)
    if found or group.visibility.is_changed:
        names = subscribed_by_any(subscriptions.values(), {**group.resolved, **found})
        raise_epoch(group, metadata_hash(names, group.topics), result.records)
    outdated = group.visibility.outdated(regexes, resolution.revision)
    if outdated:
        # Members have joined, or rights have changed, during the search.
        group.resolution = group.resolver.begin(set(regexes.values()), outdated, group.prefix)
        group.wake_by(moment.steady_ms + SEARCH_PAUSE_MS)


def _regexes(subscriptions: Mapping[str, Subscription]) -> dict[str, str]:
    """Return the regular expression of each member that has one."""
    return {one: subscription.topic_regex for one, subscription in subscriptions.items() if subscription.topic_regex}


# The member


class Sender(Struct, frozen=True):
    """The member that sent the request: its state before the request, and the static member that it replaces."""

    member_id: str
    subscription: Subscription
    current: CurrentAssignment
    replaces: ConsumerMember | None = None


def _find_sender(group: ConsumerGroup, command: ConsumerHeartbeat) -> Sender:
    member_id = command.member_id or command.fresh_id
    check_room(group, member_id)
    member = group.members.get(member_id)
    if command.member_epoch == JOINING_EPOCH:
        if command.instance_id is None or (static_id := group.static_members.get(command.instance_id)) is None:
            if member is None:
                return Sender(member_id, NEW_SUBSCRIPTION, NEW_ASSIGNMENT)
            return Sender(member_id, member.subscription, member.current)
        return _rejoining_static(group.members[static_id], member_id, command.instance_id)
    if command.instance_id is not None:
        member = group.static_member(command.instance_id, member_id)
    else:
        member = group.member(member_id)
    _check_epoch(member.current, command.member_epoch, command.owned)
    return Sender(member_id, member.subscription, member.current)


def _rejoining_static(old: ConsumerMember, member_id: str, instance_id: str) -> Sender:
    if old.current.member_epoch != LEAVING_STATIC_EPOCH and not old.is_classic:
        # The instance id is in use until its member leaves or the member's session expires. The member itself may
        # rejoin.
        if old.member_id == member_id:
            return Sender(member_id, old.subscription, old.current)
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {old.member_id} member.",
        )
    current = replace(old.current, member_epoch=0, previous_member_epoch=0)
    return Sender(member_id, old.subscription, current, replaces=old)


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
    if epoch == current.previous_member_epoch and epoch < known and _is_subset(owned, current.assigned):
        # The member may not have received the answer with its new epoch.
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if epoch > known else 'smaller'} member epoch ({epoch}) than the "
        f"one known by the group coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Owned, assigned: Partitions) -> bool:
    return owned is not None and all(
        topic_id in assigned and assigned[topic_id].keys() >= set(indexes) for topic_id, indexes in owned.items()
    )


def _new_subscription(before: Subscription, command: ConsumerHeartbeat) -> Subscription:
    """Return the member's new subscription. Fields that the heartbeat omits keep their values."""
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
        # This is a fast path: nearly every heartbeat leaves the subscription unchanged.
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


def is_up_to_date(group: ConsumerGroup, sender: Sender) -> bool:
    """Return whether the heartbeat changes nothing.

    That is so if the member has its target assignment, and neither topics nor the member's rights have changed.
    """
    return (
        sender.replaces is None
        and group.seen_revision == group.topics.revision
        and group.group_epoch == group.target_epoch != 0
        and sender.current.is_reconciled_to(group.target_epoch)
        and sender.member_id in group.members
        and not group.visibility.is_changed
        and (
            not sender.subscription.topic_regex
            or group.visibility.is_current(sender.member_id, sender.subscription.topic_regex)
        )
    )


def _answer(
    group: ConsumerGroup, command: ConsumerHeartbeat, sender: Sender, current: CurrentAssignment
) -> ConsumerHeartbeatAnswer:
    """Return the answer, with the assignment if it changes or if the member joins or sends all fields.

    A member that sends all fields may not have received the previous answer.
    """
    is_full = (
        command.rebalance_timeout_ms != NO_TIMEOUT
        and (command.subscribed_topic_names is not None or command.subscribed_topic_regex is not None)
        and command.owned is not None
    )
    sends_assignment = (
        command.member_epoch == JOINING_EPOCH or is_full or not _is_same(current.assigned, sender.current.assigned)
    )
    return ConsumerHeartbeatAnswer(
        error=ErrorCode.NONE,
        member_id=sender.member_id,
        member_epoch=current.member_epoch,
        heartbeat_interval_ms=group.settings.heartbeat_interval_ms,
        assignment=ascending(current.assigned) if sends_assignment else None,
    )


def _is_same(one: Partitions, other: Partitions) -> bool:
    """Return whether the partitions are the same. The epochs at which they were assigned may differ."""
    return one is other or (
        one.keys() == other.keys() and all(one[topic_id].keys() == other[topic_id].keys() for topic_id in one)
    )


# The group


class Plan:
    """Collects the records of one heartbeat or join. The group changes when the records are applied."""

    def __init__(self, group: ConsumerGroup, sender: Sender, subscription: Subscription) -> None:
        self.records: list[KeyValue] = []
        self._group = group
        self._sender = sender
        self._subscription = subscription
        self._has_new_names = subscription.topic_names != sender.subscription.topic_names
        self._has_new_regex = subscription.topic_regex != sender.subscription.topic_regex
        self.target_epoch = group.target_epoch
        # Whether the target assignment was computed for the newest group epoch.
        self.is_target_current = True
        before_id = sender.member_id if sender.replaces is None else sender.replaces.member_id
        self._target: Target = group.targets.get(before_id, NO_TARGET)
        self._resolved: Mapping[str, frozenset[str]] = group.resolved
        # The expressions whose topics have changed, with their new topics.
        self._found: Mapping[str, frozenset[str]] = {}
        # Whether topics have changed since the last topic search and no new search has finished.
        self._is_search_due = False
        # The subscriptions of all members after this heartbeat's records are applied.
        self._all_subscriptions = {one.member_id: one.subscription for one in group.members.values()}
        self._all_subscriptions.pop(before_id, None)
        self._all_subscriptions[sender.member_id] = subscription

    def subscribe(self) -> None:
        group, sender = self._group, self._sender
        if sender.replaces is not None:
            # The new process gets the state of the old process, with epoch 0. If the member id is the same, the old
            # records are overwritten and need no tombstones.
            if sender.replaces.member_id != sender.member_id:
                self.records += records.member_tombstones(group.group_id, sender.replaces.member_id)
            self.records.append(records.subscription_record(group.group_id, sender.member_id, sender.subscription))
            self.records.append(records.target_record(group.group_id, sender.member_id, self._target))
            self.records.append(records.assignment_record(group.group_id, sender.member_id, sender.current))
        if self._subscription != sender.subscription or (
            sender.member_id not in group.members and sender.replaces is None
        ):
            self.records.append(records.subscription_record(group.group_id, sender.member_id, self._subscription))
        if self._has_new_regex:
            if self._subscription.topic_regex and not group.regex_members(self._subscription.topic_regex):
                check_pattern(self._subscription.topic_regex)
            old = sender.subscription.topic_regex
            if old in group.resolved and all(one.topic_regex != old for one in self._all_subscriptions.values()):
                self.records.append(records.regex_tombstone(group.group_id, old))
                self._resolved = {regex: topics for regex, topics in self._resolved.items() if regex != old}

    def search_topics(self, moment: Moment) -> None:
        """Search for the topics that match the members' expressions, if that is necessary.

        A search is necessary if an expression has no result yet, or if topics or the rights of the member have changed
        since the last search. This runs the first chunk of the search. `continue_topic_search` runs further chunks if
        there are many topics.
        """
        group = self._group
        regexes = _regexes(self._all_subscriptions)
        wanted = set(regexes.values())
        group.visibility.keep(regexes)
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
        regex = self._subscription.topic_regex
        has_rights = not regex or group.visibility.is_current(self._sender.member_id, regex)
        if wanted <= self._resolved.keys() and has_rights and (is_early or not self._is_search_due):
            return
        outdated = group.visibility.outdated(regexes, group.topics.revision)
        group.resolution = resolution = group.resolver.begin(wanted, outdated, group.prefix)
        if not resolution.advance():
            group.wake_by(moment.steady_ms + SEARCH_PAUSE_MS)
            return
        self._found = _finish_search(group, resolution, regexes, moment, self.records)
        self._resolved = {**self._resolved, **self._found}
        self._is_search_due = False

    def assign(self, moment: Moment) -> None:
        group = self._group
        is_regex_known = not self._subscription.topic_regex or self._subscription.topic_regex in self._resolved
        has_change = (
            group.group_epoch == 0
            or self._has_new_names
            # For an expression without a result, the epoch is increased when the topic search has finished.
            or (self._has_new_regex and is_regex_known)
            or bool(self._found)
            or group.visibility.is_changed
        )
        epoch = group.group_epoch
        if has_change or group.seen_revision != group.topics.revision:
            found_hash = metadata_hash(
                subscribed_by_any(self._all_subscriptions.values(), self._resolved), group.topics
            )
            if has_change or found_hash != group.metadata_hash:
                epoch = raise_epoch(group, found_hash, self.records)
            elif not self._is_search_due and group.resolution is None:
                group.seen_revision = group.topics.revision
        if epoch > group.target_epoch and group.may_assign(moment):
            self._compute_target(epoch, moment)
        self.is_target_current = epoch == self.target_epoch

    def _compute_target(self, epoch: int, moment: Moment) -> None:
        group, sender = self._group, self._sender
        before = dict(group.targets)
        if sender.replaces is not None:
            before.pop(sender.replaces.member_id, None)
            before[sender.member_id] = self._target
        assignor = preferred_assignor(self._all_subscriptions.values(), group.settings.assignors)
        after = target_assignment(self._all_subscriptions, before, self._names_of, group.topics, assignor)
        for member_id, target in after.items():
            if target != before.get(member_id):
                self.records.append(records.target_record(group.group_id, member_id, target))
        self.records.append(records.target_epoch_record(group.group_id, epoch, moment.wall_ms))
        group.target_ms = moment.steady_ms
        partition_count = sum(len(indexes) for target in after.values() for indexes in target.values())
        group.target_size = partition_count + len(after)
        self.target_epoch = epoch
        self._target = after[sender.member_id]

    def _names_of(self, member_id: str, subscription: Subscription) -> frozenset[str]:
        """Return the topics that a member subscribes to by name or by its regular expression."""
        regex = subscription.topic_regex
        matched = self._group.visibility.of(member_id, regex, self._resolved) if regex else None
        return subscription.topic_names if not matched else subscription.topic_names | matched

    def reconcile(self, owned: Owned) -> CurrentAssignment:
        group, sender = self._group, self._sender
        has_changed = self._has_new_names or self._has_new_regex or group.visibility.is_changed
        if not has_changed and sender.current.is_reconciled_to(self.target_epoch):
            return sender.current
        ids = {
            shape.topic_id
            for name in self._names_of(sender.member_id, self._subscription)
            if (shape := group.topics.find(name)) is not None
        }
        own_ids = (sender.member_id,) if sender.replaces is None else (sender.member_id, sender.replaces.member_id)
        inputs = ReconciliationInput(
            target_epoch=self.target_epoch,
            target=self._target,
            subscribed_ids=ids,
            has_subscription_changed=has_changed,
            owned=owned,
            is_free=lambda topic_id, index: group.is_free(topic_id, index, own_ids),
        )
        current = reconciled(sender.current, inputs)
        if current is not sender.current:
            self.records.append(records.assignment_record(group.group_id, sender.member_id, current))
        return current


def raise_epoch(group: ConsumerGroup, found_hash: int, into: list[KeyValue]) -> int:
    """Increase the group epoch. The caller or a later heartbeat of any member computes the new target assignment."""
    epoch = group.group_epoch + 1
    into.append(records.group_epoch_record(group.group_id, epoch, found_hash))
    if group.has_partition_metadata:
        into.append(records.group_tombstone(records.PARTITION_METADATA, group.group_id))
    return epoch


def _finish_search(
    group: ConsumerGroup, resolution: Resolution, regexes: Mapping[str, str], moment: Moment, into: list[KeyValue]
) -> dict[str, frozenset[str]]:
    """End a topic search. Write records for the expressions whose topics have changed, and return these expressions.

    `regexes` has the expression of each member.
    """
    group.resolver.cache_result(resolution)
    group.resolution = None
    group.regexes_searched_ms = moment.steady_ms
    group.visibility.update(resolution.visible)
    wanted = set(regexes.values())
    topics_of = {
        regex: group.visibility.union(regexes, regex, matches, group.resolved.get(regex, NO_TOPICS))
        for regex, matches in resolution.topics.items()
        if regex in wanted
    }
    new = {regex: topics for regex, topics in topics_of.items() if group.resolved.get(regex) != topics}
    for regex, topics in new.items():
        into.append(records.regex_record(group.group_id, regex, topics, resolution.revision, moment.wall_ms))
    if not new:
        # If there are changes, the revision is not stored yet, because the append of the records may fail. The next
        # search that finds no change stores the revision.
        group.regexes_revision = resolution.revision
    return new
