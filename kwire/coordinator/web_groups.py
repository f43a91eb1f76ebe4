"""Consumer groups as they are used over HTTP: define one, join it, read one's partitions, commit, leave.

These are groups of the very coordinator that Kafka's clients use, of the kind in which the server assigns (KIP-848): a
Kafka consumer may join beside an HTTP member, and Kafka's tools see members and offsets. What is different is the
definition: it says which one topic the group reads, so nobody subscribes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from kwire.broker.topics import Topic, Topics
from kwire.clock import Clock
from kwire.config.bridge import RestGroupsConfig
from kwire.coordinator.asking import answer_of
from kwire.coordinator.group.commands import CommitOffsets, DeleteGroup, FetchOffsets, OffsetToCommit, TopicToFetch
from kwire.coordinator.group.consumer.commands import CheckIn, CheckInAnswer, CheckOut, ConsumerHeartbeat
from kwire.coordinator.group.consumer.members import JOINING_EPOCH
from kwire.coordinator.group.consumer.reconciliation import Owned
from kwire.coordinator.group.consumer.web_sessions import web_client_host, web_client_id
from kwire.coordinator.group.coordinator import GroupCoordinator, NamesGroup
from kwire.coordinator.group.defined import AskFacts, DefineAnswer, DefineGroup, FactsAnswer
from kwire.coordinator.group.definitions import GroupDefinition, GroupDefinitions
from kwire.errors import ErrorCode, KafkaError
from kwire.wire.types import ZERO_UUID

# How S0-69 spells them.
STRATEGIES = ("round_robin", "range", "sticky")
SESSION_TIMEOUT_MS_MIN = 1_000
SESSION_TIMEOUT_MS_MAX = 1_800_000
# A group id travels in Kafka's records and answers; no tool shows a longer one.
GROUP_ID_LENGTH_MAX = 249
RESERVED_PREFIX = "__"
# After a start groups are replayed first; who comes meanwhile waits so long, looking so often.
LOADING_WAIT_SECONDS = 5.0
LOADING_PAUSE_SECONDS = 0.02

A = TypeVar("A")


class Joined(NamedTuple):
    member_id: str
    generation: int
    partitions: Sequence[int]


class Standing(NamedTuple):
    """Where a member stands. While it is rebalancing, partitions are still to come or to be given up."""

    generation: int
    partitions: Sequence[int]
    is_rebalancing: bool
    session_timeout_ms: int


class GroupStats(NamedTuple):
    """`rebalanced_ms_ago` is None if nobody was ever given anything."""

    topic: str
    state: str
    member_count: int
    generation: int
    partition_count: int
    committed_partitions: int
    rebalanced_ms_ago: int | None


class MemberReader(Protocol):
    """Reads on behalf of a member."""

    def replaced(self) -> None:
        """Another one does, from now on."""
        ...

    async def leave(self) -> None:
        """The member is about to leave: stop reading, and commit. Returns soon, done or not."""
        ...


class Defaults(NamedTuple):
    """What counts where a request says nothing, and how long a member may take to let go of partitions."""

    strategy: str = "round_robin"
    session_timeout_ms: int = 30_000
    rebalance_timeout_ms: int = 60_000


class WebGroups:
    """Every method raises KafkaError for what cannot be. Called from the event loop."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        definitions: GroupDefinitions,
        topics: Topics,
        clock: Clock,
        defaults: Defaults | None = None,
    ) -> None:
        self.coordinator = coordinator
        self._definitions = definitions
        self._topics = topics
        self._clock = clock
        self._defaults = defaults or Defaults()
        # It is never deleted.
        self._has_offsets_topic = False
        # By group and member. Bounded by the connections there may be.
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
        """The definition, and whether it is new. The same one twice is no error; another one of the name is."""
        _check_group_id(group_id)
        asked = GroupDefinition(
            group_id,
            topic_name,
            strategy or self._defaults.strategy,
            self._session_ms(session_timeout_ms, self._defaults.session_timeout_ms),
        )
        if asked.strategy not in STRATEGIES:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR, f"there is no strategy {asked.strategy}, only {', '.join(STRATEGIES)}"
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
                    f"group {group_id} is there already: it reads {known.topic} by {known.strategy}, "
                    f"and a session lasts {known.session_timeout_ms // 1000} seconds",
                )
            return known, False
        self._definitions.check_room()
        answer = await self._ask(DefineGroup(group_id=group_id), _define_error)
        _raise(answer.error, answer.message)
        try:
            await self._definitions.add(asked)
        except KafkaError:
            # The same request may have come twice at once.
            if self._definitions.find(group_id) != asked:
                raise
            return asked, False
        return asked, True

    def find(self, group_id: str) -> GroupDefinition:
        known = self._definitions.find(group_id)
        if known is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {group_id} was created here")
        return known

    def page(self, after: str, count: int) -> list[GroupDefinition]:
        return self._definitions.page(after, count)

    async def delete(self, group_id: str) -> None:
        """The definition, and all offsets; refused while there are members."""
        self.find(group_id)
        error = await self._ask(DeleteGroup(group_id=group_id), _itself)
        if error is not ErrorCode.GROUP_ID_NOT_FOUND:
            _raise(error, f"group {group_id} has members" if error is ErrorCode.NON_EMPTY_GROUP else None)
        await self._definitions.remove(group_id)

    async def stats(self, group_id: str) -> GroupStats:
        known = self.find(group_id)
        topic = self._topics.get(known.topic)
        answer = await self._ask(AskFacts(group_id=group_id, topic=known.topic), _facts_error)
        _raise(answer.error)
        ids = () if topic is None else (topic.topic_id, ZERO_UUID)
        committed = sum(topic_id in ids for _, topic_id in answer.committed)
        partition_count = 0 if topic is None else len(topic.partitions)
        facts = answer.facts
        if facts is None:
            return GroupStats(known.topic, "Empty", 0, 0, partition_count, committed, None)
        since_ms = None
        if facts.rebalanced_wall_ms:
            since_ms = max(0, self._clock.now_ms() - facts.rebalanced_wall_ms)
        return GroupStats(
            known.topic, facts.state, facts.member_count, facts.generation, partition_count, committed, since_ms
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
        answer = await self._ask(command, lambda one: one.error)
        if answer.error is ErrorCode.GROUP_ID_NOT_FOUND:
            # Kafka's word for a group whose members speak a protocol that cannot be joined by this one.
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, answer.message or "")
        _raise(answer.error, answer.message)
        return Joined(member_id, answer.member_epoch, list((answer.assignment or {}).get(topic.topic_id, ())))

    async def check_in(self, group_id: str, member_id: str, reading: Sequence[int] | None = ()) -> Standing:
        """The member is alive, and has let go of all that is not its own any more but `reading`; None: of nothing."""
        known = self.find(group_id)
        topic = self._topics.get(known.topic)
        owned: Owned = None if reading is None else {}
        if topic is not None and reading:
            owned = {topic.topic_id: reading}
        answer = await self._ask(CheckIn(group_id=group_id, member_id=member_id, owned=owned), _check_in_error)
        _raise(answer.error, answer.message)
        partitions = () if topic is None else answer.assigned.get(topic.topic_id, ())
        return Standing(answer.member_epoch, partitions, answer.is_rebalancing, answer.session_timeout_ms)

    async def leave(self, group_id: str, member_id: str) -> None:
        """Who reads on its behalf commits first: afterwards the member has no word any more."""
        self.find(group_id)
        reader = self._readers.get((group_id, member_id))
        if reader is not None:
            await reader.leave()
        answer = await self._ask(CheckOut(group_id=group_id, member_id=member_id), _check_in_error)
        _raise(answer.error, answer.message)

    # --- offsets

    async def commit(
        self,
        group_id: str,
        offsets: Sequence[tuple[int, int]],
        *,
        member_id: str | None = None,
        generation: int | None = None,
    ) -> None:
        """Partitions and the offset to go on from in each. All of them, or the first error; durable on return."""
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
        errors = await self._ask(command, lambda answer: answer[0] if answer else ErrorCode.NONE)
        for error in errors:
            if error is ErrorCode.UNKNOWN_MEMBER_ID and member_id is None:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"group {group_id} has members of Kafka's classic protocol, and only they may commit",
                )
            _raise(error, _commit_problem(error, group_id, member_id, generation))

    async def committed(self, group_id: str, partitions: Sequence[int]) -> list[int | None]:
        """Where to go on in each of these, None where nothing was committed for the topic as it is now."""
        topic = self._topic(self.find(group_id).topic)
        for index in partitions:
            _check_partition(topic, index)
        asked = FetchOffsets(group_id=group_id, topics=[TopicToFetch(topic.name, partitions)])
        answer = await self._ask(asked, lambda one: one.error)
        _raise(answer.error)
        ((_, offsets),) = ((one.topic, one.offsets) for one in answer.topics)
        ids = (topic.topic_id, ZERO_UUID)
        return [None if found is None or found.topic_id not in ids else found.offset for _, found in offsets]

    # --- those who read on behalf of a member

    def begin_reading(self, group_id: str, member_id: str, reader: MemberReader) -> None:
        """A member has one reader: one that comes again, over a new connection, ends the one before."""
        before = self._readers.get((group_id, member_id))
        self._readers[group_id, member_id] = reader
        if before is not None:
            before.replaced()

    def end_reading(self, group_id: str, member_id: str, reader: MemberReader) -> None:
        if self._readers.get((group_id, member_id)) is reader:
            del self._readers[group_id, member_id]

    # ---

    def topic_of(self, group_id: str) -> Topic:
        """The topic that the group reads, as it is now."""
        return self._topic(self.find(group_id).topic)

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name) if not name.startswith(RESERVED_PREFIX) else None
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return topic

    def _session_ms(self, asked_ms: int | None, default_ms: int) -> int:
        timeout_ms = default_ms if asked_ms is None else asked_ms
        if not SESSION_TIMEOUT_MS_MIN <= timeout_ms <= SESSION_TIMEOUT_MS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"a session lasts {SESSION_TIMEOUT_MS_MIN // 1000} to {SESSION_TIMEOUT_MS_MAX // 1000} seconds",
            )
        return timeout_ms

    async def _ask(self, command: NamesGroup[A], error_of: Callable[[A], ErrorCode]) -> A:
        """The coordinator's answer, once it is loaded and has a topic to write to."""
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


