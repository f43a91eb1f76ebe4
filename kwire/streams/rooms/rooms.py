"""Rooms: finds, creates, lists, changes and deletes rooms.

A room is a topic of one partition with the config `kwire.room=true`. It is created on first use, keeps a bounded
history and is deleted when it has not been used for a while (`cleanup`). Until its first event, a room has only an
entry in the catalogue, and no object, file or timer. An ordinary topic of one partition can be used as a room, too.
Such a topic keeps its own configs and is never cleaned up.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kwire.broker.topics.topics import NewTopic, Topic, Topics
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
from kwire.streams.log import StreamLog
from kwire.streams.rooms.batched_creation import RoomCreator
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
    new_room_configs,
    retention_configs,
    retention_of,
)

# After this many iterations of the event loop, every event that was published before has been appended. A publisher
# looks up the room in one iteration, and its events are appended at the end of that iteration or in the next.
PUBLISH_ITERATIONS = 3


class Room(NamedTuple):
    """A room, or an ordinary topic of one partition that is used as a room."""

    name: str
    topic: Topic
    log: StreamLog

    @property
    def epoch(self) -> str:
        """The incarnation of the room.

        It changes when the room is deleted and created again, because the offsets then restart at 0.
        """
        return self.log.incarnation

    @property
    def is_room(self) -> bool:
        return self.topic.settings.is_room


class Rooms:
    """All rooms of this server. The methods raise StreamError or KafkaError.

    A lookup reads only memory. The creation or deletion of a room is durable when the method returns.
    """

    def __init__(
        self, topics: Topics, config: RoomsConfig, subscribers: Subscribers, *, is_delete_allowed: bool = True
    ) -> None:
        self._topics = topics
        self._subscribers = subscribers
        self._creator = RoomCreator(topics)
        self.is_delete_allowed = is_delete_allowed
        # The names of topics that `clean_up` is checking or deleting. `get` raises RoomNotFound for them, and
        # `get_or_create` waits until `clean_up` has ended.
        self._deleting: set[str] = set()
        self.config = config

    @property
    def count(self) -> int:
        return self._topics.catalogue.room_count

    def get(self, name: str) -> Room:
        topic_name = topic_of_room(name)
        topic = self._topics.get(topic_name) if self.config.is_enabled else None
        if topic is None or topic_name in self._deleting:
            raise RoomNotFound(name)
        return _as_room(name, topic)

    async def find(self, name: str) -> Room:
        return self.get(name)

    async def get_or_create(self, name: str) -> Room:
        """Return the room that a client publishes or subscribes to.

        Creates the room if it does not exist and auto-creation is enabled.
        """
        try:
            return self.get(name)
        except RoomNotFound:
            if not (self.config.is_auto_create and self.config.is_enabled):
                raise
        try:
            return _as_room(name, await self._create(name, default_retention(self.config)))
        except TooManyRooms as error:
            raise missing_at_limit(name, error) from error

    async def create(self, name: str, overrides: RoomOverrides = NO_OVERRIDES) -> tuple[Room, bool]:
        """Create a room, or apply `overrides` to an existing room. Returns the room, and True if it was created."""
        if not self.config.is_enabled:
            raise RoomNotFound(name)
        try:
            room = self.get(name)
        except RoomNotFound:
            default = default_retention(self.config)
            wanted = changed_retention(default, overrides, self.config) if not overrides.is_empty else default
            is_being_created = self._creator.has(topic_of_room(name))
            room = _as_room(name, await self._create(name, wanted))
            if not is_being_created:
                return room, True
        await self._change(room, overrides)
        return room, False

    async def delete(self, name: str) -> None:
        room = self.get(name)
        if not room.is_room:
            raise NotARoom(room.topic.name)
        if not self.is_delete_allowed:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        try:
            await self._topics.delete(room.topic)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise RoomNotFound(name) from error

    async def clean_up(self, topics: Sequence[Topic], is_idle: Callable[[Topic], bool]) -> Sequence[Topic]:
        """Delete the given topics for which `is_idle` is true. Returns the deleted topics.

        Meanwhile calls of `get_or_create` and `create` for these rooms wait. They then return the same room if it was
        not deleted, and otherwise a new room. A room that is being deleted refuses appends through Room objects that
        were returned before, so no event is acknowledged and then deleted.
        """
        names = {topic.name for topic in topics} - self._deleting
        self._deleting |= names
        try:
            # Wait until events that were already published to these rooms have been appended.
            for _ in range(PUBLISH_ITERATIONS):
                await asyncio.sleep(0)
            return await self._topics.delete_idle([topic for topic in topics if topic.name in names], is_idle)
        finally:
            self._deleting -= names

    def list(self, after: str = "", limit: int = 100, prefix: str = "") -> RoomsPage:
        """Return up to `limit` rooms after `after` whose names start with `prefix`, ordered by their topic names."""
        if not self.config.is_enabled:
            return RoomsPage([], None)
        return page_of_rooms(self._topics.catalogue.rooms_from, after, limit, prefix)

    def summary(self, name: str) -> RoomSummary | None:
        """Return the summary of a room without opening its log; None if the room does not exist or is being deleted."""
        try:
            topic_name = topic_of_room(name)
        except InvalidName:
            # A Kafka client has created the topic, and no room may have its name.
            return None
        facts, live = self._topics.catalogue.find(topic_name), self._topics.live(topic_name)
        if facts is None or topic_name in self._deleting:
            return None
        count = sum(map(self._subscribers.count_of, live.streams_in_use)) if live else 0
        summary = RoomSummary(name, facts.created_ms if facts.created_ms >= 0 else None, count, None, None, None)
        if live is None or not live.partitions[0].is_open:
            return summary
        try:
            bounds, last_event_at_ms = live.stream().bounds(), live.stream().usage().last_timestamp_ms
        except KafkaError:
            # The log cannot be read. GET /rooms/{room} reports the error.
            return summary
        return summary._replace(
            event_count=bounds.committed_end - bounds.start,
            newest_offset=bounds.newest,
            last_event_at_ms=last_event_at_ms,
        )

    def stats(self, room: Room) -> RoomStats:
        """Return facts and counters of a room. Opens the log if necessary, which takes a third of a millisecond."""
        bounds, usage, facts = room.log.bounds(), room.log.usage(), room.topic.facts
        return RoomStats(
            name=room.name,
            topic=room.topic.name,
            epoch=room.epoch,
            is_room=room.is_room,
            created_at_ms=facts.created_ms if facts.created_ms >= 0 else None,
            last_event_at_ms=usage.last_timestamp_ms,
            oldest_offset=bounds.start,
            newest_offset=bounds.newest,
            event_count=bounds.committed_end - bounds.start,
            size_bytes=usage.size_bytes,
            subscriber_count=self._subscribers.count_of(room.log),
            retention=retention_of(room.topic.settings),
        )

    async def describe(self, name: str) -> RoomStats:
        return self.stats(self.get(name))

    # --- changes

    async def _create(self, name: str, retention: RoomRetention) -> Topic:
        topic_name = topic_of_room(name)
        new = NewTopic(topic_name, 1, new_room_configs(retention, self.config))
        if topic_name not in self._deleting:
            self._check(name, new)
        if not self._creator.has(topic_name) and self.count + self._creator.count >= self.config.rooms_max:
            raise TooManyRooms(self.config.rooms_max)
        try:
            return await self._creator.create(new)
        except KafkaError as error:
            raise _as_stream_error(name, error) from error

    def _check(self, name: str, new: NewTopic) -> None:
        try:
            self._topics.check(new)
        except KafkaError as error:
            raise _as_stream_error(name, error) from error

    async def _change(self, room: Room, overrides: RoomOverrides) -> None:
        if overrides.is_empty:
            return
        topic = room.topic
        if not room.is_room:
            raise NotARoom(topic.name)
        now = retention_of(topic.settings)
        wanted = changed_retention(now, overrides, self.config)
        if wanted != now:
            await self._topics.configure(topic, {**topic.configs, **retention_configs(wanted)})


def _as_room(name: str, topic: Topic) -> Room:
    if len(topic.partitions) != 1:
        raise TopicHasPartitions(topic.name, len(topic.partitions))
    return Room(name, topic, topic.stream())


def _as_stream_error(name: str, error: KafkaError) -> StreamError | KafkaError:
    if error.code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return InvalidName(name, error.message or error.code.name)
    return error
