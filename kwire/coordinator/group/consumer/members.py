"""A member of a consumer group: what it said of itself, and what it has."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from msgspec import Struct, field

from kwire.wire.records.consumer_group import ClassicMemberMetadata

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
# A static member that leaves and means to be back: it keeps its partitions until its session ends.
LEAVING_STATIC_EPOCH = -2

# Partitions by topic id; the number is the epoch at which the member was given the partition (KIP-1251).
Partitions = Mapping[bytes, Mapping[int, int]]
# What a member shall have, by topic id.
Target = Mapping[bytes, frozenset[int]]

NOTHING: Partitions = MappingProxyType({})
NO_TARGET: Target = MappingProxyType({})


class MemberState(IntEnum):
    """By Kafka's codes."""

    STABLE = 0
    # Has been told to give partitions up and has not said that it did.
    UNREVOKED_PARTITIONS = 1
    # Is as far as it can get, but waits for partitions that others still have.
    UNRELEASED_PARTITIONS = 2
    # Written by some later version.
    UNKNOWN = 127

    @classmethod
    def of(cls, code: int) -> "MemberState":
        return cls(code) if code in cls._value2member_map_ else cls.UNKNOWN


class Subscription(Struct, frozen=True, kw_only=True):
    """What a member says of itself. `classic` is what it said by the classic protocol, if it came that way."""

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
    """What a member has, and has to give up, at its epoch."""

    member_epoch: int = 0
    # The epoch before: it is accepted once more, because the answer with the new one may have been lost.
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch


NEW_SUBSCRIPTION = Subscription()
NEW_ASSIGNMENT = CurrentAssignment()


class ConsumerMember:
    """One consumer process. Both halves are replaced as a whole, each by its own record."""

    __slots__ = ("current", "member_id", "subscription")

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.subscription = NEW_SUBSCRIPTION
        self.current = NEW_ASSIGNMENT

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None
