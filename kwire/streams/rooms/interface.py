"""RoomDirectory: the interface of all rooms of a process. It does not depend on where the rooms are stored.

The server keeps rooms itself (`rooms.py`). A bridge keeps them on a cluster (`kwire/streams/remote_rooms`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from kwire.config import RoomsConfig
from kwire.errors import RoomNotFound, TooManyRooms
from kwire.streams.log import StreamLog
from kwire.streams.rooms.names import room_of_topic, topic_of_room, topic_prefix_of
from kwire.streams.rooms.settings import RoomRetention

# The maximum number of names examined for one page. If few of them match the prefix, the page has fewer rooms than
# requested, and the next page continues after the examined names.
NAMES_PER_PAGE_MAX = 10_000


class Subscribers(Protocol):
    """The subscribers of rooms; implemented by `Subscriptions`."""

    def count_of(self, log: StreamLog) -> int: ...


class OpenRoom(Protocol):
    """A room, or an ordinary topic of one partition that is used as a room."""

    @property
    def name(self) -> str: ...

    @property
    def log(self) -> StreamLog: ...


class RoomStats(NamedTuple):
    """Facts and counters of a room. A time is None if it is not known, or if there was no event."""

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


class RoomSummary(NamedTuple):
    """The facts of a room that are known without opening its log.

    `event_count`, `newest_offset` and `last_event_at_ms` are None if the log is not open. `last_event_at_ms` is also
    None if there was no event.
    """

    name: str
    created_at_ms: int | None
    subscriber_count: int
    event_count: int | None
    newest_offset: int | None
    last_event_at_ms: int | None


class RoomsPage(NamedTuple):
    """One page of rooms, in the order of their topic names.

    `next` is the argument `after` for the next page, or None if this is the last page.
    """

    names: list[str]
    next: str | None


class RoomDirectory(Protocol):
    """All rooms. The methods raise StreamError or KafkaError."""

    @property
    def config(self) -> RoomsConfig: ...

    @property
    def count(self) -> int: ...

    def get(self, name: str) -> OpenRoom:
        """Return a room from memory. Raises RoomNotFound, also if `find` has to be asked for the room first."""
        ...

    async def find(self, name: str) -> OpenRoom:
        """Return a room. Raises RoomNotFound if it does not exist."""
        ...

    async def get_or_create(self, name: str) -> OpenRoom:
        """Return the room that a client publishes or subscribes to.

        Creates the room if it does not exist and auto-creation is enabled.
        """
        ...

    def list(self, after: str = "", limit: int = 100, prefix: str = "") -> RoomsPage:
        """Return up to `limit` rooms after `after` whose names start with `prefix`, ordered by their topic names."""
        ...

    def summary(self, name: str) -> RoomSummary | None:
        """Return the summary of a room without opening its log; None if the room does not exist or is being deleted."""
        ...

    async def describe(self, name: str) -> RoomStats: ...


def page_of_rooms(rooms_from: Callable[[str, int], Sequence[str]], after: str, limit: int, prefix: str) -> RoomsPage:
    """Return a page of rooms. `rooms_from` returns up to a number of their topic names from a name on, in order."""
    start = topic_prefix_of(prefix)
    first = max(start, topic_of_room(after) + "\0" if after else "")
    names: list[str] = []
    # Request one more name than is returned, to find out whether there are more rooms.
    candidates = rooms_from(first, NAMES_PER_PAGE_MAX if prefix else limit + 1)
    for topic_name in candidates:
        if not topic_name.startswith(start):
            return RoomsPage(names, None)
        name = room_of_topic(topic_name)
        if name.startswith(prefix):
            if len(names) == limit:
                return RoomsPage(names, names[-1])
            names.append(name)
    is_end = len(candidates) < NAMES_PER_PAGE_MAX
    return RoomsPage(names, None if is_end else room_of_topic(candidates[-1]))


def missing_at_limit(name: str, error: TooManyRooms) -> RoomNotFound:
    """Return the error of a room that does not exist and cannot be created, because the limit on rooms is reached."""
    missing = RoomNotFound(name)
    missing.message = f"{missing.message}, and {error.message}"
    missing.details.update(error.details)
    return missing
