"""Data types of the client: events, the items between them in a subscription, and results of calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

# Reasons of gaps that the client detects. The server reports gaps with further reasons.
REASON_RETENTION = "retention"
REASON_RECREATED = "room_recreated"
REASON_SHORTENED = "log_shortened"


class Position(NamedTuple):
    """The position of a subscription. A subscription can be resumed from it, also in another process."""

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
        """The time when the server stored the event, with time zone UTC."""
        return datetime.fromisoformat(self.timestamp)


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Reports that all stored events were delivered and new events follow.

    A subscription that reconnects yields it again when it has delivered the events that it missed.
    """

    room: str
    offset: int


@dataclass(frozen=True, slots=True)
class Lagging:
    """A warning from the server: `behind` events wait to be delivered to this subscription."""

    room: str
    offset: int
    behind: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of events that can no longer be delivered. Both offsets are included.

    `to_offset` is None if the room was deleted and created again: its offsets start at 0 again, and the last offset of
    the old room is unknown. The reason "log_shortened" means that the server lost the events, and that new events get
    the same offsets.
    """

    room: str
    from_offset: int
    to_offset: int | None
    reason: str


Item: TypeAlias = Event | CaughtUp | Lagging | Gap


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to publish to a room.

    If you set `event_id`, you can search the room for the event after PublishUncertain. `key` is the record key that
    Kafka clients see.
    """

    type: str
    data: Any
    metadata: Mapping[str, str] = field(default_factory=dict)
    event_id: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a publish. The event is stored, with the durability that its room is configured for."""

    event_id: str
    offset: int
    subscribers_notified: int


@dataclass(frozen=True, slots=True)
class History:
    """A page of events, and the room's oldest and newest offsets (0 and -1 if the room is empty)."""

    events: Sequence[Event]
    oldest_offset: int
    newest_offset: int


def body_of(event: NewEvent) -> dict[str, Any]:
    """Return the JSON body of an event to publish to a room."""
    body: dict[str, Any] = {"event_type": event.type, "data": event.data}
    if event.metadata:
        body["metadata"] = dict(event.metadata)
    if event.event_id is not None:
        body["event_id"] = event.event_id
    if event.key is not None:
        body["key"] = event.key
    return body


def event_of(frame: Mapping[str, Any], room: str) -> Event:
    """Return the event that a JSON object describes. `room` is used if the object does not name its room."""
    return Event(
        room=frame.get("room", room),
        event_id=frame["event_id"],
        offset=frame["offset"],
        type=frame["type"],
        data=frame["data"],
        timestamp=frame["timestamp"],
        metadata=frame.get("metadata") or {},
    )


# --- the event store


@dataclass(frozen=True, slots=True)
class EventToStore:
    """An event to publish to the event store.

    `expected_version` is the version that the topic's last event must have. -1 requires an empty topic.
    """

    topic: str
    type: str
    payload: Any
    metadata: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    event_id: str | None = None
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event of the event store.

    `version` is the event's number in its topic. `position` is its number among the events of all topics. Only events
    from `subscribe_all` have a `position`.
    """

    id: str
    topic: str
    version: int
    type: str
    payload: Any
    timestamp: str
    metadata: Mapping[str, str]
    key: str | None = None
    position: int | None = None

    @property
    def time(self) -> datetime:
        """The time when the server stored the event, with time zone UTC."""
        return datetime.fromisoformat(self.timestamp)


@dataclass(frozen=True, slots=True)
class EventPage:
    """A page of stored events.

    To request the next page, pass `next` as `since` (when reading backwards, as `before`). On the last page, `next` is
    None.
    """

    events: Sequence[StoredEvent]
    next: str | None


# Subscriptions to the event store use the same CaughtUp, Lagging and Gap as rooms. In an event store subscription, the
# field `room` is the topic or "all", and the offsets are versions or positions.
StoredItem: TypeAlias = StoredEvent | CaughtUp | Lagging | Gap


def stored_body(event: EventToStore) -> dict[str, Any]:
    """Return the JSON body of an event to publish to the event store."""
    body: dict[str, Any] = {"topic": event.topic, "type": event.type, "payload": event.payload}
    if event.metadata:
        body["metadata"] = dict(event.metadata)
    for name, value in (("key", event.key), ("eventId", event.event_id), ("expectedVersion", event.expected_version)):
        if value is not None:
            body[name] = value
    return body


def stored_event(frame: Mapping[str, Any]) -> StoredEvent:
    """Return the stored event that a JSON object describes."""
    key = frame.get("key")
    return StoredEvent(
        id=frame["id"],
        topic=frame["topic"],
        version=frame["version"],
        type=frame["type"],
        payload=frame["payload"],
        timestamp=frame["timestamp"],
        metadata=frame.get("metadata") or {},
        key=key if isinstance(key, str) else None,
        position=frame.get("position"),
    )
