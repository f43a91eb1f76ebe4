"""A consumer group: its members, what each shall have and has, and the deadlines of all of it.

    Empty -- join --> Assigning -- target computed --> Reconciling -- every member has reached it --> Stable
    any of them -- join, leave, expiry, topics or subscriptions change --> Assigning

The state is the sum of the group's records and changes only in `apply`, one record at a time; a compacted log may give
them in another order than they were decided, and the sum is the same. A restart forgets the deadlines, which begin
anew, and a search for topics under way, which the next heartbeat begins again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from kwire.broker.internal_records import KeyValue
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
from kwire.coordinator.group.consumer.regexes import RegexResolver, Resolution
from kwire.coordinator.group.consumer.target import preferred_assignor, subscribed_by_any
from kwire.coordinator.group.consumer.web_sessions import web_session_ms
from kwire.coordinator.group.settings import ConsumerSettings
from kwire.coordinator.group.topics_view import TopicsView
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.types import ZERO_UUID

CONSUMER = "consumer"
# Who has been put out is looked at again so much later, for the case that it could not be written down.
RETRY_MS = 1_000
# Members that are put out by one decision: what takes them out of the log has to fit into one batch.
LATE_MEMBERS_MAX = 1_000
NO_INDEXES: Mapping[int, int] = {}


class ConsumerGroup:
    """One group. Owned by a shard, which calls one decision at a time and applies its records before the next."""

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
        self.topics = topics
        self.resolver = resolver
        self._settings_of = settings_of
        self.settings = settings_of(group_id)

        self.group_epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        # The time of day of the newest target; 0 if that was never written down.
        self.target_wall_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Target] = {}
        # The topics of each subscribed expression, once they have been found.
        self.resolved: dict[str, frozenset[str]] = {}
        # Brokers before 4.1 wrote the topics themselves instead of a hash.
        self.has_partition_metadata = False

        # Derived from the records: who has which partition, and which process each static member is.
        self.owners: dict[tuple[bytes, int], str] = {}
        self.static_members: dict[str, str] = {}
        self._subscribed: frozenset[str] | None = None

        # The revision of the catalogue at which `metadata_hash` was last found to be right.
        self.seen_revision: int | None = None
        # The same of `resolved`; when that was; and a search under way.
        self.regexes_revision: int | None = None
        self.regexes_searched_ms: int | None = None
        self.resolution: Resolution | None = None
        # When the target was computed last, and for how many partitions and members.
        self.target_ms: int | None = None
        self.target_size = 0
        self.session_deadlines_ms: dict[str, int] = {}
        # Until when a member has to have given up its partitions.
        self.rebalance_deadlines_ms: dict[str, int] = {}
        # Until when a classic member that was told to has to join again, and one that joined has to sync.
        self.join_deadlines_ms: dict[str, int] = {}
        self.sync_deadlines_ms: dict[str, int] = {}
        self.wake_ms: int | None = None
        self.armed_ms: int | None = None

    # Facts

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
    def is_forgettable(self) -> bool:
        """Without a record, and nobody's is on its way: a member that is let in gets its session at once."""
        return self.group_epoch == 0 and not self.members and not self.session_deadlines_ms

    @property
    def is_kept(self) -> bool:
        return self._settings_of(self.group_id).is_kept

    @property
    def subscribed(self) -> frozenset[str]:
        """All topics that any member reads."""
        if self._subscribed is None:
            everybody = (one.subscription for one in self.members.values())
            self._subscribed = subscribed_by_any(everybody, self.resolved)
        return self._subscribed

    @property
    def assignor(self) -> str:
        return preferred_assignor((one.subscription for one in self.members.values()), self.settings.assignors)

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscribed

    def may_assign(self, moment: Moment) -> bool:
        """Not too often if it takes long. Who joins meanwhile is in, and is given partitions by a later heartbeat."""
        return (
            self.target_epoch == 0
            or self.target_ms is None
            or self.target_size <= self.settings.assigned_at_once_max
            or moment.steady_ms >= self.target_ms + self.settings.assignment_interval_ms
        )

    def is_free(self, topic_id: bytes, index: int, member_ids: Collection[str]) -> bool:
        """Whether one of these may have a partition: because it has it, or because nobody has."""
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
        """The newest process of an instance id, if that is who it says."""
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
        said, current = member.subscription, member.current
        return DescribedConsumer(
            member_id=member.member_id,
            member_epoch=current.member_epoch,
            instance_id=said.instance_id,
            rack_id=said.rack_id,
            client_id=said.client_id,
            client_host=said.client_host,
            subscribed_topic_names=sorted(said.topic_names),
            subscribed_topic_regex=said.topic_regex,
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
        """Who may commit: a member at its epoch, or anybody at all while the group is empty. One error per offset.

        A member that has not heard of its newest epoch yet may still commit what it was given before (KIP-1251). To a
        classic member its epoch is the generation.
        """
        epoch, member = command.generation_id, self.members.get(command.member_id)
        error = ErrorCode.NONE
        if command.is_by_web and epoch < 0:
            # An administrator names no member; a member need not know its epoch.
            if command.member_id and member is None:
                error = ErrorCode.UNKNOWN_MEMBER_ID
        elif command.is_by_web and not command.member_id:
            error = ErrorCode.NONE if epoch == self.group_epoch else ErrorCode.STALE_MEMBER_EPOCH
        elif epoch < 0 and not self.members:
            pass
        elif member is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif not (member.is_classic or command.knows_group_id_not_found or command.transaction is not None):
            # A request that old takes the epoch for a generation; both came with OffsetCommit 9.
            error = ErrorCode.UNSUPPORTED_VERSION
        elif epoch > member.current.member_epoch:
            error = _wrong_epoch(member)
        elif epoch < member.current.member_epoch:
            return [
                ErrorCode.NONE
                if self._given_at(member.current, one.topic, one.topic_id, one.partition) <= epoch
                else _wrong_epoch(member)
                for one in command.offsets
            ]
        return [error] * len(command.offsets)

    def _given_at(self, current: CurrentAssignment, topic: str, topic_id: bytes, index: int) -> float:
        """The epoch at which the member got a partition, also one that it is to give up; never, if it has not got it.

        Who is to give up a partition commits before it does.
        """
        if topic_id == ZERO_UUID:
            shape = self.topics.find(topic)
            topic_id = ZERO_UUID if shape is None else shape.topic_id
        given_at = current.assigned.get(topic_id, NO_INDEXES).get(index)
        if given_at is None:
            given_at = current.revoking.get(topic_id, NO_INDEXES).get(index)
        return float("inf") if given_at is None else given_at

    def check_fetch(self, command: FetchOffsets) -> ErrorCode:
        """An administrator names no member; a member is only told offsets if it knows where it stands."""
        if command.member_id is None and command.member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(command.member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if command.member_epoch == member.current.member_epoch:
            return ErrorCode.NONE
        return _wrong_epoch(member)

    # What the log says

    def apply(self, record: ConsumerGroupRecord) -> None:
        kind, subject, value = record.kind, record.subject, record.value
        if kind == records.GROUP_EPOCH:
            self.group_epoch = 0 if value is None else value.epoch
            self.metadata_hash = 0 if value is None else value.metadata_hash
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
                self._hold(self._known(subject), records.current_assignment_of(value))
            elif subject in self.members:
                self._hold(self.members[subject], CurrentAssignment(member_epoch=LEAVING_EPOCH))
        elif kind == records.REGULAR_EXPRESSION:
            self._subscribed = None
            if value is None:
                self.resolved.pop(subject, None)
            else:
                self.resolved[subject] = frozenset(value.topics)
        else:
            self.has_partition_metadata = value is not None

    def _known(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerMember(member_id)
        return member

    def _apply_subscription(self, member_id: str, said: Subscription) -> None:
        member = self._known(member_id)
        self._forget_instance(member)
        member.subscription = said
        if said.classic is None:
            self.join_deadlines_ms.pop(member_id, None)
            self.sync_deadlines_ms.pop(member_id, None)
        if said.instance_id is not None:
            self.static_members[said.instance_id] = member_id

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.subscription.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def _hold(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        for place in _places(member.current):
            if self.owners.get(place) == member.member_id:
                del self.owners[place]
        member.current = current
        for place in _places(current):
            self.owners[place] = member.member_id

    def _remove(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        self._hold(member, CurrentAssignment(member_epoch=LEAVING_EPOCH))
        del self.members[member_id]
        self._forget_instance(member)
        for deadlines_ms in self._all_deadlines_ms():
            deadlines_ms.pop(member_id, None)

    def tombstones(self) -> list[KeyValue]:
        """What takes the group out of the log; the group itself goes last."""
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
        """Replay is over: everyone gets a whole session, and all the time there is to give up partitions."""
        self.take_settings()
        for member in self.members.values():
            self.renew_session(member.member_id, moment, _own_session_ms(member))
            self.watch_revocation(member.member_id, member.subscription, member.current, moment)

    def take_settings(self) -> None:
        """Look at what is configured now; a decision sees one state of it."""
        self.settings = self._settings_of(self.group_id)

    def renew_session(self, member_id: str, moment: Moment, timeout_ms: int | None = None) -> None:
        deadline_ms = moment.steady_ms + (self.settings.session_timeout_ms if timeout_ms is None else timeout_ms)
        self.session_deadlines_ms[member_id] = deadline_ms
        self.wake_by(deadline_ms)

    def watch_revocation(self, member_id: str, said: Subscription, current: CurrentAssignment, moment: Moment) -> None:
        """A member that has to give up partitions gets its rebalance timeout for it, from now on."""
        if current.state is MemberState.UNREVOKED_PARTITIONS and said.classic is None:
            deadline_ms = moment.steady_ms + max(said.rebalance_timeout_ms, 0)
            self.rebalance_deadlines_ms[member_id] = deadline_ms
            self.wake_by(deadline_ms)
        else:
            self.rebalance_deadlines_ms.pop(member_id, None)

    def await_join(self, member_id: str, timeout_ms: int, moment: Moment) -> None:
        """A classic member has been told to join again; it may be told more than once, and has the time of once."""
        if member_id not in self.join_deadlines_ms:
            deadline_ms = self.join_deadlines_ms[member_id] = moment.steady_ms + max(timeout_ms, 0)
            self.wake_by(deadline_ms)

    def await_sync(self, member_id: str, timeout_ms: int, moment: Moment) -> None:
        """A classic member has joined; it has to come for its assignment."""
        self.join_deadlines_ms.pop(member_id, None)
        deadline_ms = self.sync_deadlines_ms[member_id] = moment.steady_ms + max(timeout_ms, 0)
        self.wake_by(deadline_ms)

    def late_members(self, moment: Moment) -> list[ConsumerMember]:
        """Those whose time is over; they are given a little more, for the case that putting them out fails.

        After a restart the time of all is over at once: who is one too many is late still, and comes next.
        """
        now_ms = moment.steady_ms
        late: dict[str, ConsumerMember] = {}
        for deadlines_ms in self._all_deadlines_ms():
            for member_id in [one for one, deadline_ms in deadlines_ms.items() if deadline_ms <= now_ms]:
                if member_id not in self.members:
                    del deadlines_ms[member_id]
                elif member_id in late or len(late) < LATE_MEMBERS_MAX:
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
    """In the words of the member's own protocol."""
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def _places(current: CurrentAssignment) -> Iterable[tuple[bytes, int]]:
    for partitions in (current.assigned, current.revoking):
        for topic_id, indexes in partitions.items():
            for index in indexes:
                yield topic_id, index


def _own_session_ms(member: ConsumerMember) -> int | None:
    """Members of the consumer protocol have the group's."""
    said = member.subscription
    return said.classic.session_timeout_ms if said.classic is not None else web_session_ms(said)
