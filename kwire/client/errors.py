"""Exceptions of the client: error responses of the server, one class per error code, and connection failures."""

from collections.abc import Mapping
from typing import Any

from kwire.client.events import Gap


class ClientError(Exception):
    """Base class of all errors of this client."""


class Unreachable(ClientError):
    """No connection could be opened in time. Nothing was sent."""


class ConnectionLost(ClientError):
    """The connection was lost before the response arrived."""


class PublishUncertain(ConnectionLost):
    """The connection was lost after the events were sent. It is unknown whether they are stored."""


class AnswerTimeout(PublishUncertain):
    """The server did not answer in time. For a publish, it is unknown whether the events are stored."""


class TooLongForSocket(ClientError):
    """The command is too long for the WebSocket. Internal: the client catches it and sends an HTTP request instead."""


class ClientClosed(ClientError):
    """The client or the subscription was closed by its user."""


class GapFound(ClientError):
    """`next_event` reached a gap. The next call continues after the gap."""

    def __init__(self, gap: Gap) -> None:
        # The gap belongs to a room or to the event store, so its numbers are offsets, versions or positions.
        last = "on" if gap.to_offset is None else f"to {gap.to_offset}"
        super().__init__(
            f'subscription to "{gap.room}": the events from {gap.from_offset} {last} are no longer available '
            f"({gap.reason})"
        )
        self.gap = gap


class Refused(ClientError):
    """The server answered with an error.

    `code` does not change between versions of the server. `details` has the other fields of the error, without `code`
    and `message`.
    """

    def __init__(self, code: str, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.details = details


class RoomNotFound(Refused):
    """The room does not exist, or was deleted during the subscription."""


class EventNotFound(Refused):
    """No event has this offset or this id."""


class OffsetOutOfRange(Refused):
    """The offset is less than the offset of the oldest stored event."""

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
    """The server could not start or continue the subscription."""


class BroadcastFailed(Refused):
    """The server could not deliver the event to subscribers."""


class InvalidEvent(Refused):
    """The event is not valid and cannot be stored."""


class EventTooLarge(Refused):
    """The event is larger than the room allows."""


class TopicNotFound(Refused):
    """The topic does not exist in the event store, or was deleted during the subscription."""


class NotAnEventTopic(Refused):
    """The topic has no schemas, so it cannot hold events of the event store."""


class SchemaViolation(Refused):
    """An event does not match its topic's schema. `details["index"]` is the index of the event in the request."""


class WrongExpectedVersion(Refused):
    """The topic's last event has the version `actual` instead of the version `expected`."""

    @property
    def expected(self) -> int:
        return int(self.details["expected"])

    @property
    def actual(self) -> int:
        return int(self.details["actual"])


class IdempotencyConflict(Refused):
    """The idempotency key was used before for other events."""


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
    """Return the exception for the `error` object of a response."""
    if not isinstance(error, Mapping):
        return Refused("Unknown", str(error), {})
    code, message = str(error.get("code", "Unknown")), str(error.get("message", ""))
    details = {name: value for name, value in error.items() if name not in ("code", "message")}
    return _BY_CODE.get(code, Refused)(code, message, details)
