"""Marks: what a subscription tells its reader besides events.

Every mark carries `offset`, the last offset that was delivered or passed over, -1 before any. Who resumes at
`offset + 1` misses nothing but what a :class:`Gap` has named.
"""

from typing import NamedTuple


class CaughtUp(NamedTuple):
    """Everything that was stored when reading began has been delivered; what follows is live."""

    offset: int


class Lagging(NamedTuple):
    """The reader is `behind` events behind the head, or has taken nothing for long: half of what it may be."""

    offset: int
    behind: int


class Gap(NamedTuple):
    """The events `from_offset` to `to_offset`, both included, are not delivered; `reason` is one of the three below."""

    from_offset: int
    to_offset: int
    reason: str

    @property
    def offset(self) -> int:
        return self.to_offset


# Why there is a gap: the rule `drop` left them out, retention took them before they were read, or nobody can read them.
DROPPED = "lagged"
RETENTION = "retention"
DAMAGED = "damaged"


class Checkpoint(NamedTuple):
    """A place to remember, now and then: also when nothing passed the reader's filter."""

    offset: int


class Closed(NamedTuple):
    """The last word: nothing follows. `code` is one of those below."""

    code: str
    reason: str
    offset: int


# Why a subscription ends by itself; three of them are also errors of their own in kwire/errors.py.
LAGGED = "SubscriptionLagged"
BROADCAST_FAILED = "BroadcastFailed"
OFFSET_OUT_OF_RANGE = "OffsetOutOfRange"
ROOM_NOT_FOUND = "RoomNotFound"
SUBSCRIPTION_FAILED = "SubscriptionFailed"
STOPPING = "ServerStopping"

Mark = CaughtUp | Lagging | Gap | Checkpoint | Closed
