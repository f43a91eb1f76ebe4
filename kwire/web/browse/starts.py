"""Where a scan begins: the parameters `from`, `next` and `partition`."""

import math
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from kwire.streams.log import StreamLog
from kwire.web.answers.errors import BadRequest

OFFSET_MAX = 2**63 - 1
# The maximum number of partitions of one scan.
PARTITIONS_MAX = 1_000
# The maximum number of characters of an ISO time.
TIME_LENGTH_MAX = 40

_FROM_PROBLEM = (
    "from must be newest, oldest, an offset such as 42 (or -10 for the last ten of each partition), a time such as "
    "2026-01-31T12:00:00Z, or milliseconds since 1970 such as 1767225600000ms"
)


class StartKind(Enum):
    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    TIME = "time"


class ScanStart(NamedTuple):
    """The start of a scan in each partition. `number` is an offset or a timestamp in milliseconds.

    A negative offset counts from the end of the partition.
    """

    kind: StartKind
    number: int = 0


class ScanBounds(NamedTuple):
    """The offsets of a partition that a scan may read: from `start` up to, not including, `end`."""

    start: int
    end: int


def parse_start(text: str) -> ScanStart:
    """Parse the parameter `from`. Raises BadRequest."""
    if text in ("newest", "oldest"):
        return ScanStart(StartKind(text))
    if text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 20:
        return ScanStart(StartKind.OFFSET, _bounded(int(text)))
    milliseconds = text.removesuffix("ms")
    if milliseconds != text and milliseconds.isascii() and milliseconds.isdigit() and len(milliseconds) <= 20:
        return ScanStart(StartKind.TIME, _bounded(int(milliseconds)))
    if not text.isdecimal() and len(text) <= TIME_LENGTH_MAX:
        try:
            # `+` stands for a space in a query string, but is also written in times.
            moment = datetime.fromisoformat(text.replace(" ", "+") if text.count(":") > 2 else text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            return ScanStart(StartKind.TIME, max(0, _bounded(math.floor(moment.timestamp() * 1000))))
        except (ValueError, OverflowError):
            pass
    raise BadRequest(_FROM_PROBLEM)


def parse_next(text: str) -> dict[int, int]:
    """Parse the parameter `next`, for example `0:42,1:7`. Returns the offsets by partition. Raises BadRequest."""
    found: dict[int, int] = {}
    for pair in text.split(",", PARTITIONS_MAX):
        partition, _, offset = pair.partition(":")
        if not _is_number(partition, 9) or not _is_number(offset, 19) or int(offset) > OFFSET_MAX:
            raise BadRequest("next must be pairs of partition and offset such as 0:42,1:7")
        found[int(partition)] = int(offset)
    if len(found) > PARTITIONS_MAX:
        raise BadRequest(f"next has more than {PARTITIONS_MAX} partitions")
    return found


def parse_partitions(texts: list[str], count: int) -> list[int]:
    """Parse the parameters `partition` of a topic with `count` partitions. Raises BadRequest."""
    chosen = [one for text in texts for one in text.split(",", PARTITIONS_MAX)]
    if not chosen:
        if count > PARTITIONS_MAX:
            raise BadRequest(
                f"the topic has {count} partitions, and at most {PARTITIONS_MAX} can be read at once: choose some with "
                "partition=0,1,2"
            )
        return list(range(count))
    for one in chosen:
        if not _is_number(one, 9) or int(one) >= count:
            raise BadRequest(f"partition must be numbers from 0 to {count - 1}, separated by commas")
    found = sorted(set(map(int, chosen)))
    if len(found) > PARTITIONS_MAX:
        raise BadRequest(f"at most {PARTITIONS_MAX} partitions can be read at once")
    return found


def bounds_of(log: StreamLog, is_committed: bool) -> ScanBounds:
    """Return the readable offsets of a log that is ready. Raises KafkaError."""
    bounds = log.bounds()
    return ScanBounds(bounds.start, bounds.committed_end if is_committed else log.high_watermark)


async def first_offset(log: StreamLog, start: ScanStart, bounds: ScanBounds) -> int:
    """Return the offset with which a forward scan of the partition begins. Raises KafkaError."""
    if start.kind is StartKind.NEWEST:
        return bounds.end
    if start.kind is StartKind.OLDEST:
        return bounds.start
    if start.kind is StartKind.TIME:
        return max(bounds.start, await log.offset_for_time(start.number))
    offset = start.number if start.number >= 0 else bounds.end + start.number
    return max(bounds.start, offset)


def _is_number(text: str, digits_max: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= digits_max


def _bounded(number: int) -> int:
    if not -OFFSET_MAX <= number <= OFFSET_MAX:
        raise BadRequest(_FROM_PROBLEM)
    return number
