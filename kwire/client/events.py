"""What a client hands to its user: events, the marks between them, and the answers to its calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

# Why events are missing, as far as the client finds it out itself; the server has reasons of its own beside these.
REASON_RETENTION = "retention"
REASON_RECREATED = "room_recreated"
REASON_SHORTENED = "log_shortened"


class Position(NamedTuple):
    """Where reading goes on: all that is needed to resume, now or in another process."""

    epoch: str
    next_offset: int


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a room. `data` is any JSON value."""

    room: str
    event_id: str
    offset: int
    type: str
    data: Any
    timestamp: str
    metadata: Mapping[str, str]

    @property
    def time(self) -> datetime:
        """When the server stored it, with its time zone (UTC)."""
        return datetime.fromisoformat(self.timestamp)


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """All that was stored has been delivered; what follows is live. Comes again after each resume."""

    room: str
    offset: int


@dataclass(frozen=True, slots=True)
class Lagging:
    """The server warns: this reader is `behind` events late."""

    room: str
    offset: int
    behind: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Events that cannot be delivered any more, both ends included.

    `to_offset` is None where nobody can know it: the room was deleted and made anew, and its offsets began again.
    With the reason "log_shortened" the server itself lost these events; other events will come under their offsets.
    """

    room: str
    from_offset: int
    to_offset: int | None
    reason: str


Item: TypeAlias = Event | CaughtUp | Lagging | Gap


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to publish. An `event_id` of your own lets you find it again when its fate is uncertain; `key` is the
    key of the record, for Kafka clients."""

    type: str
    data: Any
    metadata: Mapping[str, str] = field(default_factory=dict)
    event_id: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """The event is stored, as durably as its room promises."""

    event_id: str
    offset: int
    subscribers_notified: int


@dataclass(frozen=True, slots=True)
class History:
    """A page of events, and what the room holds. An empty room has oldest 0 and newest -1."""

    events: Sequence[Event]
    oldest_offset: int
    newest_offset: int


def body_of(event: NewEvent) -> dict[str, Any]:
    """An event as it is sent."""
    body: dict[str, Any] = {"event_type": event.type, "data": event.data}
    if event.metadata:
        body["metadata"] = dict(event.metadata)
    if event.event_id is not None:
        body["event_id"] = event.event_id
    if event.key is not None:
        body["key"] = event.key
    return body


def event_of(frame: Mapping[str, Any], room: str) -> Event:
    """`room` is for answers whose events leave it out because it was asked for."""
    return Event(
        room=frame.get("room", room),
        event_id=frame["event_id"],
        offset=frame["offset"],
        type=frame["type"],
        data=frame["data"],
        timestamp=frame["timestamp"],
        metadata=frame.get("metadata") or {},
    )
