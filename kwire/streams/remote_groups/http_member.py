"""HttpMember: a member of a group of the cluster, on behalf of an HTTP client."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from kwire.coordinator.group.definitions import GroupDefinition
from kwire.coordinator.web_groups.values import MemberStatus
from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.groups.coordinators import Coordinators
from kwire.kafka_client.groups.member import GroupMember
from kwire.kafka_client.groups.membership import JoinedMember, Phase, Timeouts
from kwire.kafka_client.groups.waiting_connections import WaitingConnections
from kwire.streams.remote_groups import assignors
from kwire.streams.remote_groups.topic_leaders import TopicLeaders
from kwire.wire.errors import WireError

log = logging.getLogger("kwire.streams.remote")

# The session with the cluster is at least this long, because it allows no shorter ones (group.min.session.timeout.ms).
# The session of the HTTP client may be shorter: the member leaves when that ends.
SESSION_MS_MIN: Final = 6_000
# As a leader, a member compares the numbers of partitions of the topics after this time.
COMPARE_SECONDS: Final = 5.0


class HttpMember:
    """Calls `on_change` when the assignment may have changed, and when the member has ended."""

    def __init__(
        self,
        coordinators: Coordinators,
        connections: WaitingConnections,
        leaders: TopicLeaders,
        definition: GroupDefinition,
        session_ms: int,
        rebalance_ms: int,
        on_change: Callable[[], None],
    ) -> None:
        self.group_id = definition.group_id
        self.session_ms = session_ms
        self._definition = definition
        self._leaders = leaders
        self._on_change = on_change
        timeouts = Timeouts(max(SESSION_MS_MIN, session_ms), rebalance_ms)
        self._member = GroupMember(coordinators, connections, definition.group_id, timeouts, self)
        self._membership = self._member.membership
        # The partitions that the leader has assigned last. The member owns them while it `has_partitions`.
        self._assigned: Mapping[str, Sequence[int]] = {}
        # Whether the client knows that it has these partitions, and whether it knows that it has to release them.
        self._is_shown = self._is_asked_to_release = False
        # The topics of the group, and the numbers of partitions by which this member has assigned them as the leader.
        self._subscribed: Collection[str] = ()
        self._counted: Mapping[str, int] = {}
        self._compared_at = 0.0
        self.assigned_at: float | None = None
        self.deadline = 0.0

    @property
    def member_id(self) -> str:
        return self._membership.member_id

    @property
    def generation(self) -> int:
        return max(0, self._membership.generation)

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions of the group's topic that the member owns."""
        return self._assigned.get(self._definition.topic, ()) if self._membership.has_partitions else ()

    @property
    def error(self) -> KafkaError | None:
        """Why the cluster has removed the member."""
        return self._membership.error

    def renew(self) -> None:
        """The client has sent a request."""
        self.deadline = asyncio.get_running_loop().time() + self.session_ms / 1000

    async def join(self) -> None:
        """Raises KafkaError."""
        await self._member.join()
        self._member.start()

    async def end(self, error: KafkaError) -> None:
        await self._member.end(error)

    def look(self) -> None:
        """Another member has joined or left: find out whether the group rebalances."""
        if self._membership.phase is Phase.STABLE:
            self._member.heartbeat_soon()

    @property
    def is_joining(self) -> bool:
        return self._membership.phase is Phase.JOINING

    def heartbeat(self, reading: Sequence[int] | None) -> MemberStatus:
        """Take what the client says about its partitions, as in `WebGroups.heartbeat`, and return its status."""
        if self._membership.phase is Phase.RELEASING:
            is_released = reading is not None and not set(reading).intersection(self.partitions)
            if self._is_asked_to_release and is_released:
                self._member.release()
            self._is_asked_to_release = True
        is_stable = self._membership.phase is Phase.STABLE
        if is_stable:
            self._is_shown = True
        return MemberStatus(self.generation, self.partitions if is_stable else (), not is_stable, self.session_ms)

    # --- the subscriber

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        return assignors.protocols(
            self._definition.topic, self._definition.strategy, self._assigned, self._membership.generation
        )

    async def assign(self, protocol: str, members: Sequence[JoinedMember]) -> Mapping[str, bytes]:
        self._subscribed = assignors.subscribed_topics(members)
        counts = await self._leaders.counts_of(self._subscribed)
        self._counted, self._compared_at = counts, asyncio.get_running_loop().time()
        return assignors.written_assignments(assignors.assign(protocol, members, counts))

    async def is_assignment_outdated(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._compared_at < COMPARE_SECONDS:
            return False
        self._compared_at = now
        try:
            return await self._leaders.counts_of(self._subscribed) != self._counted
        except KafkaError as error:
            log.info("group %r: the partitions of its topics are not known: %s", self.group_id, error)
            return False

    def changed(self) -> None:
        membership = self._membership
        if membership.phase is Phase.STABLE:
            self._take_assignment(membership.assignment)
        elif membership.phase is Phase.RELEASING and not (self._is_shown and self.partitions):
            # The client has not seen these partitions, so there is nothing that it has to release.
            self._member.release()
            return
        self._on_change()

    def _take_assignment(self, assignment: bytes) -> None:
        self._is_shown = self._is_asked_to_release = False
        self.assigned_at = asyncio.get_running_loop().time()
        try:
            self._assigned = assignors.read_partitions(assignment)
        except WireError as error:
            self._assigned = {}
            self._membership.end(
                KafkaError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"group {self.group_id}: the leader has sent an assignment that cannot be read: {error}",
                )
            )
