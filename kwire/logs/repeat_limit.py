"""Bounds the rate of repeated log lines. It reads no clock: the caller passes the time.

Lines of one kind have the same logger, level and message text before its values are inserted. In an interval, the first
LINES_MAX lines of a kind are written. The others are counted, and one line at the end of the interval reports their
number.
"""

import logging
from typing import NamedTuple

INTERVAL_SECONDS = 10.0
LINES_MAX = 100
# The maximum number of kinds in an interval. Further kinds of a logger and level are counted together.
KINDS_MAX = 1_000


class LineKind(NamedTuple):
    """A kind of log lines. `message` is the text without its values."""

    logger: str
    level: int
    message: str


class LeftOut(NamedTuple):
    """The number of lines of a kind that were not written in an interval."""

    kind: LineKind
    line_count: int


class _Interval:
    __slots__ = ("began", "count")

    def __init__(self, began: float) -> None:
        self.began = began
        self.count = 0


class RepeatLimit:
    """Decides which lines are written, and counts the others."""

    def __init__(self) -> None:
        # In the order in which the intervals began.
        self._intervals: dict[LineKind, _Interval] = {}

    def admit(self, record: logging.LogRecord, now: float) -> bool:
        """Return whether the line is to be written now. If not, it is counted."""
        kind = LineKind(record.name, record.levelno, str(record.msg))
        interval = self._intervals.get(kind)
        if interval is None and len(self._intervals) >= KINDS_MAX:
            kind = kind._replace(message="")
            interval = self._intervals.get(kind)
        if interval is None:
            interval = self._intervals[kind] = _Interval(now)
        interval.count += 1
        return interval.count <= LINES_MAX

    def take_due(self, now: float) -> list[LeftOut]:
        """Return the counts of the intervals that have ended."""
        ended: list[LineKind] = []
        for kind, interval in self._intervals.items():
            if now - interval.began < INTERVAL_SECONDS:
                break
            ended.append(kind)
        return self._taken(ended)

    def take_all(self) -> list[LeftOut]:
        """Return the counts of all intervals, and end them."""
        return self._taken(list(self._intervals))

    def _taken(self, kinds: list[LineKind]) -> list[LeftOut]:
        counts = [(kind, self._intervals.pop(kind).count) for kind in kinds]
        return [LeftOut(kind, count - LINES_MAX) for kind, count in counts if count > LINES_MAX]
