"""RemoteRooms: finds, creates, lists, changes and deletes rooms on a cluster.

A room is a topic of one partition that this bridge has created; its `RoomRecord` marks it. An ordinary topic of one
partition can be used as a room, too: it keeps its settings, and the bridge never deletes it.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from kwire.access.audit.entries import NO_AUDIT, TOPIC, Audit
from kwire.clock import Clock
from kwire.config import RoomsConfig
from kwire.errors import (
    ErrorCode,
    InvalidName,
    KafkaError,
    NotARoom,
    RoomNotFound,
    StreamError,
    TooManyRooms,
    TopicHasPartitions,
)
from kwire.streams.remote.agreement import AGREEMENT_SECONDS, await_deletion
from kwire.streams.remote.log import RemoteLog
from kwire.streams.remote.logs import RemoteLogs
from kwire.streams.remote_rooms.records import RoomRecord, RoomRecords
from kwire.streams.remote_rooms.topic_settings import changed_configs, new_topic_configs, retention_of_topic, storable
from kwire.streams.rooms.interface import (
    RoomsPage,
    RoomStats,
    RoomSummary,
    Subscribers,
    missing_at_limit,
    page_of_rooms,
)
from kwire.streams.rooms.names import topic_of_room
from kwire.streams.rooms.settings import (
    NO_OVERRIDES,
    RoomOverrides,
    RoomRetention,
    changed_retention,
    default_retention,
)

# The maximum number of topics that are being created at the same time. Further ones wait.
CREATIONS_MAX: Final = 200
PARTITION: Final = 0


class RemoteRoom(NamedTuple):
    """A room, or an ordinary topic of one partition that is used as a room."""

    name: str
    log: RemoteLog


class RemoteRooms:
    """All rooms of a bridge. It is the `RoomDirectory` and the `RoomCommands` of its HTTP port.

    The creation or deletion of a room is durable when the method returns.
    """

    def __init__(
        self,
        logs: RemoteLogs,
        records: RoomRecords,
        config: RoomsConfig,
        subscribers: Subscribers,
        clock: Clock,
        audit: Audit = NO_AUDIT,
        *,
        is_delete_allowed: bool = True,
    ) -> None:
        self.records = records
        self.config = config
        self.is_delete_allowed = is_delete_allowed
        # Called after the topic of a room was created or deleted.
        self.on_topic_change: Callable[[str], None] = lambda topic: None
        # The topics that were used since `take_used`.
        self._used: set[str] = set()
        self._logs = logs
        self._cluster = logs.cluster
        self._admin = logs.admin
        self._subscribers = subscribers
        self._clock = clock
        self._audit = audit
        self._creating: dict[str, asyncio.Task[bool]] = {}
        self._creations = asyncio.Semaphore(CREATIONS_MAX)
        self._deleting: dict[str, asyncio.Future[None]] = {}

    async def close(self) -> None:
        """Give up the creations that have no outcome yet."""
        creating = list(self._creating.values())
        for task in creating:
            task.cancel()
        await asyncio.gather(*creating, return_exceptions=True)
        await self.records.close()

    @property
    def count(self) -> int:
        return len(self.records)

    # --- finding

    def get(self, name: str) -> RemoteRoom:
        """Return a room whose log is open. Raises RoomNotFound for all others, which `find` opens."""
        topic = topic_of_room(name)
        log = self._logs.find(topic, PARTITION) if self.config.is_enabled else None
        if log is None or topic in self._deleting or self._partition_count(topic) != 1:
            raise RoomNotFound(name)
        self.mark_used(topic)
        return RemoteRoom(name, log)

    async def find(self, name: str) -> RemoteRoom:
        try:
            return self.get(name)
        except RoomNotFound:
            topic = topic_of_room(name)
            if not self.config.is_enabled or topic in self._deleting:
                raise
        try:
            await self._logs.open(topic, PARTITION)
        except KafkaError as error:
            if self._logs.find(topic, PARTITION) is None:
                self._cluster.metadata.forget(topic)
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise RoomNotFound(name) from error
            raise _as_stream_error(name, error) from error
        count = self._partition_count(topic)
        if count > 1:
            raise TopicHasPartitions(topic, count)
        return self.get(name)

    async def get_or_create(self, name: str) -> RemoteRoom:
        """Return the room that a client publishes or subscribes to.

        Creates the room if it does not exist and auto-creation is enabled.
        """
        try:
            return await self.find(name)
        except RoomNotFound:
            if not (self.config.is_auto_create and self.config.is_enabled):
                raise
        try:
            await self._create(name, default_retention(self.config))
        except TooManyRooms as error:
            raise missing_at_limit(name, error) from error
        return await self.find(name)

    def list(self, after: str = "", limit: int = 100, prefix: str = "") -> RoomsPage:
        """Return up to `limit` rooms after `after` whose names start with `prefix`, ordered by their topic names."""
        if not self.config.is_enabled:
            return RoomsPage([], None)
        return page_of_rooms(self.records.names_from, after, limit, prefix)

    def summary(self, name: str) -> RoomSummary | None:
        """Return what is known of a room without a request to the cluster; None if the room does not exist."""
        topic = topic_of_room(name)
        record, log = self.records.get(topic), self._logs.find(topic, PARTITION)
        if record is None or topic in self._deleting:
            return None
        count = 0 if log is None else self._subscribers.count_of(log)
        summary = RoomSummary(name, record.created_ms, count, None, None, None)
        if log is None or not log.is_known:
            return summary
        bounds = log.bounds()
        return summary._replace(
            event_count=bounds.committed_end - bounds.start,
            newest_offset=bounds.newest,
            last_event_at_ms=log.usage().last_timestamp_ms,
        )

    async def describe(self, name: str) -> RoomStats:
        room = await self.find(name)
        log = room.log
        await log.ready()
        record = self.record_of(log)
        retention = record.retention if record is not None else await self._retention_of_topic(log.topic)
        bounds, usage = log.bounds(), log.usage()
        return RoomStats(
            name=name,
            topic=log.topic,
            epoch=log.incarnation,
            is_room=record is not None,
            created_at_ms=None if record is None else record.created_ms,
            last_event_at_ms=usage.last_timestamp_ms,
            oldest_offset=bounds.start,
            newest_offset=bounds.newest,
            event_count=bounds.committed_end - bounds.start,
            size_bytes=usage.size_bytes,
            subscriber_count=self._subscribers.count_of(log),
            retention=retention,
        )

    def record_of(self, log: RemoteLog) -> RoomRecord | None:
        """Return the record of a room; None if this bridge has not created the topic."""
        record = self.records.get(log.topic)
        return record if record is not None and record.incarnation == log.incarnation else None

    def mark_used(self, topic: str) -> None:
        """A request has found a topic. If it is a room, it is in use."""
        if self.records.get(topic) is not None:
            self._used.add(topic)

    def take_used(self) -> set[str]:
        """Return the topics that were used since the last call."""
        used, self._used = self._used, set()
        return used

    # --- changes

    async def create(self, name: str, overrides: RoomOverrides = NO_OVERRIDES) -> bool:
        """Create a room, or apply `overrides` to an existing room. Returns True if the room was created."""
        if not self.config.is_enabled:
            raise RoomNotFound(name)
        try:
            room = await self.find(name)
        except RoomNotFound:
            wanted = storable(changed_retention(default_retention(self.config), overrides, self.config))
            if await self._create(name, wanted):
                return True
            room = await self.find(name)
        await self._change(room, overrides)
        return False

    async def delete(self, name: str) -> None:
        room = await self.find(name)
        if self.record_of(room.log) is None:
            raise NotARoom(room.log.topic)
        if not self.is_delete_allowed:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        if not await self.delete_topic(room.log, lambda: True):
            raise RoomNotFound(name)

    async def delete_topic(self, log: RemoteLog, is_wanted: Callable[[], bool]) -> bool:
        """Delete the topic of a room. Returns False if another call does it, or if `is_wanted` returns False.

        From before the last check until the outcome is known, the log refuses appends. So no event is acknowledged and
        then deleted with its room because nobody used it.
        """
        topic = log.topic
        if topic in self._deleting:
            return False
        ended = self._deleting[topic] = asyncio.get_running_loop().create_future()
        log.is_being_deleted = True
        try:
            if not is_wanted():
                return False
            await self._delete_topic(log)
            return True
        finally:
            log.is_being_deleted = False
            del self._deleting[topic]
            ended.set_result(None)

    async def _delete_topic(self, log: RemoteLog) -> None:
        topic = log.topic
        try:
            await self._admin.delete_topic(topic, log.topic_id)
            self._audit.changed("topic.deleted", TOPIC, topic)
        except KafkaError as error:
            # Another client has deleted it, and may have created another topic under the name, which is not touched.
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        self._logs.drop(topic)
        await self.records.remove(topic)
        await await_deletion(self._cluster, topic, log.topic_id)
        self.on_topic_change(topic)

    async def _create(self, name: str, retention: RoomRetention) -> bool:
        """Create a topic. Returns False if it exists by then, or if another call creates it."""
        topic = topic_of_room(name)
        while (ended := self._deleting.get(topic)) is not None:
            await asyncio.shield(ended)
        creating = self._creating.get(topic)
        is_first = creating is None
        if creating is None:
            if len(self.records) + len(self._creating) >= self.config.rooms_max:
                raise TooManyRooms(self.config.rooms_max)
            creating = asyncio.get_running_loop().create_task(self._create_topic(topic, retention))
            self._creating[topic] = creating
            creating.add_done_callback(lambda done: self._created(topic, done))
        try:
            return await asyncio.shield(creating) and is_first
        except KafkaError as error:
            raise _as_stream_error(name, error) from error

    def _created(self, topic: str, done: "asyncio.Task[bool]") -> None:
        del self._creating[topic]
        if not done.cancelled():
            # All callers may have been cancelled. Then nobody looks at the error.
            done.exception()

    async def _create_topic(self, topic: str, retention: RoomRetention) -> bool:
        loop = asyncio.get_running_loop()
        configs = new_topic_configs(retention)
        backoff = self._cluster.backoff()
        async with self._creations:
            is_new = False
            # It does not include the time that the room waits for others, and that the cluster needs for the creation.
            deadline: float | None = None
            while True:
                try:
                    if not is_new:
                        await self._admin.create_topic(topic, 1, configs)
                        is_new, deadline = True, None
                except KafkaError as error:
                    if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
                if deadline is None:
                    deadline = loop.time() + AGREEMENT_SECONDS
                try:
                    log = await self._logs.open(topic, PARTITION)
                    break
                except KafkaError as error:
                    # A broker does not know the new topic yet, or the topic that existed is being deleted.
                    if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise
                    if loop.time() > deadline:
                        raise
                await asyncio.sleep(backoff.next_seconds())
            if is_new:
                self._audit.changed("topic.created", TOPIC, topic, {"partitions": 1, "settings": sorted(configs)})
                await self.records.put(topic, RoomRecord(log.incarnation, self._clock.now_ms(), retention))
                self.on_topic_change(topic)
        return is_new

    async def _change(self, room: RemoteRoom, overrides: RoomOverrides) -> None:
        if overrides.is_empty:
            return
        record = self.record_of(room.log)
        if record is None:
            raise NotARoom(room.log.topic)
        wanted = storable(changed_retention(record.retention, overrides, self.config))
        if wanted != record.retention:
            configs = changed_configs(wanted)
            await self._cluster.refresh([room.log.topic])
            self._admin.check_id(room.log.topic, room.log.topic_id)
            await self._admin.change_configs(room.log.topic, configs)
            self._audit.changed("topic.configured", TOPIC, room.log.topic, {"settings": sorted(configs)})
            await self.records.put(room.log.topic, record._replace(retention=wanted))

    async def _retention_of_topic(self, topic: str) -> RoomRetention:
        return retention_of_topic(await self._admin.topic_configs(topic, RETENTION_CONFIGS))

    def _partition_count(self, topic: str) -> int:
        known = self._cluster.metadata.topics.get(topic)
        return 0 if known is None else len(known.leaders)


# The settings of an ordinary topic that GET /rooms/{room} shows.
RETENTION_CONFIGS = ("cleanup.policy", "retention.ms")


def _as_stream_error(name: str, error: KafkaError) -> StreamError | KafkaError:
    if error.code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return InvalidName(name, error.message or error.code.name)
    return error
