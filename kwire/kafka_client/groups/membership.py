"""Membership: a member of a group of the classic protocol. It decides which request is next, and has no I/O.

A member sends JoinGroup, then SyncGroup, then heartbeats. When a heartbeat reports a rebalance, the member releases
its partitions and joins again. The caller sends the requests, one at a time, and hands in the responses.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.errors import error_code, refusal
from kwire.kafka_client.groups.coordinators import PASSING
from kwire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kwire.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kwire.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

CONSUMERS: Final = "consumer"
NO_GENERATION: Final = -1
_REMOVED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


class Phase(Enum):
    """What a member does. In RELEASING it still has its partitions, and the group waits for it to join again."""

    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()
    RELEASING = auto()
    ENDED = auto()


class Timeouts(NamedTuple):
    """How long a member may be silent, and how long it may take to join again when the group rebalances."""

    session_ms: int
    rebalance_ms: int


class JoinedMember(NamedTuple):
    """A member of the group, as its leader sees it. `metadata` is the subscription for the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Membership:
    """One member. Each method that takes a response returns False if the request has to be repeated after a pause."""

    def __init__(self, group_id: str, timeouts: Timeouts) -> None:
        self.group_id = group_id
        self.timeouts = timeouts
        self.phase = Phase.JOINING
        self.member_id = ""
        self.generation = NO_GENERATION
        # The assignor that the coordinator has chosen, from those that all members have.
        self.protocol = ""
        # The members to which this one assigns partitions; empty if another member is the leader.
        self.members: Sequence[JoinedMember] = ()
        self.assignment = b""
        # Why the member has ended.
        self.error: KafkaError | None = None
        # The coordinator has said that the group has no such member, so that it need not leave.
        self.is_removed = False

    @property
    def is_leader(self) -> bool:
        return bool(self.members)

    # --- JoinGroup

    def join_request(self, protocols: Sequence[tuple[str, bytes]]) -> JoinGroupRequest:
        """Return a request to join with these assignors, the preferred one first."""
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.timeouts.session_ms,
            rebalance_timeout_ms=self.timeouts.rebalance_ms,
            member_id=self.member_id,
            protocol_type=CONSUMERS,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )

    def joined(self, response: JoinGroupResponse) -> bool:
        code = error_code(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return True
        if code in PASSING or code is ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        if code is not ErrorCode.NONE:
            self._refused(code)
            return True
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.protocol = response.protocol_name or ""
        is_leader = response.leader == response.member_id and not response.skip_assignment
        self.members = (
            [JoinedMember(one.member_id, one.group_instance_id, bytes(one.metadata)) for one in response.members]
            if is_leader
            else ()
        )
        self.phase = Phase.SYNCING
        return True

    # --- SyncGroup

    def sync_request(self, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        """Return a request for the assignment. The leader hands in those of all members, others none."""
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=CONSUMERS,
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )

    def synced(self, response: SyncGroupResponse) -> bool:
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            self.assignment = bytes(response.assignment)
            self.phase = Phase.STABLE
            return True
        if code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self.join_again()
            return True
        if code in PASSING:
            self.join_again()
            return False
        self._refused(code)
        return True

    # --- heartbeats

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(group_id=self.group_id, generation_id=self.generation, member_id=self.member_id)

    def heartbeat_answered(self, response: HeartbeatResponse) -> bool:
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            return True
        if code in PASSING:
            return False
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.must_release()
        elif code is not ErrorCode.ILLEGAL_GENERATION:
            self._refused(code)
        elif self.has_partitions:
            # The group has gone on without this member: its partitions have other owners.
            self.join_again()
        return True

    # --- the partitions

    @property
    def has_partitions(self) -> bool:
        """Whether the member owns the partitions of `assignment`."""
        return self.phase in (Phase.STABLE, Phase.RELEASING)

    def must_release(self) -> None:
        """The group rebalances, or is to rebalance: the member joins again when its partitions are released."""
        if self.phase is Phase.STABLE:
            self.phase = Phase.RELEASING

    def join_again(self) -> None:
        """The partitions are released or lost."""
        if not self.is_ended:
            self.phase = Phase.JOINING

    # --- the end

    @property
    def is_ended(self) -> bool:
        return self.phase is Phase.ENDED

    def leave_request(self) -> LeaveGroupRequest:
        return LeaveGroupRequest(
            group_id=self.group_id, member_id=self.member_id, members=[MemberIdentity(member_id=self.member_id)]
        )

    def end(self, error: KafkaError) -> None:
        """The member has left, or the coordinator has refused it."""
        if not self.is_ended:
            self.phase = Phase.ENDED
            self.error = error

    def _refused(self, code: ErrorCode) -> None:
        self.is_removed = code in _REMOVED
        self.end(refusal(f"group {self.group_id!r}", code))
