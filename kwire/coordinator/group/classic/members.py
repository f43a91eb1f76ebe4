"""A member of a classic group, and the selection of the group's protocol."""

from collections import Counter
from collections.abc import Collection

from kwire.coordinator.group.commands import DescribedMember, JoinGroup, SyncGroup
from kwire.coordinator.group.records import MemberMetadata

Protocols = tuple[tuple[str, bytes], ...]


class Member:
    """One member of a classic group. At any time, at most one JoinGroup and one SyncGroup of the member wait."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "waiting_join",
        "waiting_sync",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        # Whether the member's first JoinGroup still waits for its answer. Meanwhile the member cannot send heartbeats.
        self.is_new = False
        self.waiting_join: JoinGroup | None = None
        self.waiting_sync: SyncGroup | None = None
        # The time on the steady clock at which the session expires.
        self.deadline_ms = 0

    @classmethod
    def joining(cls, member_id: str, command: JoinGroup) -> "Member":
        return cls(
            member_id,
            command.group_instance_id,
            command.client_id,
            command.client_host,
            command.rebalance_timeout_ms,
            command.session_timeout_ms,
            command.protocols,
        )

    @classmethod
    def stored(cls, stored: MemberMetadata, protocol: str | None) -> "Member":
        """Create a member from its record. The record contains only the group's selected protocol."""
        member = cls(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout,
            stored.session_timeout,
            (),
        )
        member.apply_record(stored, protocol)
        return member

    def apply_record(self, stored: MemberMetadata, protocol: str | None) -> None:
        """Apply a record. In a replay, all fields may change. Otherwise only the assignment changes."""
        self.assignment = stored.assignment
        self.client_id = stored.client_id
        self.client_host = stored.client_host
        self.session_timeout_ms = stored.session_timeout
        if stored.rebalance_timeout >= 0:
            self.rebalance_timeout_ms = stored.rebalance_timeout
        if protocol is not None and (protocol, stored.subscription) not in self.protocols:
            self.protocols = ((protocol, stored.subscription),)

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_exempt_from_expiry(self) -> bool:
        """Whether the session cannot expire, because a JoinGroup or SyncGroup of the member waits for its answer.

        The session of a new member can expire even then. Otherwise new members whose clients have disconnected would
        accumulate.
        """
        return not self.is_new and (self.waiting_join is not None or self.waiting_sync is not None)

    def metadata_for(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def described(self, protocol: str | None, is_stable: bool) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.metadata_for(protocol) if is_stable else b"",
            self.assignment if is_stable else b"",
        )

    def to_record(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata_for(protocol),
            assignment=assignment,
        )


def common_protocols(members: Collection[Member]) -> set[str]:
    """Return the protocols that every member supports."""
    sets = [{name for name, _ in member.protocols} for member in members]
    return set.intersection(*sets) if sets else set()


def selected_protocol(members: Collection[Member]) -> str | None:
    """Return the protocol with the most votes. Each member votes for its first protocol that all members support.

    If several protocols have the most votes, the one that was voted for first is selected.
    """
    candidates = common_protocols(members)
    votes = Counter(
        next(name for name, _ in member.protocols if name in candidates) for member in members if candidates
    )
    return votes.most_common(1)[0][0] if votes else None
