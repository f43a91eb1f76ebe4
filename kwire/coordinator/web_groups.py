"""Consumer groups for HTTP members: create a group, join it, read the assigned partitions, commit, leave.

These are consumer groups (KIP-848) of the coordinator that Kafka's clients use. Kafka consumers and HTTP members may be
in the same group. Kafka's tools show the members and offsets of both. Only a group for HTTP members has a definition.
The definition names the one topic that the group reads, so HTTP members do not subscribe to topics.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from kwire.access.audit.entries import GROUP, NO_AUDIT, Audit
from kwire.access.scope import plain_part
from kwire.broker.topics.topics import Topic, Topics
from kwire.clock import Clock
from kwire.config.http_api import RestGroupsConfig
from kwire.coordinator.client_requests import answer_of
from kwire.coordinator.group.commands import CommitOffsets, DeleteGroup, FetchOffsets, OffsetToCommit, TopicToFetch
from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat, WebHeartbeat, WebHeartbeatAnswer, WebLeave
from kwire.coordinator.group.consumer.members import JOINING_EPOCH
from kwire.coordinator.group.consumer.reconciliation import Owned
from kwire.coordinator.group.consumer.web_sessions import web_client_host, web_client_id
from kwire.coordinator.group.coordinator import GroupCoordinator, HasGroupId
from kwire.coordinator.group.definitions import GroupDefinition, GroupDefinitions
from kwire.coordinator.group.web_group_commands import DefineAnswer, DefineGroup, GroupSummaryAnswer, SummarizeGroup
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.types import ZERO_UUID

# The names of the assignment strategies in the HTTP API (requirement S0-69).
STRATEGIES = ("round_robin", "range", "sticky")
SESSION_TIMEOUT_MS_MIN = 1_000
SESSION_TIMEOUT_MS_MAX = 1_800_000
# Kafka's tools do not show longer group ids.
GROUP_ID_LENGTH_MAX = 249
RESERVED_PREFIX = "__"
# While a shard is being loaded after a start, a request submits its command again after each pause, for at most
# LOADING_WAIT_SECONDS.
LOADING_WAIT_SECONDS = 5.0
LOADING_PAUSE_SECONDS = 0.02

A = TypeVar("A")


class Joined(NamedTuple):
    member_id: str
    generation: int
    partitions: Sequence[int]


class MemberStatus(NamedTuple):
    """A member's assignment. While `is_rebalancing`, some partitions have yet to be assigned or revoked."""

    generation: int
    partitions: Sequence[int]
    is_rebalancing: bool
    session_timeout_ms: int


class GroupStats(NamedTuple):
    """Statistics of a group. `rebalanced_ms_ago` is None if no assignment has been computed yet."""

    topic: str
    state: str
    member_count: int
    generation: int
    partition_count: int
    committed_partitions: int
    rebalanced_ms_ago: int | None


class MemberReader(Protocol):
    """A stream that reads the partitions assigned to an HTTP member, and sends the events to the member."""

    def replaced(self) -> None:
        """Called when another reader has replaced this one."""
        ...

    async def leave(self) -> None:
        """Stop reading and commit. Called before the member leaves. Must return after a bounded time in any case."""
        ...


class GroupDefaults(NamedTuple):
    """Default values of fields that a request omits, and the maximum time in which members release partitions."""

    strategy: str = "round_robin"
    session_timeout_ms: int = 30_000
    rebalance_timeout_ms: int = 60_000


