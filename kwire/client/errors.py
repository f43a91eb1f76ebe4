"""What can go wrong, as exceptions: what the server refused, by its code, and what happened on the way to it."""

from collections.abc import Mapping
from typing import Any

from kwire.client.events import Gap


class ClientError(Exception):
    """All errors of this client."""


class Unreachable(ClientError):
    """No connection could be made in time. Nothing was sent."""


class ConnectionLost(ClientError):
    """The connection ended before the answer came."""


class PublishUncertain(ConnectionLost):
    """The connection ended between sending and the answer: the events may be stored or not. Nothing is sent twice."""


class AnswerTimeout(PublishUncertain):
    """The server did not answer in time; for a publish it is unknown whether the events are stored."""


class TooLongForSocket(ClientError):
    """For the client itself: this command goes as a request of its own."""


class ClientClosed(ClientError):
    """The client or the subscription was closed by its user."""


class GapFound(ClientError):
    """`next_event` has no event to return for these offsets; the next call goes on behind them."""

    def __init__(self, gap: Gap) -> None:
        super().__init__(f"room {gap.room}: events from offset {gap.from_offset} on are gone ({gap.reason})")
        self.gap = gap


class Refused(ClientError):
    """The server understood and said no. `code` is stable, `details` has what else the answer carried."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.details = details


class RoomNotFound(Refused):
    """The room does not exist, or was deleted while it was read."""


class EventNotFound(Refused):
    """No event has this offset."""


class OffsetOutOfRange(Refused):
    """The offset lies below the oldest event that is kept."""

    @property
    def requested(self) -> int:
        return int(self.details["requested"])

    @property
    def oldest(self) -> int:
        return int(self.details["oldest"])

    @property
    def newest(self) -> int:
        return int(self.details["newest"])


class SubscriptionFailed(Refused):
    """The server could not subscribe."""


class BroadcastFailed(Refused):
    """The server could not deliver."""


class InvalidEvent(Refused):
    """The event is not one the server can store."""


class EventTooLarge(Refused):
    """The event is larger than the room allows."""


class TopicNotFound(Refused):
    """The event store has no such topic, or it was deleted while it was read."""


class NotAnEventTopic(Refused):
    """The topic has no schemas, so it takes no events of the event store."""


class SchemaViolation(Refused):
    """An event is not what its topic's schema says; `details["index"]` is its place among those published."""


class WrongExpectedVersion(Refused):
    """Somebody else has added to the topic, or has not: `actual` is the version of its last event."""

    @property
    def expected(self) -> int:
        return int(self.details["expected"])

    @property
    def actual(self) -> int:
        return int(self.details["actual"])


class IdempotencyConflict(Refused):
    """The idempotency key was used before, for other events."""


_BY_CODE: Mapping[str, type[Refused]] = {
    kind.__name__: kind
    for kind in (
        RoomNotFound,
        EventNotFound,
        OffsetOutOfRange,
        SubscriptionFailed,
        BroadcastFailed,
        InvalidEvent,
        EventTooLarge,
        TopicNotFound,
        NotAnEventTopic,
        SchemaViolation,
        WrongExpectedVersion,
        IdempotencyConflict,
    )
}


def refusal_of(error: Any) -> Refused:
    """The exception for the `error` object of an answer."""
    if not isinstance(error, Mapping):
        return Refused("Unknown", str(error), {})
    code, message = str(error.get("code", "Unknown")), str(error.get("message", ""))
    details = {name: value for name, value in error.items() if name not in ("code", "message")}
    return _BY_CODE.get(code, Refused)(code, message, details)
