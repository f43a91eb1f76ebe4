"""LocalWebGroups: groups with HTTP members on the coordinator of this server.

These are consumer groups (KIP-848) of the coordinator that Kafka's clients use.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kwire.access.audit.entries import NO_AUDIT, Audit
from kwire.clock import Clock
from kwire.coordinator.client_requests import answer_of
from kwire.coordinator.group.commands import CommitOffsets, DeleteGroup, FetchOffsets, OffsetToCommit, TopicToFetch
from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat, WebHeartbeat, WebHeartbeatAnswer, WebLeave
from kwire.coordinator.group.consumer.members import JOINING_EPOCH
from kwire.coordinator.group.consumer.reconciliation import Owned
from kwire.coordinator.group.consumer.web_sessions import web_client_host, web_client_id
from kwire.coordinator.group.coordinator import GroupCoordinator, HasGroupId
from kwire.coordinator.group.definitions import GroupDefinition, GroupDefinitions
from kwire.coordinator.group.web_group_commands import DefineAnswer, DefineGroup, GroupSummaryAnswer, SummarizeGroup
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
from kwire.streams.topic_directory import StreamTopic, TopicDirectory
from kwire.wire.types import ZERO_UUID

# While a shard is being loaded after a start, a request submits its command again after each pause, for at most
# LOADING_WAIT_SECONDS.
LOADING_WAIT_SECONDS = 5.0
LOADING_PAUSE_SECONDS = 0.02

A = TypeVar("A")


class LocalWebGroups(WebGroups):
    """`create_offsets_topic` creates the offsets topic if there is none."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        definitions: GroupDefinitions,
        topics: TopicDirectory,
        create_offsets_topic: Callable[[], Awaitable[object]],
        clock: Clock,
        defaults: GroupDefaults | None = None,
        audit: Audit = NO_AUDIT,
    ) -> None:
        super().__init__(definitions, topics, defaults, audit)
        self._coordinator = coordinator
        self._create_offsets_topic = create_offsets_topic
        self._clock = clock
        # Once True, it stays True: the offsets topic is never deleted.
        self._has_offsets_topic = False

    async def heartbeat(self, group_id: str, member_id: str, reading: Sequence[int] | None = ()) -> MemberStatus:
        known = self.find(group_id)
        topic = await self._topics.find(known.topic)
        owned: Owned = None if reading is None else {}
        if topic is not None and reading:
            owned = {topic.topic_id: reading}
        answer = await self._submit(WebHeartbeat(group_id=group_id, member_id=member_id, owned=owned), _heartbeat_error)
        raise_if_error(answer.error, answer.message)
        partitions = () if topic is None else answer.assigned.get(topic.topic_id, ())
        return MemberStatus(answer.member_epoch, partitions, answer.is_rebalancing, answer.session_timeout_ms)

    def watch(self, group_id: str, watcher: Callable[[], None]) -> None:
        self._coordinator.watch(group_id, watcher)

    def unwatch(self, group_id: str, watcher: Callable[[], None]) -> None:
        self._coordinator.unwatch(group_id, watcher)

    # --- the coordinator

    async def _define(self, group_id: str) -> None:
        answer = await self._submit(DefineGroup(group_id=group_id), _define_error)
        raise_if_error(answer.error, answer.message)

    async def _delete(self, group_id: str) -> None:
        raise_if_error(await self._submit(DeleteGroup(group_id=group_id), _itself))

    async def _state(self, group_id: str, topic_name: str, topic: StreamTopic | None) -> GroupState:
        answer = await self._submit(SummarizeGroup(group_id=group_id, topic=topic_name), _summary_error)
        raise_if_error(answer.error)
        ids = () if topic is None else (topic.topic_id, ZERO_UUID)
        committed = sum(topic_id in ids for _, topic_id in answer.committed)
        summary = answer.summary
        if summary is None:
            return GroupState(committed_partitions=committed)
        since_ms = None
        if summary.rebalanced_wall_ms:
            since_ms = max(0, self._clock.now_ms() - summary.rebalanced_wall_ms)
        return GroupState(summary.state, summary.member_count, summary.generation, committed, since_ms)

    async def _join(
        self, definition: GroupDefinition, topic: StreamTopic, session_timeout_ms: int, client_host: str
    ) -> Joined:
        member_id = self._coordinator.fresh_id()
        command = ConsumerHeartbeat(
            group_id=definition.group_id,
            member_id=member_id,
            member_epoch=JOINING_EPOCH,
            rebalance_timeout_ms=self._defaults.rebalance_timeout_ms,
            subscribed_topic_names=frozenset({definition.topic}),
            server_assignor=definition.strategy,
            owned={},
            client_id=web_client_id(session_timeout_ms),
            client_host=web_client_host(client_host),
        )
        answer = await self._submit(command, lambda one: one.error)
        raise_if_error(answer.error, answer.message)
        return Joined(member_id, answer.member_epoch, list((answer.assignment or {}).get(topic.topic_id, ())))

    async def _leave(self, group_id: str, member_id: str) -> None:
        answer = await self._submit(WebLeave(group_id=group_id, member_id=member_id), _heartbeat_error)
        raise_if_error(answer.error, answer.message)

    async def _commit(
        self,
        group_id: str,
        topic: StreamTopic,
        offsets: Sequence[tuple[int, int]],
        member_id: str | None,
        generation: int | None,
    ) -> None:
        command = CommitOffsets(
            group_id=group_id,
            generation_id=-1 if generation is None else generation,
            member_id=member_id or "",
            is_by_web=True,
            offsets=[OffsetToCommit(topic.name, index, offset, topic_id=topic.topic_id) for index, offset in offsets],
        )
        errors = await self._submit(command, lambda answer: answer[0] if answer else ErrorCode.NONE)
        for error in errors:
            if error is ErrorCode.UNKNOWN_MEMBER_ID and member_id is None:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"group {group_id} has members of Kafka's classic protocol; only they may commit",
                )
            raise_if_error(error, commit_problem(error, group_id, member_id, generation))

    async def _committed(self, group_id: str, topic: StreamTopic, partitions: Sequence[int]) -> list[int | None]:
        asked = FetchOffsets(group_id=group_id, topics=[TopicToFetch(topic.name, partitions)])
        answer = await self._submit(asked, lambda one: one.error)
        raise_if_error(answer.error)
        ((_, offsets),) = ((one.topic, one.offsets) for one in answer.topics)
        ids = (topic.topic_id, ZERO_UUID)
        return [None if found is None or found.topic_id not in ids else found.offset for _, found in offsets]

    async def _submit(self, command: HasGroupId[A], error_of: Callable[[A], ErrorCode]) -> A:
        """Submit a command and return its answer. Creates the offsets topic first, and waits while the shard loads."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOADING_WAIT_SECONDS
        if not self._has_offsets_topic:
            await self._create_offsets_topic()
            self._has_offsets_topic = True
        while True:
            asked = answer_of(self._coordinator, command, _itself)
            answer: A = await asked if isinstance(asked, Awaitable) else asked
            if error_of(answer) is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or loop.time() >= deadline:
                return answer
            await asyncio.sleep(LOADING_PAUSE_SECONDS)


def _itself(answer: A) -> A:
    return answer


def _define_error(answer: DefineAnswer) -> ErrorCode:
    return answer.error


def _summary_error(answer: GroupSummaryAnswer) -> ErrorCode:
    return answer.error


def _heartbeat_error(answer: WebHeartbeatAnswer) -> ErrorCode:
    return answer.error
