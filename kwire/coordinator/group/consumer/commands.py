"""What can be asked of a consumer group, and what it answers: plain values, as in `group/commands.py`."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from kwire.coordinator.group.consumer.reconciliation import Owned
from kwire.errors import ErrorCode

NO_TIMEOUT = -1


class ConsumerHeartbeatAnswer(Struct, frozen=True, kw_only=True):
    """`assignment` is None where the member is to go on with what it has; partitions are ascending."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[bytes, Sequence[int]] | None = None


class ConsumerHeartbeat(Struct, frozen=True, eq=False, kw_only=True):
    """A member joins (epoch 0), goes on, or leaves (-1, or -2 for a static one). None means unchanged."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    subscribed_topic_names: frozenset[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Owned = None
    client_id: str = ""
    client_host: str = ""
    # Since version 1 a member makes its own id (KIP-1082); the id that one of version 0 gets comes with the command,
    # because a decision has no dice.
    brings_member_id: bool = True
    fresh_id: str = ""

    def refused(self, error: ErrorCode) -> ConsumerHeartbeatAnswer:
        return ConsumerHeartbeatAnswer(error=error)


class DescribedConsumer(Struct, frozen=True, kw_only=True):
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str
    assigned: Mapping[bytes, Sequence[int]]
    target: Mapping[bytes, Sequence[int]]
    is_classic: bool


class DescribeConsumerAnswer(Struct, frozen=True, kw_only=True):
    error: ErrorCode
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: Sequence[DescribedConsumer] = ()


class DescribeConsumerGroup(Struct, frozen=True, eq=False, kw_only=True):
    group_id: str

    def refused(self, error: ErrorCode) -> DescribeConsumerAnswer:
        return DescribeConsumerAnswer(error=error)


class CheckInAnswer(Struct, frozen=True, kw_only=True):
    """`assigned` is by topic id, ascending. `is_rebalancing`: there is more to come, or to give up."""

    error: ErrorCode
    message: str | None = None
    member_epoch: int = 0
    assigned: Mapping[bytes, Sequence[int]] = field(default_factory=dict)
    is_rebalancing: bool = False
    session_timeout_ms: int = 0


class CheckIn(Struct, frozen=True, eq=False, kw_only=True):
    """A member is there. `owned` is what it still reads of what it may have to give up."""

    group_id: str
    member_id: str
    owned: Owned = field(default_factory=dict)

    def refused(self, error: ErrorCode) -> CheckInAnswer:
        return CheckInAnswer(error=error)


class CheckOut(Struct, frozen=True, eq=False, kw_only=True):
    """A member leaves. Answered like a check-in."""

    group_id: str
    member_id: str

    def refused(self, error: ErrorCode) -> CheckInAnswer:
        return CheckInAnswer(error=error)