def defaults_of(config: RestGroupsConfig) -> Defaults:
    return Defaults(config.strategy, config.session_timeout_ms, config.rebalance_timeout_ms)


def _itself(answer: A) -> A:
    return answer


def _define_error(answer: DefineAnswer) -> ErrorCode:
    return answer.error


def _facts_error(answer: FactsAnswer) -> ErrorCode:
    return answer.error


def _check_in_error(answer: CheckInAnswer) -> ErrorCode:
    return answer.error


def _raise(error: ErrorCode, message: str | None = None) -> None:
    if error is not ErrorCode.NONE:
        raise KafkaError(error, message or "")


def _check_partition(topic: Topic, index: int) -> None:
    if topic.partition(index) is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name} has {len(topic.partitions)} partitions, and no partition {index}",
        )


def _check_group_id(group_id: str) -> None:
    if not group_id.strip() or len(group_id) > GROUP_ID_LENGTH_MAX or group_id.startswith(RESERVED_PREFIX):
        raise KafkaError(
            ErrorCode.INVALID_GROUP_ID,
            f"a group's name has 1 to {GROUP_ID_LENGTH_MAX} characters, not only spaces, and does not begin with "
            f"{RESERVED_PREFIX}",
        )


def _commit_problem(error: ErrorCode, group_id: str, member_id: str | None, generation: int | None) -> str | None:
    if error is ErrorCode.UNKNOWN_MEMBER_ID:
        return f"{member_id} is not, or not any more, a member of group {group_id}"
    if error is ErrorCode.STALE_MEMBER_EPOCH:
        return f"generation {generation} is not the current one; read the assignment again"
    return None
