"""What can be asked of the group coordinator, and what it answers: plain values, no wire types, no callbacks.

A command is compared by identity: two equal heartbeats are still two requests that each get an answer.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from kwire.broker.internal_records import Transaction
from kwire.coordinator.group.consumer.commands import CheckIn, CheckOut, ConsumerHeartbeat, DescribeConsumerGroup
from kwire.coordinator.group.defined import AskFacts, DefineGroup
from kwire.errors import ErrorCode
from kwire.wire.types import ZERO_UUID

UNKNOWN_MEMBER = ""
NO_GENERATION = -1
NO_OFFSET = -1
NO_LEADER_EPOCH = -1


class JoinedMember(Struct, frozen=True):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(Struct, frozen=True, kw_only=True):
    error: ErrorCode
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = UNKNOWN_MEMBER
    skip_assignment: bool = False
    member_id: str = UNKNOWN_MEMBER
    members: Sequence[JoinedMember] = ()


class JoinGroup(Struct, frozen=True, eq=False, kw_only=True):
    group_id: str
    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    # A new dynamic member is first told its id and has to come back with it (KIP-394).
    requires_member_id: bool = True
    # The client understands an answer that says "you lead, but keep the assignment" (KIP-814).
    can_skip_assignment: bool = True
    # Becomes the tail of a new member's id; chosen outside, because a decision has no dice.
    fresh_id: str

    def refused(self, error: ErrorCode) -> JoinAnswer:
        return JoinAnswer(error=error, member_id=self.member_id)


class SyncAnswer(Struct, frozen=True, kw_only=True):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class SyncGroup(Struct, frozen=True, eq=False, kw_only=True):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: dict[str, bytes] = field(default_factory=dict)

    def refused(self, error: ErrorCode) -> SyncAnswer:
        return SyncAnswer(error=error)


class Heartbeat(Struct, frozen=True, eq=False, kw_only=True):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class LeavingMember(Struct, frozen=True):
    member_id: str
    group_instance_id: str | None = None


class LeaveAnswer(Struct, frozen=True):
    """`member_errors` stands in the order of the command's members; empty if the whole command was refused."""

    error: ErrorCode
    member_errors: Sequence[ErrorCode] = ()


class LeaveGroup(Struct, frozen=True, eq=False, kw_only=True):
    group_id: str
    members: Sequence[LeavingMember]

    def refused(self, error: ErrorCode) -> LeaveAnswer:
        return LeaveAnswer(error)


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    topic_id: bytes = ZERO_UUID


class CommitOffsets(Struct, frozen=True, eq=False, kw_only=True):
    """Answered by one error for each offset, in order.

    In a transaction the offsets are pending until it ends. Also then a member is asked who it is, if it says so; but a
    rebalance is no reason to refuse, because whoever was replaced is fenced as a producer.
    """

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    # Since OffsetCommit 9 a generation of a group that does not exist is GROUP_ID_NOT_FOUND; before, it was illegal. So
    # it is with TxnOffsetCommit 6, which also brought STALE_MEMBER_EPOCH there.
    knows_group_id_not_found: bool = True
    transaction: Transaction | None = None
    # By HTTP: without a member it is an administrator's, who may commit also while members work.
    is_by_web: bool = False
    offsets: Sequence[OffsetToCommit]

    def refused(self, error: ErrorCode) -> list[ErrorCode]:
        return [error] * len(self.offsets)


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes


class TopicToFetch(Struct, frozen=True):
    topic: str
    partitions: Sequence[int]


class FetchedTopic(Struct, frozen=True):
    """`unstable`: of these partitions nothing is told, because stable offsets were asked for and some are pending."""

    topic: str
    offsets: Sequence[tuple[int, CommittedOffset | None]]
    unstable: frozenset[int] = frozenset()


class FetchAnswer(Struct, frozen=True):
    error: ErrorCode
    topics: Sequence[FetchedTopic] = ()


class FetchOffsets(Struct, frozen=True, eq=False, kw_only=True):
    """`topics` None asks for everything the group has committed.

    A member of a consumer group says who it is, since OffsetFetch 9; nobody else does.
    """

    group_id: str
    topics: Sequence[TopicToFetch] | None
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1

    def refused(self, error: ErrorCode) -> FetchAnswer:
        return FetchAnswer(error)


class PartitionOfTopic(Struct, frozen=True):
    topic: str
    partition: int


class DeleteOffsetsAnswer(Struct, frozen=True):
    """`errors` stands in the order of the command's partitions; empty if the whole command was refused."""

    error: ErrorCode
    errors: Sequence[ErrorCode] = ()


class DeleteOffsets(Struct, frozen=True, eq=False, kw_only=True):
    group_id: str
    partitions: Sequence[PartitionOfTopic]

    def refused(self, error: ErrorCode) -> DeleteOffsetsAnswer:
        return DeleteOffsetsAnswer(error)


class DescribedMember(Struct, frozen=True):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""


class DescribeAnswer(Struct, frozen=True, kw_only=True):
    """A classic group as people see it. The protocol and the members' bytes are known only while it is Stable."""

    error: ErrorCode
    message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: Sequence[DescribedMember] = ()


class DescribeGroup(Struct, frozen=True, eq=False, kw_only=True):
    group_id: str

    def refused(self, error: ErrorCode) -> DescribeAnswer:
        return DescribeAnswer(error=error)


class DeleteGroup(Struct, frozen=True, eq=False, kw_only=True):
    """Delete a group that has no members, with all its offsets."""

    group_id: str

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    kind: str


class ListAnswer(Struct, frozen=True):
    error: ErrorCode
    groups: Sequence[ListedGroup] = ()


class ListGroups(Struct, frozen=True, eq=False, kw_only=True):
    """The groups of one shard, those whose state and kind are asked for; an empty set asks for all.

    `group_id` is any name that falls on the shard. States and kinds are in lower case.
    """

    group_id: str
    states: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    def refused(self, error: ErrorCode) -> ListAnswer:
        return ListAnswer(error)


class DoChore(Struct, frozen=True, eq=False):
    """The next portion of the shard's background work is due. Asked by the shard itself."""

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class PassTime(Struct, frozen=True, eq=False):
    """A deadline of the group may have passed. Asked by the shard itself; nobody waits for an answer."""

    group_id: str

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


GroupCommand = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | DescribeGroup
    | ConsumerHeartbeat
    | DescribeConsumerGroup
    | CheckIn
    | CheckOut
    | DefineGroup
    | AskFacts
    | DeleteGroup
    | PassTime
)
# What concerns a whole shard rather than one of its groups.
ShardCommand = ListGroups | DoChore
