"""Control messages: the messages other than events that a subscription sends to its subscriber.

Each message has `offset`, the offset before the subscription's position; -1 if the position is 0. A subscriber that
resumes at `offset + 1` misses only the events that a :class:`Gap` has reported.
"""

from typing import NamedTuple


class CaughtUp(NamedTuple):
    """All events that were stored when reading began have been delivered. The following events are live."""

    offset: int


class Lagging(NamedTuple):
    """A warning: the subscriber has reached half of its allowed lag or stall time. It lags by `behind` events."""

    offset: int
    behind: int


class Gap(NamedTuple):
    """The events from `from_offset` to `to_offset`, both included, are not delivered. `reason` is a constant below."""

    from_offset: int
    to_offset: int
    reason: str

    @property
    def offset(self) -> int:
        return self.to_offset


# Reasons of a gap: the `on_lag` rule `drop` skipped the events, retention deleted them before delivery, or they are
# damaged.
DROPPED = "lagged"
RETENTION = "retention"
DAMAGED = "damaged"


class Checkpoint(NamedTuple):
    """A position to resume from. It is sent periodically, even if the subscriber's filter has excluded all events."""

    offset: int


class Closed(NamedTuple):
    """The last message: the subscription has ended. `code` is one of the codes below."""

    code: str
    reason: str
    offset: int


# The values of `Closed.code`. BroadcastFailed, OffsetOutOfRange, RoomNotFound and SubscriptionFailed are also errors in
# kwire/errors.py.
LAGGED = "SubscriptionLagged"
BROADCAST_FAILED = "BroadcastFailed"
OFFSET_OUT_OF_RANGE = "OffsetOutOfRange"
ROOM_NOT_FOUND = "RoomNotFound"
SUBSCRIPTION_FAILED = "SubscriptionFailed"
STOPPING = "ServerStopping"

ControlMessage = CaughtUp | Lagging | Gap | Checkpoint | Closed
