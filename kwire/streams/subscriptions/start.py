"""Where a subscription begins: what a reader may ask for, and the offset it means in a log as it is now.

| `from_offset` | begins at |
|---|---|
| none | the head: only new events |
| 0 | the oldest event there is |
| N | that offset; below the oldest it is out of range, beyond the head the reader waits for it |
| -N | so many offsets before the head, or the oldest if there are not so many; what transactions leave does not count |

`replay` alone asks for everything there is; `replay: false` asks for new events only, whatever else was said.
`from_time` begins at the first event of that time or later, and at the head if there is none.
"""

import math
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from kwire.broker.events.counting_back import offset_of_last
from kwire.errors import OffsetOutOfRange, SubscriptionFailed
from kwire.streams.log import StreamLog

OFFSET_MAX = 2**63 - 1
# A time as text; longer ones are no times, and nobody should have to look at them.
TIME_LENGTH_MAX = 64


class StartKind(Enum):
    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    BACK = "back"
    TIME = "time"


class Start(NamedTuple):
    """What a reader asked for; `value` is an offset, a number of events or a time in milliseconds."""

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
        """Raises SubscriptionFailed when it makes no sense. A time is milliseconds since 1970 or ISO 8601."""
        if from_offset is not None and from_time is not None:
            raise SubscriptionFailed("from_offset and from_time exclude each other")
        if from_offset is not None and not -OFFSET_MAX <= from_offset <= OFFSET_MAX:
            raise SubscriptionFailed(f"from_offset has to lie between {-OFFSET_MAX} and {OFFSET_MAX}")
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
            # Digits alone would be read as a date without dashes.
            return _bounded(int(time)) if time.isdecimal() else _of_text(time[: TIME_LENGTH_MAX + 1])
        except (ValueError, OverflowError):
            raise SubscriptionFailed(
                "from_time has to be milliseconds since 1970 or a time such as 2026-01-31T12:00:00Z"
            ) from None
    return _bounded(time)


def _of_text(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _bounded(math.floor(moment.timestamp() * 1000))


def _bounded(timestamp_ms: int) -> int:
    if not 0 <= timestamp_ms <= OFFSET_MAX:
        raise SubscriptionFailed("from_time has to lie between 1970 and 2^63 milliseconds later")
    return timestamp_ms


class Place(NamedTuple):
    """Where reading begins. `is_recovered` is False when what the reader knows, or asks for, is not of this log."""

    offset: int
    is_recovered: bool


async def find_place(start: Start, log: StreamLog, epoch: str | None) -> Place:
    """Raises OffsetOutOfRange, or KafkaError when the log cannot be read.

    `epoch` is the incarnation that a returning reader has seen, if it names one: in another one it starts anew.
    """
    await log.ready()
    oldest, head, end = log.bounds()
    if epoch is not None and epoch != log.incarnation:
        return Place(oldest, False)
    kind, value = start
    if kind is StartKind.NEWEST:
        return Place(head, True)
    if kind is StartKind.OLDEST:
        return Place(oldest, True)
    if kind is StartKind.BACK:
        return Place(await offset_of_last(log, value), True)
    if kind is StartKind.TIME:
        return Place(await log.offset_for_time(value), True)
    if value < oldest:
        raise OffsetOutOfRange(value, oldest, head - 1)
    # Beyond the end: a log that was cut by a power failure may be shorter than its readers remember. Between the head
    # and the end are records that are not committed yet.
    return Place(value, value <= end)
