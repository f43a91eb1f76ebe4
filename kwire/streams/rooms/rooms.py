"""Rooms: topics of one partition that appear when somebody uses them, keep so much history, and go when nobody does.

A room is nothing but a topic that says `kwire.room=true`: what it costs is its entry in the catalogue, and no object,
file or timer of its own until an event comes. An ordinary topic of one partition can be used as a room too; it keeps
its settings, and is never cleaned up.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from kwire.broker.rooms.making import RoomMaking
from kwire.broker.rooms.names import range_of_prefix, room_of_topic, topic_of_room
from kwire.broker.rooms.settings import (
    NOTHING_ELSE,
    RoomOverrides,
    RoomRetention,
    changed_retention,
    default_retention,
    new_room_configs,
    retention_configs,
    retention_of,
)
from kwire.broker.topics import NewTopic, Topic, Topics
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

# Names looked at for one page; a page of rooms that begin with something rare ends early, and the next one goes on.
NAMES_PER_PAGE_MAX = 10_000
# Who publishes finds the room in one turn of the loop, and the events are appended at the end of it or in the next.
TURNS_OF_PUBLISHING = 3


class Subscribers(Protocol):
    """The subscribers of rooms: `subscriptions/registry.py`."""

    def count_of(self, log: StreamLog) -> int: ...


class Room(NamedTuple):
    """A room, or an ordinary topic of one partition that is used as one."""

    name: str
    topic: Topic
    log: StreamLog

    @property
    def epoch(self) -> str:
        """Another one when a room was deleted and made again: its offsets begin anew."""
        return self.log.incarnation

    @property
    def is_room(self) -> bool:
        return self.topic.settings.is_room


class RoomStats(NamedTuple):
    """What can be told of a room. Times are None if there is none, or nobody knows."""

    name: str
    topic: str
    epoch: str
    is_room: bool
    created_at_ms: int | None
    last_event_at_ms: int | None
    oldest_offset: int
    newest_offset: int
    event_count: int
    size_bytes: int
    subscriber_count: int
    retention: RoomRetention


class RoomGlance(NamedTuple):
    """What is known of a room without making anything live for it."""

    name: str
    created_at_ms: int | None
    subscriber_count: int


class RoomsPage(NamedTuple):
    """Some rooms in the order of their topics' names; `next` is what to give as `after` for those that follow."""

    names: list[str]
    next: str | None


class Rooms:
    """All rooms. Finding one is dictionary work; making and deleting are durable. Raises StreamError or KafkaError."""

    def __init__(
        self, topics: Topics, config: RoomsConfig, subscribers: Subscribers, *, is_delete_allowed: bool = True
    ) -> None:
        self._topics = topics
        self._subscribers = subscribers
        self._making = RoomMaking(topics)
        self.is_delete_allowed = is_delete_allowed
        # Topics that are being cleaned up: who asks for one of them now gets a new one behind it.
        self._leaving: set[str] = set()
        self.config = config

    @property
    def count(self) -> int:
        return self._topics.catalogue.room_count

    def get(self, name: str) -> Room:
        topic_name = topic_of_room(name)
        topic = self._topics.get(topic_name) if self.config.is_enabled else None
        if topic is None or topic_name in self._leaving:
            raise RoomNotFound(name)
        return _as_room(name, topic)

    async def get_or_create(self, name: str) -> Room:
        """A room for somebody who publishes or subscribes to it."""
        try:
            return self.get(name)
        except RoomNotFound:
            if not (self.config.is_auto_create and self.config.is_enabled):
                raise
        try:
            return _as_room(name, await self._make(name, default_retention(self.config)))
        except TooManyRooms as error:
            missing = RoomNotFound(name)
            missing.message = f"{missing.message}, and {error.message}"
            missing.details["limit"] = self.config.rooms_max
            raise missing from error

    async def create(self, name: str, overrides: RoomOverrides = NOTHING_ELSE) -> tuple[Room, bool]:
        """A room as somebody wants it, and whether it was made for it; one that is there is changed."""
        if not self.config.is_enabled:
            raise RoomNotFound(name)
        try:
            room = self.get(name)
        except RoomNotFound:
            default = default_retention(self.config)
            wanted = changed_retention(default, overrides, self.config) if not overrides.is_empty else default
            is_made_already = self._making.has(topic_of_room(name))
            room = _as_room(name, await self._make(name, wanted))
            if not is_made_already:
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
        """Delete those of these rooms' topics that are idle, and tell which.

        While that is judged and done, who wants one of the rooms gets the one that is there behind it: the same, or
        another one. Who held it before and publishes is refused, so no event is acknowledged and deleted.
        """
        names = {topic.name for topic in topics} - self._leaving
        self._leaving |= names
        try:
            # What was published to them before has been appended when the turns that were due are over.
            for _ in range(TURNS_OF_PUBLISHING):
                await asyncio.sleep(0)
            return await self._topics.delete_idle([topic for topic in topics if topic.name in names], is_idle)
        finally:
            self._leaving -= names

    def list(self, after: str = "", limit: int = 100, prefix: str = "") -> RoomsPage:
        """The next rooms behind `after` whose names begin with `prefix`."""
        if not self.config.is_enabled:
            return RoomsPage([], None)
        start = range_of_prefix(prefix)
        first = max(start, topic_of_room(after) + "\0" if after else "")
        names: list[str] = []
        # One more than is told, to know whether others follow.
        looked_at = self._topics.catalogue.rooms_from(first, NAMES_PER_PAGE_MAX if prefix else limit + 1)
        for topic_name in looked_at:
            if not topic_name.startswith(start):
                return RoomsPage(names, None)
            name = room_of_topic(topic_name)
            if name.startswith(prefix):
                if len(names) == limit:
                    return RoomsPage(names, names[-1])
                names.append(name)
        is_end = len(looked_at) < NAMES_PER_PAGE_MAX
        return RoomsPage(names, None if is_end else room_of_topic(looked_at[-1]))

    def glance(self, name: str) -> RoomGlance | None:
        """For those who tell of many; None if it is gone, or just going."""
        topic_name = topic_of_room(name)
        facts, live = self._topics.catalogue.find(topic_name), self._topics.live(topic_name)
        if facts is None or topic_name in self._leaving:
            return None
        count = sum(map(self._subscribers.count_of, live.streams_in_use)) if live else 0
        return RoomGlance(name, facts.created_ms if facts.created_ms >= 0 else None, count)

    def stats(self, room: Room) -> RoomStats:
        """Opens the log if need be, which takes a third of a millisecond."""
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

    # --- changes

    async def _make(self, name: str, retention: RoomRetention) -> Topic:
        topic_name = topic_of_room(name)
        new = NewTopic(topic_name, 1, new_room_configs(retention, self.config))
        if topic_name not in self._leaving:
            self._check(name, new)
        if not self._making.has(topic_name) and self.count + self._making.count >= self.config.rooms_max:
            raise TooManyRooms(self.config.rooms_max)
        try:
            return await self._making.make(new)
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
