"""The commands of the group coordinator and their answers. They are plain values, without wire types or callbacks.

Commands are compared by identity, because each of two equal heartbeats gets its own answer.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat, DescribeConsumerGroup, WebHeartbeat, WebLeave
from kwire.coordinator.group.web_group_commands import DefineGroup, SummarizeGroup
from kwire.coordinator.log_records import ProducerIdAndEpoch
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
    # Whether a new dynamic member first receives a member id and must join again with this id (KIP-394).
    requires_member_id: bool = True
    # Whether the client supports `JoinAnswer.skip_assignment`, with which a leader keeps the assignment (KIP-814).
    can_skip_assignment: bool = True
    # The suffix of a new member's id. It is part of the command, because decisions must be deterministic.
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
    """The answer to LeaveGroup. `member_errors` has one error per member of the command, in the same order.

    `member_errors` is empty if the whole command was refused.
    """

    error: ErrorCode
    member_errors: Sequence[ErrorCode] = ()


class LeaveGroup(Struct, frozen=True, eq=False, kw_only=True):
    group_id: str
    members: Sequence[LeavingMember]

    def refused(self, error: ErrorCode) -> LeaveAnswer:
        return LeaveAnswer(error)


class OffsetToCommit(Struct, frozen=True, gc=False):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    topic_id: bytes = ZERO_UUID


class CommitOffsets(Struct, frozen=True, eq=False, kw_only=True):
    """Commit offsets. The answer is a list with one error for each offset, in order.

    In a transaction, the offsets are pending until the transaction ends. A transactional commit with a member id is
    checked like any other: the member must exist and its generation must match. But a rebalance does not refuse a
    transactional commit: if the member is replaced, its producer is fenced.
    """

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    # True since OffsetCommit 9 and TxnOffsetCommit 6. If a commit has a generation and its group does not exist, these
    # versions return GROUP_ID_NOT_FOUND. Older versions return ILLEGAL_GENERATION. TxnOffsetCommit 6 also introduced
    # STALE_MEMBER_EPOCH.
    knows_group_id_not_found: bool = True
    transaction: ProducerIdAndEpoch | None = None
    # Whether the command comes from the HTTP API. A command of the HTTP API without a member id comes from an
    # administrator, and is allowed even while the group has members.
    is_by_web: bool = False
    offsets: Sequence[OffsetToCommit]

    def refused(self, error: ErrorCode) -> list[ErrorCode]:
        return [error] * len(self.offsets)


class CommittedOffset(Struct, frozen=True, gc=False):
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
    """The offsets of one topic.

    If the command has `require_stable`, `unstable` has the partitions with pending offsets, and their offset is None.
    """

    topic: str
    offsets: Sequence[tuple[int, CommittedOffset | None]]
    unstable: frozenset[int] = frozenset()


class FetchAnswer(Struct, frozen=True):
    error: ErrorCode
    topics: Sequence[FetchedTopic] = ()


class FetchOffsets(Struct, frozen=True, eq=False, kw_only=True):
    """Fetch committed offsets. If `topics` is None, fetch all offsets of the group.

    `member_id` and `member_epoch` exist since OffsetFetch 9. Only members of consumer groups send them.
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
    """The answer to DeleteOffsets. `errors` has one error per partition of the command, in the same order.

    `errors` is empty if the whole command was refused.
    """

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
    """The description of a classic group. If it is not Stable, protocol name, metadata and assignments are empty."""

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
    """List the groups of one shard that have one of these states and one of these kinds.

    States and kinds are in lower case. An empty set selects all states or kinds. `group_id` is any name that maps to
    the shard.
    """

    group_id: str
    states: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    def refused(self, error: ErrorCode) -> ListAnswer:
        return ListAnswer(error)


class RunCleanup(Struct, frozen=True, eq=False):
    """Run the next chunk of the shard's cleanup. The shard creates this command itself."""

    def refused(self, error: ErrorCode) -> ErrorCode:
        return error


class CheckDeadlines(Struct, frozen=True, eq=False):
    """Handle the deadlines of a group that have passed. The shard creates this command and ignores the answer."""

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
    | WebHeartbeat
    | WebLeave
    | DefineGroup
    | SummarizeGroup
    | DeleteGroup
    | CheckDeadlines
)
# Commands for a whole shard rather than for one of its groups.
ShardCommand = ListGroups | RunCleanup
