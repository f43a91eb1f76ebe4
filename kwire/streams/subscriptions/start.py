"""Start: the start position that a client requests for a subscription, and its conversion to an offset of a log.

| `from_offset` | begins at |
|---|---|
| none | the head: only new events |
| 0 | the oldest event |
| N | offset N. If N is below the oldest offset, the request fails. If N is beyond the head, the subscriber waits |
| -N | the last N events, or all events if there are fewer |

With -N, transaction markers and aborted records are not counted as events. Records that compaction has removed are
counted. `replay: true` alone requests all events. `replay: false` requests only new events, even if there are other
parameters. `from_time` begins at the first event of that time or later, and at the head if there is no such event.
"""

import math
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from kwire.errors import OffsetOutOfRange, SubscriptionFailed
from kwire.streams.events.last_events import offset_of_last
from kwire.streams.log import StreamLog

OFFSET_MAX = 2**63 - 1
# The longest text that is parsed as a time.
TIME_LENGTH_MAX = 64


class StartKind(Enum):
    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    BACK = "back"
    TIME = "time"


class Start(NamedTuple):
    """A requested start position. `value` is an offset, a number of events or a time in milliseconds."""

    kind: StartKind
    value: int = 0

    @staticmethod
    def at(offset: int) -> "Start":
        return Start(StartKind.OFFSET, offset) if offset > 0 else FROM_OLDEST

    @staticmethod
    def back(count: int) -> "Start":
        return Start(StartKind.BACK, count)

    @staticmethod
    def at_time(timestamp_ms: int) -> "Start":
        return Start(StartKind.TIME, timestamp_ms)

    @staticmethod
    def parse(
        from_offset: int | None = None, replay: bool | None = None, from_time: int | str | None = None
    ) -> "Start":
        """Convert request parameters to a Start. Raises SubscriptionFailed if they are invalid.

        `from_time` is a number of milliseconds since 1970, or a time in ISO 8601.
        """
        if from_offset is not None and from_time is not None:
            raise SubscriptionFailed("from_offset and from_time exclude each other; give only one of them")
        if from_offset is not None and not -OFFSET_MAX <= from_offset <= OFFSET_MAX:
            raise SubscriptionFailed(f"from_offset must be between {-OFFSET_MAX} and {OFFSET_MAX}")
        timestamp_ms = None if from_time is None else _milliseconds(from_time)
        if replay is False:
            return FROM_NEWEST
        if timestamp_ms is not None:
            return Start.at_time(timestamp_ms)
        if from_offset is None:
            return FROM_OLDEST if replay else FROM_NEWEST
        return Start.back(-from_offset) if from_offset < 0 else Start.at(from_offset)


FROM_NEWEST = Start(StartKind.NEWEST)
FROM_OLDEST = Start(StartKind.OLDEST)


def _milliseconds(time: int | str) -> int:
    if isinstance(time, str):
        try:
            # `fromisoformat` would parse a text of digits as a date without dashes.
            return _bounded(int(time)) if time.isdecimal() else _of_text(time[: TIME_LENGTH_MAX + 1])
        except (ValueError, OverflowError):
            raise SubscriptionFailed(
                "from_time must be milliseconds since 1970 or a time such as 2026-01-31T12:00:00Z"
            ) from None
    return _bounded(time)


def _of_text(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _bounded(math.floor(moment.timestamp() * 1000))


def _bounded(timestamp_ms: int) -> int:
    if not 0 <= timestamp_ms <= OFFSET_MAX:
        raise SubscriptionFailed("from_time must be between 1970 and 2^63 milliseconds later")
    return timestamp_ms


class StartPosition(NamedTuple):
    """The offset at which reading begins.

    `is_recovered` is False if the subscriber's position is from another incarnation of the log, or after the log's end.
    """

    offset: int
    is_recovered: bool


async def resolve_start(start: Start, log: StreamLog, epoch: str | None) -> StartPosition:
    """Convert `start` to an offset of `log`. Raises OffsetOutOfRange, or KafkaError if the log cannot be read.

    `epoch` is the incarnation of the log that a returning subscriber has read before, or None. If the log has another
    incarnation now, the subscriber starts at the oldest offset.
    """
    await log.ready()
    oldest, head, end = log.bounds()
    if epoch is not None and epoch != log.incarnation:
        return StartPosition(oldest, False)
    kind, value = start
    if kind is StartKind.NEWEST:
        return StartPosition(head, True)
    if kind is StartKind.OLDEST:
        return StartPosition(oldest, True)
    if kind is StartKind.BACK:
        return StartPosition(await offset_of_last(log, value), True)
    if kind is StartKind.TIME:
        return StartPosition(await log.offset_for_time(value), True)
    if value < oldest:
        raise OffsetOutOfRange(value, oldest, head - 1)
    # The subscriber's position may be after the end if the log has lost records in a power failure. A position between
    # the head and the end is valid: the records there are not committed yet.
    return StartPosition(value, value <= end)