class WebGroups:
    """Consumer groups for HTTP members. Every method may raise KafkaError. Use it only in the event loop's thread."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        definitions: GroupDefinitions,
        topics: Topics,
        clock: Clock,
        defaults: GroupDefaults | None = None,
        audit: Audit = NO_AUDIT,
    ) -> None:
        self._audit = audit
        self.coordinator = coordinator
        self._definitions = definitions
        self._topics = topics
        self._clock = clock
        self._defaults = defaults or GroupDefaults()
        # Once True, it stays True: the offsets topic is never deleted.
        self._has_offsets_topic = False
        # The reader of each member, by group id and member id. Bounded by the number of connections.
        self._readers: dict[tuple[str, str], MemberReader] = {}

    # --- the group

    async def create(
        self,
        group_id: str,
        topic_name: str,
        *,
        partition_count: int | None = None,
        strategy: str | None = None,
        session_timeout_ms: int | None = None,
    ) -> tuple[GroupDefinition, bool]:
        """Create a group. Returns its definition, and whether the group is new.

        It is not an error if the group exists with the same definition. A different definition raises KafkaError.
        """
        _check_group_id(group_id)
        asked = GroupDefinition(
            group_id,
            topic_name,
            strategy or self._defaults.strategy,
            self._session_ms(session_timeout_ms, self._defaults.session_timeout_ms),
        )
        if asked.strategy not in STRATEGIES:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f'strategy must be one of {", ".join(STRATEGIES)}, got "{asked.strategy}"',
            )
        topic = self._topic(topic_name)
        if partition_count is not None and partition_count != len(topic.partitions):
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE,
                f"topic {topic_name} has {len(topic.partitions)} partitions, not {partition_count}",
            )
        known = self._definitions.find(group_id)
        if known is not None:
            if known != asked:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    f"group {group_id} already exists with other settings: topic {known.topic}, "
                    f"strategy {known.strategy}, session timeout {known.session_timeout_ms // 1000} seconds",
                )
            return known, False
        self._definitions.check_room()
        answer = await self._submit(DefineGroup(group_id=group_id), _define_error)
        _raise_if_error(answer.error, answer.message)
        try:
            await self._definitions.add(asked)
        except KafkaError:
            # Another request may have created the same group at the same time.
            if self._definitions.find(group_id) != asked:
                raise
            return asked, False
        self._audit.changed("group.created", GROUP, group_id, {"topic": topic_name})
        return asked, True

    def find(self, group_id: str) -> GroupDefinition:
        known = self._definitions.find(group_id)
        if known is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist; create it first")
        return known

    def page(self, after: str, count: int) -> list[GroupDefinition]:
        return self._definitions.page(after, count)

    async def delete(self, group_id: str) -> None:
        """Delete a group: its definition and all its offsets. Raises KafkaError while the group has members."""
        self.find(group_id)
        error = await self._submit(DeleteGroup(group_id=group_id), _itself)
        if error is not ErrorCode.GROUP_ID_NOT_FOUND:
            _raise_if_error(
                error,
                f"group {group_id} has members; remove them first" if error is ErrorCode.NON_EMPTY_GROUP else None,
            )
        await self._definitions.remove(group_id)
        self._audit.changed("group.deleted", GROUP, group_id)

    async def stats(self, group_id: str) -> GroupStats:
        known = self.find(group_id)
        topic = self._topics.get(known.topic)
        answer = await self._submit(SummarizeGroup(group_id=group_id, topic=known.topic), _summary_error)
        _raise_if_error(answer.error)
        ids = () if topic is None else (topic.topic_id, ZERO_UUID)
        committed = sum(topic_id in ids for _, topic_id in answer.committed)
        partition_count = 0 if topic is None else len(topic.partitions)
        summary = answer.summary
        if summary is None:
            return GroupStats(known.topic, "Empty", 0, 0, partition_count, committed, None)
        since_ms = None
        if summary.rebalanced_wall_ms:
            since_ms = max(0, self._clock.now_ms() - summary.rebalanced_wall_ms)
        return GroupStats(
            known.topic, summary.state, summary.member_count, summary.generation, partition_count, committed, since_ms
        )

    # --- members

    async def join(self, group_id: str, *, session_timeout_ms: int | None = None, client_host: str = "") -> Joined:
        known = self.find(group_id)
        topic = self._topic(known.topic)
        timeout_ms = self._session_ms(session_timeout_ms, known.session_timeout_ms)
        member_id = self.coordinator.fresh_id()
        command = ConsumerHeartbeat(
            group_id=group_id,
            member_id=member_id,
            member_epoch=JOINING_EPOCH,
            rebalance_timeout_ms=self._defaults.rebalance_timeout_ms,
            subscribed_topic_names=frozenset({known.topic}),
            server_assignor=known.strategy,
            owned={},
            client_id=web_client_id(timeout_ms),
            client_host=web_client_host(client_host),
        )
        answer = await self._submit(command, lambda one: one.error)
        if answer.error is ErrorCode.GROUP_ID_NOT_FOUND:
            # The group's members use another protocol, so an HTTP member cannot join. This is Kafka's error for that.
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, answer.message or "")
        _raise_if_error(answer.error, answer.message)
        return Joined(member_id, answer.member_epoch, list((answer.assignment or {}).get(topic.topic_id, ())))

    async def heartbeat(self, group_id: str, member_id: str, reading: Sequence[int] | None = ()) -> MemberStatus:
        """Renew a member's session and return its assignment.

        `reading` names the partitions that the member still reads. The member has released all other revoked
        partitions. If `reading` is None, the member has released no partition.
        """
        known = self.find(group_id)
        topic = self._topics.get(known.topic)
        owned: Owned = None if reading is None else {}
        if topic is not None and reading:
            owned = {topic.topic_id: reading}
        answer = await self._submit(WebHeartbeat(group_id=group_id, member_id=member_id, owned=owned), _heartbeat_error)
        _raise_if_error(answer.error, answer.message)
        partitions = () if topic is None else answer.assigned.get(topic.topic_id, ())
        return MemberStatus(answer.member_epoch, partitions, answer.is_rebalancing, answer.session_timeout_ms)

    async def leave(self, group_id: str, member_id: str) -> None:
        """Remove a member. Its reader commits first, because the member cannot commit after it has left."""
        self.find(group_id)
        reader = self._readers.get((group_id, member_id))
        if reader is not None:
            await reader.leave()
        answer = await self._submit(WebLeave(group_id=group_id, member_id=member_id), _heartbeat_error)
        _raise_if_error(answer.error, answer.message)

    # --- offsets

    async def commit(
        self,
        group_id: str,
        offsets: Sequence[tuple[int, int]],
        *,
        member_id: str | None = None,
        generation: int | None = None,
    ) -> None:
        """Commit offsets, given as (partition, next offset). On return they are durable. Raises the first error."""
        topic = self._topic(self.find(group_id).topic)
        for index, _ in offsets:
            _check_partition(topic, index)
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
            _raise_if_error(error, _commit_problem(error, group_id, member_id, generation))
        if member_id is None:
            self._audit.changed("group.offsets_set", GROUP, group_id, {"topics": [topic.name]})

    async def committed(self, group_id: str, partitions: Sequence[int]) -> list[int | None]:
        """Return the committed offset of each partition, or None for a partition without one.

        Offsets that were committed for a deleted topic of the same name are ignored.
        """
        topic = self._topic(self.find(group_id).topic)
        for index in partitions:
            _check_partition(topic, index)
        asked = FetchOffsets(group_id=group_id, topics=[TopicToFetch(topic.name, partitions)])
        answer = await self._submit(asked, lambda one: one.error)
        _raise_if_error(answer.error)
        ((_, offsets),) = ((one.topic, one.offsets) for one in answer.topics)
        ids = (topic.topic_id, ZERO_UUID)
        return [None if found is None or found.topic_id not in ids else found.offset for _, found in offsets]

    # --- readers of members

    def begin_reading(self, group_id: str, member_id: str, reader: MemberReader) -> None:
        """Register the reader of a member. An earlier reader of the member (of an old connection) is replaced."""
        before = self._readers.get((group_id, member_id))
        self._readers[group_id, member_id] = reader
        if before is not None:
            before.replaced()

    def end_reading(self, group_id: str, member_id: str, reader: MemberReader) -> None:
        if self._readers.get((group_id, member_id)) is reader:
            del self._readers[group_id, member_id]

    # ---

    def topic_of(self, group_id: str) -> Topic:
        """Return the topic that the group reads."""
        return self._topic(self.find(group_id).topic)

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name) if not name.startswith(RESERVED_PREFIX) else None
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return topic

    def _session_ms(self, asked_ms: int | None, default_ms: int) -> int:
        timeout_ms = default_ms if asked_ms is None else asked_ms
        if not SESSION_TIMEOUT_MS_MIN <= timeout_ms <= SESSION_TIMEOUT_MS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"the session timeout must be {SESSION_TIMEOUT_MS_MIN // 1000} to {SESSION_TIMEOUT_MS_MAX // 1000} "
                f"seconds, got {timeout_ms / 1000:g}",
            )
        return timeout_ms

    async def _submit(self, command: HasGroupId[A], error_of: Callable[[A], ErrorCode]) -> A:
        """Submit a command and return its answer. Creates the offsets topic first, and waits while the shard loads."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOADING_WAIT_SECONDS
        if not self._has_offsets_topic:
            await self._topics.offsets_topic()
            self._has_offsets_topic = True
        while True:
            asked = answer_of(self.coordinator, command, _itself)
            answer: A = await asked if isinstance(asked, Awaitable) else asked
            if error_of(answer) is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or loop.time() >= deadline:
                return answer
            await asyncio.sleep(LOADING_PAUSE_SECONDS)


