"""The commands of consumer groups and their answers. They are plain values, as in `group/commands.py`."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from kwire.coordinator.group.consumer.reconciliation import Owned
from kwire.coordinator.group.consumer.regexes import TopicAccess
from kwire.errors import ErrorCode

NO_TIMEOUT = -1


class ConsumerHeartbeatAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat. `assignment` has ascending partitions by topic id; None if it is unchanged."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[bytes, Sequence[int]] | None = None


class ConsumerHeartbeat(Struct, frozen=True, eq=False, kw_only=True):
    """A heartbeat of a consumer-protocol member. A field that is None has not changed since the last heartbeat.

    A member joins with epoch 0 and leaves with epoch -1. A static member leaves temporarily with epoch -2.
    """

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
    # Whether the member generates its own id, as it does since version 1 (KIP-1082). In version 0, `fresh_id` is the id
    # of a new member. It is part of the command, because decisions must be deterministic.
    brings_member_id: bool = True
    fresh_id: str = ""
    # Which topics the client may describe; None if it may describe all topics.
    topic_access: TopicAccess | None = None

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


class WebHeartbeatAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat of an HTTP member. `assigned` has ascending partitions by topic id.

    `is_rebalancing` is True while some partitions have yet to be assigned or revoked.
    """

    error: ErrorCode
    message: str | None = None
    member_epoch: int = 0
    assigned: Mapping[bytes, Sequence[int]] = field(default_factory=dict)
    is_rebalancing: bool = False
    session_timeout_ms: int = 0


class WebHeartbeat(Struct, frozen=True, eq=False, kw_only=True):
    """A heartbeat of an HTTP member. `owned` has the partitions that the member still reads."""

    group_id: str
    member_id: str
    owned: Owned = field(default_factory=dict)

    def refused(self, error: ErrorCode) -> WebHeartbeatAnswer:
        return WebHeartbeatAnswer(error=error)


class WebLeave(Struct, frozen=True, eq=False, kw_only=True):
    """Remove an HTTP member that leaves the group."""

    group_id: str
    member_id: str

    def refused(self, error: ErrorCode) -> WebHeartbeatAnswer:
        return WebHeartbeatAnswer(error=error)
