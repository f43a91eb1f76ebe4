"""RemoteWebGroups: groups with HTTP members on the coordinator of a cluster.

These are groups of the classic protocol. This process is the client of the coordinator for each of its HTTP members: it
joins, sends heartbeats, and assigns partitions if the member is the leader. Consumers of any Kafka client may be in the
same group.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

from kwire.access.audit.entries import NO_AUDIT, Audit
from kwire.coordinator.group.definitions import GroupDefinition, GroupDefinitions
from kwire.coordinator.web_groups.groups import WebGroups
from kwire.coordinator.web_groups.values import (
    GroupDefaults,
    GroupState,
    Joined,
    MemberStatus,
    commit_problem,
    raise_if_error,
)
from kwire.errors import ErrorCode, KafkaError
from kwire.kafka_client.cluster import Cluster
from kwire.kafka_client.groups.coordinators import Coordinators
from kwire.kafka_client.groups.descriptions import GroupDescriptions
from kwire.kafka_client.groups.offsets import NO_GENERATION, NO_MEMBER, GroupOffsets
from kwire.kafka_client.groups.waiting_connections import WaitingConnections
from kwire.streams.remote.directory import RemoteTopics
from kwire.streams.remote_groups.http_member import HttpMember
from kwire.streams.remote_groups.topic_leaders import TopicLeaders
from kwire.streams.topic_directory import StreamTopic

log = logging.getLogger("kwire.streams.remote")

# Each member has a connection to the cluster while its group rebalances.
MEMBERS_MAX: Final = 1_000
# When a member joins or leaves, the coordinator has its request after about this time. Then the other members of this
# process send a heartbeat, instead of learning of the rebalance with their next one.
REQUEST_SECONDS: Final = 0.02
# How long `close` waits until the members have left.
CLOSE_SECONDS: Final = 5.0
# How long a partition is asked for again that one broker knows and another one does not know yet, because it is new.
NEW_PARTITION_SECONDS: Final = 3.0


class RemoteWebGroups(WebGroups):
    """Use it in the event loop's thread, and `close` it before the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        definitions: GroupDefinitions,
        topics: RemoteTopics,
        defaults: GroupDefaults | None = None,
        audit: Audit = NO_AUDIT,
    ) -> None:
        super().__init__(definitions, topics, defaults, audit)
        self._remote_topics = topics
        self._coordinators = Coordinators(cluster)
        self._offsets = GroupOffsets(self._coordinators)
        self._descriptions = GroupDescriptions(self._coordinators)
        self._connections = WaitingConnections(cluster)
        self._leaders = TopicLeaders(cluster)
        self._members: dict[str, dict[str, HttpMember]] = {}
        self._joining_count = 0
        self._watchers: dict[str, set[Callable[[], None]]] = {}
        self._timers: dict[HttpMember, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Groups whose members send a heartbeat soon.
        self._looking: dict[str, asyncio.TimerHandle] = {}
        self._is_closed = False

    @property
    def member_count(self) -> int:
        """The number of HTTP members of this process."""
        return len(self._timers)

    async def close(self) -> None:
        """Remove all members, so that others get their partitions at once."""
        self._is_closed = True
        for timer in self._looking.values():
            timer.cancel()
        self._looking.clear()
        for member in list(self._timers):
            self._remove(member)
            self._start(member.end(_stopping()))
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._connections.close()

    # --- members

    async def heartbeat(self, group_id: str, member_id: str, reading: Sequence[int] | None = ()) -> MemberStatus:
        self.find(group_id)
        member = self._member(group_id, member_id)
        member.renew()
        return member.heartbeat(reading)

    def watch(self, group_id: str, watcher: Callable[[], None]) -> None:
        self._watchers.setdefault(group_id, set()).add(watcher)

    def unwatch(self, group_id: str, watcher: Callable[[], None]) -> None:
        watchers = self._watchers.get(group_id, set())
        watchers.discard(watcher)
        if not watchers:
            self._watchers.pop(group_id, None)

    async def _join(
        self, definition: GroupDefinition, topic: StreamTopic, session_timeout_ms: int, client_host: str
    ) -> Joined:
        self._check_open()
        if self.member_count + self._joining_count >= MEMBERS_MAX:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"this bridge has {MEMBERS_MAX} members of groups, and takes no more",
            )
        group_id = definition.group_id
        member = HttpMember(
            self._coordinators,
            self._connections,
            self._leaders,
            definition,
            session_timeout_ms,
            self._defaults.rebalance_timeout_ms,
            lambda: self._changed(member),
        )
        self._joining_count += 1
        try:
            await member.join()
            self._check_open()
        except KafkaError as error:
            await member.end(error)
            raise _join_problem(error, definition) from None
        finally:
            self._joining_count -= 1
        self._members.setdefault(group_id, {})[member.member_id] = member
        member.renew()
        self._timers[member] = asyncio.get_running_loop().call_at(member.deadline, self._check_session, member)
        self._look_soon(group_id)
        return Joined(member.member_id, member.generation, ())

    def _check_open(self) -> None:
        if self._is_closed:
            raise _stopping()

    async def _leave(self, group_id: str, member_id: str) -> None:
        member = self._member(group_id, member_id)
        self._remove(member)
        await self._end(member)

    async def _end(self, member: HttpMember) -> None:
        await member.end(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, _not_a_member(member.group_id, member.member_id)))
        self._look_soon(member.group_id)

    def _member(self, group_id: str, member_id: str) -> HttpMember:
        member = self._members.get(group_id, {}).get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, _not_a_member(group_id, member_id))
        return member

    def _changed(self, member: HttpMember) -> None:
        if member.error is not None and member in self._timers:
            log.info("member %s of group %r has ended: %s", member.member_id, member.group_id, member.error)
            self._remove(member)
            self._start(self._end(member))
        elif member.is_joining:
            self._look_soon(member.group_id)
        for watcher in tuple(self._watchers.get(member.group_id, ())):
            watcher()

    def _remove(self, member: HttpMember) -> None:
        self._timers.pop(member).cancel()
        members = self._members[member.group_id]
        del members[member.member_id]
        if not members:
            del self._members[member.group_id]

    def _check_session(self, member: HttpMember) -> None:
        """Remove a member whose client has sent nothing for the time of its session."""
        loop = asyncio.get_running_loop()
        if loop.time() < member.deadline:
            self._timers[member] = loop.call_at(member.deadline, self._check_session, member)
            return
        self._remove(member)
        self._start(self._end(member))

    def _look_soon(self, group_id: str) -> None:
        if group_id not in self._looking and not self._is_closed:
            self._looking[group_id] = asyncio.get_running_loop().call_later(REQUEST_SECONDS, self._look, group_id)

    def _look(self, group_id: str) -> None:
        del self._looking[group_id]
        for member in self._members.get(group_id, {}).values():
            member.look()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the group

    async def _define(self, group_id: str) -> None:
        """The coordinator creates a group when a member joins or an offset is committed."""

    async def _delete(self, group_id: str) -> None:
        # A member that has only its id, and no generation yet, does not keep the coordinator from a deletion.
        if group_id in self._members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members")
        await self._descriptions.delete(group_id)

    async def _state(self, group_id: str, topic_name: str, topic: StreamTopic | None) -> GroupState:
        committed = 0
        if topic is not None:
            offsets = await self._offsets.committed(group_id, {topic_name: range(topic.partition_count)})
            committed = sum(map(len, offsets.values()))
        described = await self._descriptions.find(group_id)
        if described is None:
            return GroupState(committed_partitions=committed)
        mine = self._members.get(group_id, {}).values()
        # The coordinator tells the generation of a classic group only to its members.
        generation = described.generation
        if generation is None:
            generation = max((one.generation for one in mine), default=0)
        times = [one.assigned_at for one in mine if one.assigned_at is not None]
        since_ms = int((asyncio.get_running_loop().time() - max(times)) * 1000) if times else None
        return GroupState(described.state, len(described.members), generation, committed, since_ms)

    # --- offsets

    async def _commit(
        self,
        group_id: str,
        topic: StreamTopic,
        offsets: Sequence[tuple[int, int]],
        member_id: str | None,
        generation: int | None,
    ) -> None:
        by_member, by_generation = self._committer(group_id, offsets, member_id, generation)
        loop = asyncio.get_running_loop()
        deadline, backoff = loop.time() + NEW_PARTITION_SECONDS, self._coordinators.cluster.backoff()
        while True:
            refused = await self._offsets.commit(group_id, topic.name, offsets, by_member, by_generation)
            if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in refused.values() or loop.time() >= deadline:
                break
            await asyncio.sleep(backoff.next_seconds())
        for error in refused.values():
            if error is ErrorCode.UNKNOWN_MEMBER_ID and member_id is None:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"group {group_id} has members, none of which uses this bridge; only members may commit",
                )
            if error is ErrorCode.REBALANCE_IN_PROGRESS:
                raise KafkaError(error, f"group {group_id} is rebalancing; try again")
            known = _COMMIT_ERRORS.get(error, error)
            raise_if_error(known, commit_problem(known, group_id, member_id, generation))

    async def _topic_with(self, definition: GroupDefinition, partitions: Sequence[int]) -> StreamTopic:
        """Return the topic of the group, with the new partitions that members have got already."""
        topic = await self._topic(definition.topic)
        members = self._members.get(definition.group_id, {}).values()
        assigned = {index for one in members for index in one.partitions}.intersection(partitions)
        if assigned and max(assigned) >= topic.partition_count:
            loop = asyncio.get_running_loop()
            deadline, backoff = loop.time() + NEW_PARTITION_SECONDS, self._coordinators.cluster.backoff()
            while max(assigned) >= topic.partition_count and loop.time() < deadline:
                await asyncio.sleep(backoff.next_seconds())
                topic = await self._remote_topics.ask(definition.topic) or topic
        return await super()._topic_with(definition, partitions)

    def _committer(
        self, group_id: str, offsets: Sequence[tuple[int, int]], member_id: str | None, generation: int | None
    ) -> tuple[str, int]:
        """Return the member and the generation of a commit.

        The coordinator takes commits of members only, while there are members. So a commit without a member is that of
        a member of this process, if possible of the one that owns the first of the partitions.
        """
        members = self._members.get(group_id, {})
        if member_id is not None:
            known = members.get(member_id)
            if known is not None and not known.generation:
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"{member_id} has no partitions yet; try again")
            if generation is None:
                if known is None:
                    raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, _not_a_member(group_id, member_id))
                generation = known.generation
            return member_id, generation
        joined = [one for one in members.values() if one.generation]
        if not joined:
            return NO_MEMBER, NO_GENERATION if generation is None else generation
        first = offsets[0][0] if offsets else None
        chosen = next((one for one in joined if first in one.partitions), joined[0])
        return chosen.member_id, chosen.generation if generation is None else generation

    async def _committed(self, group_id: str, topic: StreamTopic, partitions: Sequence[int]) -> list[int | None]:
        found = await self._offsets.committed(group_id, {topic.name: partitions}, is_stable=True)
        offsets = found.get(topic.name, {})
        return [offsets[index].offset if index in offsets else None for index in partitions]


# The errors of a server for what the coordinator of the classic protocol says.
_COMMIT_ERRORS: Final = {
    ErrorCode.ILLEGAL_GENERATION: ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.UNKNOWN_MEMBER_ID,
}


def _not_a_member(group_id: str, member_id: str) -> str:
    return f"{member_id} is not, or is no longer, a member of group {group_id}"


def _stopping() -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the bridge is stopping")


def _join_problem(error: KafkaError, definition: GroupDefinition) -> KafkaError:
    if error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        return KafkaError(
            error.code,
            f"group {definition.group_id} has members with which no assignor is shared: theirs must include range, "
            "roundrobin, sticky or cooperative-sticky",
        )
    if error.code is ErrorCode.INVALID_SESSION_TIMEOUT:
        return KafkaError(
            error.code,
            f"group {definition.group_id}: the cluster does not allow this session timeout; see "
            "group.min.session.timeout.ms and group.max.session.timeout.ms of its brokers",
        )
    return error