def defaults_of(config: RestGroupsConfig) -> GroupDefaults:
    return GroupDefaults(config.strategy, config.session_timeout_ms, config.rebalance_timeout_ms)


def _itself(answer: A) -> A:
    return answer


def _define_error(answer: DefineAnswer) -> ErrorCode:
    return answer.error


def _summary_error(answer: GroupSummaryAnswer) -> ErrorCode:
    return answer.error


def _heartbeat_error(answer: WebHeartbeatAnswer) -> ErrorCode:
    return answer.error


def _raise_if_error(error: ErrorCode, message: str | None = None) -> None:
    if error is not ErrorCode.NONE:
        raise KafkaError(error, message or "")


def _check_partition(topic: Topic, index: int) -> None:
    if topic.partition(index) is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition {index} does not exist: topic {topic.name} has {len(topic.partitions)} partitions",
        )


def _check_group_id(group_id: str) -> None:
    plain = plain_part(group_id)
    length_max = GROUP_ID_LENGTH_MAX - (len(group_id) - len(plain))
    if not plain.strip() or len(plain) > length_max or plain.startswith(RESERVED_PREFIX):
        raise KafkaError(
            ErrorCode.INVALID_GROUP_ID,
            f"a group id must have 1 to {length_max} characters, must not be blank and must not begin with "
            f"{RESERVED_PREFIX}",
        )


def _commit_problem(error: ErrorCode, group_id: str, member_id: str | None, generation: int | None) -> str | None:
    if error is ErrorCode.UNKNOWN_MEMBER_ID:
        return f"{member_id} is not, or is no longer, a member of group {group_id}"
    if error is ErrorCode.STALE_MEMBER_EPOCH:
        return f"generation {generation} is not the current generation; fetch the assignment again"
    return None
