"""What the event store's calls hand out and take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from kwire.client.events import CaughtUp, Gap, Lagging


@dataclass(frozen=True, slots=True)
class EventToStore:
    """An event to publish. `expected_version` is that of the event which has to stand before it, -1 for none."""

    topic: str
    type: str
    payload: Any
    metadata: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    event_id: str | None = None
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event of the event store: `version` is its place in its topic, `position` among all events (subscribers of
    everything are told it)."""

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
        """When the server stored it, with its time zone (UTC)."""
        return datetime.fromisoformat(self.timestamp)


@dataclass(frozen=True, slots=True)
class EventPage:
    """`next` is where the page behind this one begins (`since`, or `before` when reading backwards); None: nowhere."""

    events: Sequence[StoredEvent]
    next: str | None


# The marks are those of rooms: `room` is the topic, or "all", and offsets are versions or positions.
StoredItem: TypeAlias = StoredEvent | CaughtUp | Lagging | Gap


def stored_body(event: EventToStore) -> dict[str, Any]:
    """An event as it is sent."""
    body: dict[str, Any] = {"topic": event.topic, "type": event.type, "payload": event.payload}
    if event.metadata:
        body["metadata"] = dict(event.metadata)
    for name, value in (("key", event.key), ("eventId", event.event_id), ("expectedVersion", event.expected_version)):
        if value is not None:
            body[name] = value
    return body


def stored_event(shown: Mapping[str, Any]) -> StoredEvent:
    key = shown.get("key")
    return StoredEvent(
        id=shown["id"],
        topic=shown["topic"],
        version=shown["version"],
        type=shown["type"],
        payload=shown["payload"],
        timestamp=shown["timestamp"],
        metadata=shown.get("metadata") or {},
        key=key if isinstance(key, str) else None,
        position=shown.get("position"),
    )
