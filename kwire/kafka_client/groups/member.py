"""GroupMember: joins a group of a cluster, follows its rebalances, and leaves. Its task runs until the member ends."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.errors import Unreachable
from kwire.kafka_client.groups.coordinators import COORDINATOR_SECONDS, PASSING, Coordinators
from kwire.kafka_client.groups.membership import JoinedMember, Membership, Phase, Timeouts
from kwire.kafka_client.groups.waiting_connections import WaitingConnections
from kwire.kafka_client.link import Purpose
from kwire.wire.messages.heartbeat import HEARTBEAT
from kwire.wire.messages.join_group import JOIN_GROUP
from kwire.wire.messages.leave_group import LEAVE_GROUP
from kwire.wire.messages.sync_group import SYNC_GROUP

log = logging.getLogger("kwire.kafka_client")

# A member sends this number of heartbeats per session timeout, and at least one every HEARTBEAT_SECONDS_MAX, so that it
# learns of a rebalance soon.
HEARTBEATS_PER_SESSION: Final = 3
HEARTBEAT_SECONDS_MAX: Final = 3.0
# How long a member tries to leave. After that, the coordinator removes it when its session ends.
LEAVE_SECONDS: Final = 5.0


class Subscriber(Protocol):
    """What a member subscribes to, how it assigns partitions as a leader, and who is told of changes."""

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        """Return the names of its assignors and its subscription for each, the preferred one first."""
        ...

    async def assign(self, protocol: str, members: Sequence[JoinedMember]) -> Mapping[str, bytes]:
        """Return the assignments of all members. Raises KafkaError."""
        ...

    async def is_assignment_outdated(self) -> bool:
        """Whether the topics have other numbers of partitions than in the last `assign`, as far as it is known."""
        ...

    def changed(self) -> None:
        """The phase of the member has changed."""
        ...


class GroupMember:
    """Call `join`, then `start`. `end` stops it and leaves the group."""

    def __init__(
        self,
        coordinators: Coordinators,
        connections: WaitingConnections,
        group_id: str,
        timeouts: Timeouts,
        subscriber: Subscriber,
    ) -> None:
        self.membership = Membership(group_id, timeouts)
        self._coordinators = coordinators
        self._connections = connections
        self._subscriber = subscriber
        self._is_woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # The last request has failed, and is repeated after a pause.
        self._is_repeating = False
        session_seconds = timeouts.session_ms / 1000
        self._heartbeat_seconds = min(HEARTBEAT_SECONDS_MAX, session_seconds / HEARTBEATS_PER_SESSION)

    async def join(self) -> str:
        """Ask the coordinator for a member id, and return it. The group rebalances after `start`. Raises KafkaError."""
        membership = self.membership
        backoff = self._coordinators.cluster.backoff()
        try:
            async with asyncio.timeout(COORDINATOR_SECONDS):
                while not membership.member_id:
                    try:
                        is_done = await self._send_join()
                    except KafkaError as error:
                        is_done = self._failed(error)
                    if membership.error is not None:
                        raise membership.error
                    if not is_done:
                        await asyncio.sleep(backoff.next_seconds())
        except TimeoutError:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"the coordinator of group {membership.group_id!r} has not answered within {COORDINATOR_SECONDS:g} s",
            ) from None
        return membership.member_id

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def release(self) -> None:
        """The partitions of the member are released: join again."""
        self._change(self.membership.join_again)

    def must_release(self) -> None:
        """Make the group rebalance, as soon as the partitions of this member are released."""
        self._change(self.membership.must_release)

    def heartbeat_soon(self) -> None:
        """Send the next heartbeat now, because the group may rebalance."""
        self._is_woken.set()

    async def end(self, error: KafkaError) -> None:
        """Leave the group, unless the coordinator has removed the member.

        On return the coordinator has answered, or could not be reached within LEAVE_SECONDS.
        """
        self._change(lambda: self.membership.end(error))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.membership.is_removed or not self.membership.member_id:
            return
        group_id = self.membership.group_id
        try:
            await self._coordinators.ask(
                group_id,
                LEAVE_GROUP,
                self.membership.leave_request(),
                lambda response: int(response.error_code),
                seconds=LEAVE_SECONDS,
            )
        except KafkaError as failed:
            log.info(
                "member %s of group %r leaves when its session ends: %s", self.membership.member_id, group_id, failed
            )

    # --- the task

    async def _run(self) -> None:
        backoff = self._coordinators.cluster.backoff()
        membership = self.membership
        while not membership.is_ended:
            before = membership.phase
            try:
                is_done = await self._step()
            except KafkaError as error:
                is_done = self._failed(error)
            except Exception as error:
                log.exception("member %s of group %r has failed", membership.member_id, membership.group_id)
                membership.end(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the member has failed: {error}"))
                is_done = True
            if membership.phase is not before:
                self._subscriber.changed()
            self._is_repeating = not is_done
            if is_done:
                backoff.reset()
            elif not membership.is_ended:
                await self._pause(backoff.next_seconds())

    async def _step(self) -> bool:
        match self.membership.phase:
            case Phase.JOINING:
                return await self._send_join()
            case Phase.SYNCING:
                return await self._sync()
            case _:
                return await self._heartbeat()

    def _failed(self, error: KafkaError) -> bool:
        membership = self.membership
        if error.code not in PASSING:
            membership.end(error)
            return True
        level = logging.DEBUG if self._is_repeating else logging.INFO
        log.log(level, "member %s of group %r tries again: %s", membership.member_id, membership.group_id, error)
        if isinstance(error, Unreachable):
            self._coordinators.moved(membership.group_id)
        if membership.phase is Phase.SYNCING:
            membership.join_again()
        return False

    async def _send_join(self) -> bool:
        membership = self.membership
        node = await self._coordinators.node_of(membership.group_id)
        request = membership.join_request(self._subscriber.protocols())
        wait_seconds = membership.timeouts.rebalance_ms / 1000
        response = await self._connections.request(node, JOIN_GROUP, request, wait_seconds)
        return self._answered(membership.joined(response))

    async def _sync(self) -> bool:
        membership = self.membership
        assignments: Mapping[str, bytes] = {}
        if membership.is_leader:
            assignments = await self._subscriber.assign(membership.protocol, membership.members)
        node = await self._coordinators.node_of(membership.group_id)
        request = membership.sync_request(assignments)
        wait_seconds = membership.timeouts.rebalance_ms / 1000
        response = await self._connections.request(node, SYNC_GROUP, request, wait_seconds)
        return self._answered(membership.synced(response))

    async def _heartbeat(self) -> bool:
        membership = self.membership
        # One that has failed is repeated soon: the session must not end while the coordinator moves.
        if not self._is_repeating:
            await self._pause(self._heartbeat_seconds)
        if not membership.has_partitions:
            return True
        if (
            membership.is_leader
            and membership.phase is Phase.STABLE
            and await self._subscriber.is_assignment_outdated()
        ):
            membership.must_release()
        node = await self._coordinators.node_of(membership.group_id)
        link = self._coordinators.cluster.link(node, Purpose.CONTROL)
        response = await link.request(HEARTBEAT, membership.heartbeat_request())
        return self._answered(membership.heartbeat_answered(response))

    def _answered(self, is_done: bool) -> bool:
        if not is_done:
            self._coordinators.moved(self.membership.group_id)
        return is_done

    async def _pause(self, seconds: float) -> None:
        """Wait until the time has passed, or until the phase is changed from outside."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_woken.wait()
        except TimeoutError:
            pass
        self._is_woken.clear()

    def _change(self, change: Callable[[], None]) -> None:
        before = self.membership.phase
        change()
        if self.membership.phase is not before:
            self._is_woken.set()
            self._subscriber.changed()
