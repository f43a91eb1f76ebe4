"""A consumer group: its members, their target and current assignments, and all deadlines.

    Empty -- join --> Assigning -- target computed --> Reconciling -- every member has its target --> Stable
    any state -- join, leave, expiry, change of topics or subscriptions --> Assigning

The state is built from the group's records and changes only in `apply`, one record at a time. A compacted log may
contain the records in another order, but the resulting state is the same. A restart resets the deadlines. It also stops
a topic search, and the next heartbeat starts a new search.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from kwire.access.scope import prefix_of
from kwire.coordinator.decisions import Moment
from kwire.coordinator.group.commands import CommitOffsets, CommittedOffset, FetchOffsets
from kwire.coordinator.group.consumer import records
from kwire.coordinator.group.consumer.commands import DescribeConsumerAnswer, DescribedConsumer
from kwire.coordinator.group.consumer.members import (
    LEAVING_EPOCH,
    NO_TARGET,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
    Subscription,
    Target,
)
from kwire.coordinator.group.consumer.records import ConsumerGroupRecord
from kwire.coordinator.group.consumer.regexes import RegexResolver, Resolution, Visibility
from kwire.coordinator.group.consumer.target import preferred_assignor, subscribed_by_any
from kwire.coordinator.group.consumer.web_sessions import web_session_ms
from kwire.coordinator.group.settings import ConsumerSettings
from kwire.coordinator.group.topics_view import TopicsView
from kwire.coordinator.log_records import KeyValue
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.types import ZERO_UUID

CONSUMER = "consumer"
# The time after which the removal of an expired member is retried if the append of its records has failed.
RETRY_MS = 1_000
# The maximum number of members that one decision removes. Their tombstones must fit into one batch.
EXPIRED_MEMBERS_MAX = 1_000
NO_INDEXES: Mapping[int, int] = {}


class ConsumerGroup:
    """One consumer group. Its shard makes one decision at a time, and applies the records before the next decision."""

    __slots__ = (
        "_settings_of",
        "_subscribed",
        "armed_ms",
        "group_epoch",
        "group_id",
        "has_partition_metadata",
        "join_deadlines_ms",
        "members",
        "metadata_hash",
        "owners",
        "prefix",
        "rebalance_deadlines_ms",
        "regexes_revision",
        "regexes_searched_ms",
        "resolution",
        "resolved",
        "resolver",
        "seen_revision",
        "session_deadlines_ms",
        "settings",
        "static_members",
        "sync_deadlines_ms",
        "target_epoch",
        "target_ms",
        "target_size",
        "target_wall_ms",
        "targets",
        "topics",
        "visibility",
        "wake_ms",
    )

    def __init__(
        self,
        group_id: str,
        topics: TopicsView,
        resolver: RegexResolver,
        settings_of: Callable[[str], ConsumerSettings],
    ) -> None:
        self.group_id = group_id
        # The prefix of the group's scope. Members of the group use plain names of the same scope.
        self.prefix = prefix_of(group_id)
        self.topics = topics
        self.resolver = resolver
        self._settings_of = settings_of
        self.settings = settings_of(group_id)

        self.group_epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        # The wall-clock time at which the newest target assignment was computed; 0 if it is unknown.
        self.target_wall_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Target] = {}
        # The matching topics of each subscribed expression whose topic search has finished: those that at least one of
        # its members may describe.
        self.resolved: dict[str, frozenset[str]] = {}
        # Whether the log has a partition metadata record of this group. Kafka before 4.1 wrote the subscribed topics
        # into such a record; newer versions store only a hash.
        self.has_partition_metadata = False

        # The owner of each partition and the member id of each instance id, derived from the records.
        self.owners: dict[tuple[bytes, int], str] = {}
        self.static_members: dict[str, str] = {}
        self._subscribed: frozenset[str] | None = None

        # The revision of the topic list at which `metadata_hash` was last verified.
        self.seen_revision: int | None = None
        # The revision of the topic list at which `resolved` was last verified, the time of the last topic search, and
        # the topic search in progress.
        self.regexes_revision: int | None = None
        self.regexes_searched_ms: int | None = None
        self.resolution: Resolution | None = None
        # The members' rights on the topics that match their expressions.
        self.visibility = Visibility()
        # The time at which the target assignment was last computed, and its size: the number of partitions plus the
        # number of members.
        self.target_ms: int | None = None
        self.target_size = 0
        self.session_deadlines_ms: dict[str, int] = {}
        # The deadlines for members to revoke partitions.
        self.rebalance_deadlines_ms: dict[str, int] = {}
        # The deadlines for classic members to rejoin, and to send SyncGroup after a join.
        self.join_deadlines_ms: dict[str, int] = {}
        self.sync_deadlines_ms: dict[str, int] = {}
        self.wake_ms: int | None = None
        self.armed_ms: int | None = None

    # State queries

    @property
    def kind(self) -> str:
        return CONSUMER

    @property
    def listed_protocol_type(self) -> str:
        return CONSUMER

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.group_epoch > self.target_epoch:
            return "Assigning"
        is_reconciled = all(one.current.is_reconciled_to(self.target_epoch) for one in self.members.values())
        return "Stable" if is_reconciled else "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_discardable(self) -> bool:
        """Whether the group can be removed from memory: it has no records, and no member is joining.

        A joining member has a session deadline even before its records are applied.
        """
        return self.group_epoch == 0 and not self.members and not self.session_deadlines_ms

    @property
    def is_retained_when_empty(self) -> bool:
        return self._settings_of(self.group_id).is_retained_when_empty

    @property
    def subscribed(self) -> frozenset[str]:
        """All topics that any member subscribes to."""
        if self._subscribed is None:
            subscriptions = (one.subscription for one in self.members.values())
            self._subscribed = subscribed_by_any(subscriptions, self.resolved)
        return self._subscribed

    @property
    def assignor(self) -> str:
        return preferred_assignor((one.subscription for one in self.members.values()), self.settings.assignors)

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscribed

    def may_assign(self, moment: Moment) -> bool:
        """Return whether a new target assignment may be computed now.

        If the last target assignment was larger than `assigned_at_once_max`, a new one is computed at most once per
        `assignment_interval_ms`. Until then, new members have no partitions. The first heartbeat after this interval
        computes the target assignment.
        """
        return (
            self.target_epoch == 0
            or self.target_ms is None
            or self.target_size <= self.settings.assigned_at_once_max
            or moment.steady_ms >= self.target_ms + self.settings.assignment_interval_ms
        )

    def is_free(self, topic_id: bytes, index: int, member_ids: Collection[str]) -> bool:
        """Return whether a partition has no owner or is owned by one of these members."""
        owner = self.owners.get((topic_id, index))
        return owner is None or owner in member_ids

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """Return the static member. Raises KafkaError if the instance id is unknown or now has another member id."""
        current_id = self.static_members.get(instance_id)
        if current_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if current_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {current_id}.",
            )
        return self.members[current_id]

    def regex_members(self, regex: str) -> list[str]:
        return [one.member_id for one in self.members.values() if one.subscription.topic_regex == regex]

    def described(self) -> DescribeConsumerAnswer:
        return DescribeConsumerAnswer(
            error=ErrorCode.NONE,
            state=self.state,
            group_epoch=self.group_epoch,
            target_epoch=self.target_epoch,
            assignor=self.assignor,
            members=[self._described_member(one) for one in self.members.values()],
        )

    def _described_member(self, member: ConsumerMember) -> DescribedConsumer:
        subscription, current = member.subscription, member.current
        return DescribedConsumer(
            member_id=member.member_id,
            member_epoch=current.member_epoch,
            instance_id=subscription.instance_id,
            rack_id=subscription.rack_id,
            client_id=subscription.client_id,
            client_host=subscription.client_host,
            subscribed_topic_names=sorted(subscription.topic_names),
            subscribed_topic_regex=subscription.topic_regex,
            assigned=ascending(current.assigned),
            target=ascending(self.targets.get(member.member_id, NO_TARGET)),
            is_classic=member.is_classic,
        )

    # Offsets

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def unused_since_ms(self, committed: CommittedOffset) -> int | None:
        return committed.commit_timestamp_ms

    def check_commit(self, command: CommitOffsets) -> list[ErrorCode]:
        """Return one error per offset.

        Members may commit with their epoch. While the group is empty, any client may commit. A member that has not
        received its newest epoch yet may commit with an older epoch, for partitions that were assigned at or before
        that epoch (KIP-1251). A classic member sends its epoch as the generation.
        """
        epoch, member = command.generation_id, self.members.get(command.member_id)
        error = ErrorCode.NONE
        if command.is_by_web and epoch < 0:
            # An administrator sends no member id. An HTTP member may omit its epoch.
            if command.member_id and member is None:
                error = ErrorCode.UNKNOWN_MEMBER_ID
        elif command.is_by_web and not command.member_id:
            error = ErrorCode.NONE if epoch == self.group_epoch else ErrorCode.STALE_MEMBER_EPOCH
        elif epoch < 0 and not self.members:
            pass
        elif member is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif not (member.is_classic or command.knows_group_id_not_found or command.transaction is not None):
            # OffsetCommit has a member epoch since version 9. Older versions have a generation.
            error = ErrorCode.UNSUPPORTED_VERSION
        elif epoch > member.current.member_epoch:
            error = _wrong_epoch(member)
        elif epoch < member.current.member_epoch:
            return [
                ErrorCode.NONE
                if self._assigned_epoch(member.current, one.topic, one.topic_id, one.partition) <= epoch
                else _wrong_epoch(member)
                for one in command.offsets
            ]
        return [error] * len(command.offsets)

    def _assigned_epoch(self, current: CurrentAssignment, topic: str, topic_id: bytes, index: int) -> float:
        """Return the epoch at which a partition was assigned to the member; infinity if it is not assigned.

        Partitions that the member has to revoke are included, because a member commits before it releases them.
        """
        if topic_id == ZERO_UUID:
            shape = self.topics.find(topic)
            topic_id = ZERO_UUID if shape is None else shape.topic_id
        assigned_epoch = current.assigned.get(topic_id, NO_INDEXES).get(index)
        if assigned_epoch is None:
            assigned_epoch = current.revoking.get(topic_id, NO_INDEXES).get(index)
        return float("inf") if assigned_epoch is None else assigned_epoch

    def check_fetch(self, command: FetchOffsets) -> ErrorCode:
        """Check an OffsetFetch. A member must send its current epoch. An administrator sends no member id."""
        if command.member_id is None and command.member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(command.member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if command.member_epoch == member.current.member_epoch:
            return ErrorCode.NONE
        return _wrong_epoch(member)

    # Records

    def apply(self, record: ConsumerGroupRecord) -> None:
        kind, subject, value = record.kind, record.subject, record.value
        if kind == records.GROUP_EPOCH:
            self.group_epoch = 0 if value is None else value.epoch
            self.metadata_hash = 0 if value is None else value.metadata_hash
            self.visibility.is_changed = False
        elif kind == records.TARGET_EPOCH:
            self.target_epoch = 0 if value is None else value.assignment_epoch
            self.target_wall_ms = 0 if value is None else value.assignment_timestamp
        elif kind == records.MEMBER_SUBSCRIPTION:
            self._subscribed = None
            if value is None:
                self._remove(subject)
            else:
                self._apply_subscription(subject, records.subscription_of(value))
        elif kind == records.MEMBER_TARGET:
            if value is None:
                self.targets.pop(subject, None)
            else:
                self.targets[subject] = records.target_of(value)
        elif kind == records.MEMBER_ASSIGNMENT:
            if value is not None:
                self._set_current(self._member_for_record(subject), records.current_assignment_of(value))
            elif subject in self.members:
                self._set_current(self.members[subject], CurrentAssignment(member_epoch=LEAVING_EPOCH))
        elif kind == records.REGULAR_EXPRESSION:
            self._subscribed = None
            if value is None:
                self.resolved.pop(subject, None)
            else:
                self.resolved[subject] = frozenset(value.topics)
        else:
            self.has_partition_metadata = value is not None

    def _member_for_record(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerMember(member_id)
        return member

    def _apply_subscription(self, member_id: str, subscription: Subscription) -> None:
        member = self._member_for_record(member_id)
        self._forget_instance(member)
        member.subscription = subscription
        if subscription.classic is None:
            self.join_deadlines_ms.pop(member_id, None)
            self.sync_deadlines_ms.pop(member_id, None)
        if subscription.instance_id is not None:
            self.static_members[subscription.instance_id] = member_id

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.subscription.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def _set_current(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        for partition in _owned_partitions(member.current):
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]
        member.current = current
        for partition in _owned_partitions(current):
            self.owners[partition] = member.member_id

    def _remove(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        self._set_current(member, CurrentAssignment(member_epoch=LEAVING_EPOCH))
        del self.members[member_id]
        self.visibility.remove(member_id)
        self._forget_instance(member)
        for deadlines_ms in self._all_deadlines_ms():
            deadlines_ms.pop(member_id, None)

    def tombstones(self) -> list[KeyValue]:
        """Return the records that delete the group from the log. The tombstone of the group epoch is the last one."""
        group_id = self.group_id
        gone = [one for member_id in self.members for one in records.member_tombstones(group_id, member_id)]
        gone += [records.regex_tombstone(group_id, regex) for regex in self.resolved]
        gone.append(records.group_tombstone(records.TARGET_EPOCH, group_id))
        if self.has_partition_metadata:
            gone.append(records.group_tombstone(records.PARTITION_METADATA, group_id))
        gone.append(records.group_tombstone(records.GROUP_EPOCH, group_id))
        return gone

    # Time

    def loaded(self, moment: Moment) -> None:
        """Start all session and revocation deadlines, with the full timeouts. Called when the replay has finished."""
        self.refresh_settings()
        for member in self.members.values():
            self.renew_session(member.member_id, moment, _own_session_ms(member))
            self.watch_revocation(member.member_id, member.subscription, member.current, moment)

    def refresh_settings(self) -> None:
        """Read the current settings. Called once per decision, so that the settings do not change during a decision."""
        self.settings = self._settings_of(self.group_id)

    def renew_session(self, member_id: str, moment: Moment, timeout_ms: int | None = None) -> None:
        deadline_ms = moment.steady_ms + (self.settings.session_timeout_ms if timeout_ms is None else timeout_ms)
        self.session_deadlines_ms[member_id] = deadline_ms
        self.wake_by(deadline_ms)

    def watch_revocation(
        self, member_id: str, subscription: Subscription, current: CurrentAssignment, moment: Moment
    ) -> None:
        """Start the rebalance timeout of a member that has to revoke partitions, else remove the member's timeout."""
        if current.state is MemberState.UNREVOKED_PARTITIONS and subscription.classic is None:
            deadline_ms = moment.steady_ms + max(subscription.rebalance_timeout_ms, 0)
            self.rebalance_deadlines_ms[member_id] = deadline_ms
            self.wake_by(deadline_ms)
        else:
            self.rebalance_deadlines_ms.pop(member_id, None)

    def await_join(self, member_id: str, timeout_ms: int, moment: Moment) -> None:
        """Set the deadline for a classic member to rejoin, unless it is already set."""
        if member_id not in self.join_deadlines_ms:
            deadline_ms = self.join_deadlines_ms[member_id] = moment.steady_ms + max(timeout_ms, 0)
            self.wake_by(deadline_ms)

    def await_sync(self, member_id: str, timeout_ms: int, moment: Moment) -> None:
        """Set the deadline for a classic member that has joined to send SyncGroup."""
        self.join_deadlines_ms.pop(member_id, None)
        deadline_ms = self.sync_deadlines_ms[member_id] = moment.steady_ms + max(timeout_ms, 0)
        self.wake_by(deadline_ms)

    def expired_members(self, moment: Moment) -> list[ConsumerMember]:
        """Return up to EXPIRED_MEMBERS_MAX members whose deadline has passed. The next call returns the others.

        The deadlines of the returned members are set to RETRY_MS from now, because their removal may fail.
        """
        now_ms = moment.steady_ms
        late: dict[str, ConsumerMember] = {}
        for deadlines_ms in self._all_deadlines_ms():
            for member_id in [one for one, deadline_ms in deadlines_ms.items() if deadline_ms <= now_ms]:
                if member_id not in self.members:
                    del deadlines_ms[member_id]
                elif member_id in late or len(late) < EXPIRED_MEMBERS_MAX:
                    late[member_id] = self.members[member_id]
                    deadlines_ms[member_id] = now_ms + RETRY_MS
        return list(late.values())

    def wake_by(self, steady_ms: int) -> None:
        if self.wake_ms is None or steady_ms < self.wake_ms:
            self.wake_ms = steady_ms

    def plan_next_wake(self) -> None:
        deadlines = [one for deadlines_ms in self._all_deadlines_ms() for one in deadlines_ms.values()]
        self.wake_ms = min(deadlines, default=None)

    def _all_deadlines_ms(self) -> tuple[dict[str, int], ...]:
        return self.session_deadlines_ms, self.rebalance_deadlines_ms, self.join_deadlines_ms, self.sync_deadlines_ms


def ascending(partitions: Mapping[bytes, Iterable[int]]) -> dict[bytes, list[int]]:
    return {topic_id: sorted(indexes) for topic_id, indexes in sorted(partitions.items())}


def _wrong_epoch(member: ConsumerMember) -> ErrorCode:
    """Return the error code that the member's protocol has for a wrong epoch."""
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def _owned_partitions(current: CurrentAssignment) -> Iterable[tuple[bytes, int]]:
    for partitions in (current.assigned, current.revoking):
        for topic_id, indexes in partitions.items():
            for index in indexes:
                yield topic_id, index


def _own_session_ms(member: ConsumerMember) -> int | None:
    """Return the session timeout of a classic or HTTP member; None for others, which use the group's setting."""
    subscription = member.subscription
    return subscription.classic.session_timeout_ms if subscription.classic is not None else web_session_ms(subscription)
