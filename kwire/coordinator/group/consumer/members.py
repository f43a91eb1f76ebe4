"""A member of a consumer group: its subscription and its current assignment."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from msgspec import Struct, field

from kwire.enum_members import fast_members
from kwire.wire.records.consumer_group import ClassicMemberMetadata

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
# The epoch of a static member that leaves temporarily. The member keeps its partitions until its session expires.
LEAVING_STATIC_EPOCH = -2

# Topic id -> partition -> the epoch at which the partition was assigned to the member (KIP-1251).
Partitions = Mapping[bytes, Mapping[int, int]]
# A member's target assignment, by topic id.
Target = Mapping[bytes, frozenset[int]]

NO_PARTITIONS: Partitions = MappingProxyType({})
NO_TARGET: Target = MappingProxyType({})


@fast_members
class MemberState(IntEnum):
    """The state of a member's reconciliation, with Kafka's codes."""

    STABLE = 0
    # The member has to revoke partitions and has not confirmed the revocation.
    UNREVOKED_PARTITIONS = 1
    # The member waits for partitions that other members still own.
    UNRELEASED_PARTITIONS = 2
    # A state that this version does not support. A later version has written it.
    UNKNOWN = 127

    @classmethod
    def of(cls, code: int) -> "MemberState":
        return cls(code) if code in cls._value2member_map_ else cls.UNKNOWN


class Subscription(Struct, frozen=True, kw_only=True):
    """The metadata that a member sends. `classic` is set if the member joined with the classic protocol."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    server_assignor: str | None = None
    rebalance_timeout_ms: int = -1
    classic: ClassicMemberMetadata | None = None


class CurrentAssignment(Struct, frozen=True, kw_only=True):
    """A member's epoch, the partitions that are assigned to it, and the partitions that it has to revoke."""

    member_epoch: int = 0
    # Heartbeats with the previous epoch are accepted, because the member may not have received the answer with the new
    # epoch.
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch


NEW_SUBSCRIPTION = Subscription()
NEW_ASSIGNMENT = CurrentAssignment()


class ConsumerMember:
    """One member. One kind of record replaces the whole subscription, another kind the whole current assignment."""

    __slots__ = ("current", "member_id", "subscription")

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.subscription = NEW_SUBSCRIPTION
        self.current = NEW_ASSIGNMENT

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None
