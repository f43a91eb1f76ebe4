"""WebGroups: what groups with HTTP members are, whichever coordinator they have."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from kwire.access.audit.entries import GROUP, NO_AUDIT, Audit
from kwire.coordinator.group.definitions import GroupDefinition, GroupDefinitions
from kwire.coordinator.web_groups.values import (
    RESERVED_PREFIX,
    STRATEGIES,
    GroupDefaults,
    GroupState,
    GroupStats,
    Joined,
    MemberReader,
    MemberStatus,
    check_group_id,
    check_partition,
    session_ms,
)
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.topic_directory import StreamTopic, TopicDirectory


class WebGroups(ABC):
    """Consumer groups for HTTP members. Every method may raise KafkaError. Use it only in the event loop's thread."""

    def __init__(
        self,
        definitions: GroupDefinitions,
        topics: TopicDirectory,
        defaults: GroupDefaults | None = None,
        audit: Audit = NO_AUDIT,
    ) -> None:
        self._audit = audit
        self._definitions = definitions
        self._topics = topics
        self._defaults = defaults or GroupDefaults()
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
        check_group_id(group_id)
        asked = GroupDefinition(
            group_id,
            topic_name,
            strategy or self._defaults.strategy,
            session_ms(session_timeout_ms, self._defaults.session_timeout_ms),
        )
        if asked.strategy not in STRATEGIES:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f'strategy must be one of {", ".join(STRATEGIES)}, got "{asked.strategy}"',
            )
        topic = await self._topic(topic_name)
        if partition_count is not None and partition_count != topic.partition_count:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE,
                f"topic {topic_name} has {topic.partition_count} partitions, not {partition_count}",
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
        await self._define(group_id)
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
        try:
            await self._delete(group_id)
        except KafkaError as error:
            if error.code is ErrorCode.NON_EMPTY_GROUP:
                raise KafkaError(error.code, f"group {group_id} has members; remove them first") from None
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        await self._definitions.remove(group_id)
        self._audit.changed("group.deleted", GROUP, group_id)

    async def stats(self, group_id: str) -> GroupStats:
        known = self.find(group_id)
        topic = await self._topics.find(known.topic)
        state = await self._state(group_id, known.topic, topic)
        return GroupStats(known.topic, 0 if topic is None else topic.partition_count, state)

    # --- members

    async def join(self, group_id: str, *, session_timeout_ms: int | None = None, client_host: str = "") -> Joined:
        known = self.find(group_id)
        topic = await self._topic(known.topic)
        timeout_ms = session_ms(session_timeout_ms, known.session_timeout_ms)
        try:
            return await self._join(known, topic, timeout_ms, client_host)
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                # The group's members use another protocol, so an HTTP member cannot join.
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None
            raise

    @abstractmethod
    async def heartbeat(self, group_id: str, member_id: str, reading: Sequence[int] | None = ()) -> MemberStatus:
        """Renew a member's session and return its assignment.

        `reading` names the partitions that the member still reads. The member has released all other revoked
        partitions. If `reading` is None, the member has released no partition.
        """

    async def leave(self, group_id: str, member_id: str) -> None:
        """Remove a member. Its reader commits first, because the member cannot commit after it has left."""
        self.find(group_id)
        reader = self._readers.get((group_id, member_id))
        if reader is not None:
            await reader.leave()
        await self._leave(group_id, member_id)

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
        topic = await self._topic_with(self.find(group_id), [index for index, _ in offsets])
        await self._commit(group_id, topic, offsets, member_id, generation)
        if member_id is None:
            self._audit.changed("group.offsets_set", GROUP, group_id, {"topics": [topic.name]})

    async def committed(self, group_id: str, partitions: Sequence[int]) -> list[int | None]:
        """Return the committed offset of each partition, or None for a partition without one.

        Offsets that were committed for a deleted topic of the same name are ignored.
        """
        topic = await self._topic_with(self.find(group_id), partitions)
        return await self._committed(group_id, topic, partitions)

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

    @abstractmethod
    def watch(self, group_id: str, watcher: Callable[[], None]) -> None:
        """Call `watcher` when the assignment of a member may have changed. It must return quickly."""

    @abstractmethod
    def unwatch(self, group_id: str, watcher: Callable[[], None]) -> None: ...

    async def topic_of(self, group_id: str) -> StreamTopic:
        """Return the topic that the group reads."""
        return await self._topic(self.find(group_id).topic)

    # --- the coordinator

    @abstractmethod
    async def _define(self, group_id: str) -> None:
        """Create a group without members, if the coordinator has such groups."""

    @abstractmethod
    async def _delete(self, group_id: str) -> None: ...

    @abstractmethod
    async def _state(self, group_id: str, topic_name: str, topic: StreamTopic | None) -> GroupState: ...

    @abstractmethod
    async def _join(
        self, definition: GroupDefinition, topic: StreamTopic, session_timeout_ms: int, client_host: str
    ) -> Joined:
        """Raises KafkaError with GROUP_ID_NOT_FOUND if the group's members use another protocol."""

    @abstractmethod
    async def _leave(self, group_id: str, member_id: str) -> None: ...

    @abstractmethod
    async def _commit(
        self,
        group_id: str,
        topic: StreamTopic,
        offsets: Sequence[tuple[int, int]],
        member_id: str | None,
        generation: int | None,
    ) -> None: ...

    @abstractmethod
    async def _committed(self, group_id: str, topic: StreamTopic, partitions: Sequence[int]) -> list[int | None]: ...

    async def _topic(self, name: str) -> StreamTopic:
        topic = await self._topics.find(name) if not name.startswith(RESERVED_PREFIX) else None
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return topic

    async def _topic_with(self, definition: GroupDefinition, partitions: Sequence[int]) -> StreamTopic:
        """Return the topic of a group. Raises KafkaError if it does not have all these partitions."""
        topic = await self._topic(definition.topic)
        for index in partitions:
            check_partition(topic, index)
        return topic
