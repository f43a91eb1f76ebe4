"""Analytics of rooms, written down plainly: lists and loops where the pipeline has Spark.

`of_batch` counts events that are all there at once. `StreamTwin` takes them as a stream does, micro-batch by
micro-batch, with Spark's rules of what is late: in each batch, what belongs only to windows that were closed *before*
it is dropped; then the windows that the watermark has passed are told. The watermark of a batch comes from the batches
before it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.pipeline.analytics.analysis import Analysis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Happened(NamedTuple):
    """An event, as analytics see it."""

    room: str
    event_type: str
    user: str | None
    time_ms: int


Rows = set[tuple[Any, ...]]


class Placed(NamedTuple):
    """An event in one of its windows; a session's window is the gap behind the event, until it grows."""

    start_ms: int
    end_ms: int
    event: Happened


def windows_of(event: Happened, asked: Analysis) -> list[Placed]:
    newest = event.time_ms // asked.slide_ms * asked.slide_ms
    starts = range(newest, event.time_ms - asked.window_ms, -asked.slide_ms)
    return [Placed(start, start + asked.window_ms, event) for start in starts]


def gap_behind(event: Happened, asked: Analysis) -> list[Placed]:
    return [Placed(event.time_ms, event.time_ms + asked.gap_ms, event)]


def counts(placed: Sequence[Placed], asked: Analysis) -> Rows:
    found = Counter((one.start_ms, one.end_ms, one.event.room, one.event.event_type) for one in placed)
    return {(*group, count) for group, count in found.items()}


def users(placed: Sequence[Placed], asked: Analysis) -> Rows:
    found = _grouped(placed, lambda one: (one.start_ms, one.end_ms, one.event.room))
    return {(*group, len({one.event.user for one in members}), len(members)) for group, members in found.items()}


def top(placed: Sequence[Placed], asked: Analysis) -> Rows:
    rows: Rows = set()
    for window, members in _grouped(placed, lambda one: (one.start_ms, one.end_ms)).items():
        ranking = sorted(Counter(one.event.room for one in members).items(), key=lambda pair: (-pair[1], pair[0]))
        rows.add((*window, tuple(ranking[: asked.top])))
    return rows


def sessions(placed: Sequence[Placed], asked: Analysis) -> Rows:
    return {
        (session[0].start_ms, session[-1].start_ms, *who, len(session)) for who, session in _sessions(placed, asked)
    }


class Twin(NamedTuple):
    """One analysis: which events it looks at, where each of them is counted, and the rows that come out."""

    needs_user: bool
    places: Callable[[Happened, Analysis], list[Placed]]
    rows: Callable[[Sequence[Placed], Analysis], Rows]


TWINS = {
    "counts": Twin(False, windows_of, counts),
    "users": Twin(True, windows_of, users),
    "top": Twin(False, windows_of, top),
    "sessions": Twin(True, gap_behind, sessions),
}


def of_batch(name: str, events: Iterable[Happened], asked: Analysis) -> Rows:
    twin = TWINS[name]
    return twin.rows(_placed(twin, events, asked), asked)


class StreamTwin:
    """Takes micro-batches, an empty one where Spark ran one without events, and gathers what was told."""

    def __init__(self, name: str, asked: Analysis) -> None:
        self._twin = TWINS[name]
        self._asked = asked
        self._open: list[Placed] = []
        self._late_before_ms = 0
        self.watermark_ms = 0
        self.told: list[tuple[Any, ...]] = []
        self.dropped: list[Placed] = []

    def batch(self, events: Sequence[Happened]) -> None:
        placed = _placed(self._twin, events, self._asked)
        self.dropped += [one for one in placed if one.end_ms <= self._late_before_ms]
        self._open += [one for one in placed if one.end_ms > self._late_before_ms]
        closed = self._closed()
        self._open = [one for one in self._open if one not in closed]
        self.told += sorted(self._twin.rows(closed, self._asked))
        self._late_before_ms = self.watermark_ms
        times = [one.event.time_ms for one in placed]
        if times:
            self.watermark_ms = max(self.watermark_ms, max(times) - self._asked.lateness_ms)

    def _closed(self) -> list[Placed]:
        if self._twin.places is windows_of:
            return [one for one in self._open if one.end_ms <= self.watermark_ms]
        # A session is closed as a whole, when the gap behind its last event is.
        whole = [session for _, session in _sessions(self._open, self._asked)]
        return [one for session in whole for one in session if session[-1].end_ms <= self.watermark_ms]


def _placed(twin: Twin, events: Iterable[Happened], asked: Analysis) -> list[Placed]:
    seen = [event for event in events if event.user is not None or not twin.needs_user]
    return [place for event in seen for place in twin.places(event, asked)]


def _sessions(placed: Sequence[Placed], asked: Analysis) -> list[tuple[tuple[Hashable, ...], list[Placed]]]:
    """(room, user) and what they did without a longer pause than the gap, in order."""
    found = []
    for who, members in _grouped(placed, lambda one: (one.event.room, one.event.user)).items():
        session: list[Placed] = []
        for one in sorted(members, key=lambda member: member.start_ms):
            if session and one.start_ms > session[-1].end_ms:
                found.append((who, session))
                session = []
            session.append(one)
        found.append((who, session))
    return found


def _grouped(
    placed: Sequence[Placed], key: Callable[[Placed], tuple[Hashable, ...]]
) -> dict[tuple[Hashable, ...], list[Placed]]:
    groups: dict[tuple[Hashable, ...], list[Placed]] = defaultdict(list)
    for one in placed:
        groups[key(one)].append(one)
    return groups


# --- what the pipeline has told, as the twin tells it


def rows_of_frame(frame: "DataFrame") -> list[tuple[Any, ...]]:
    cells = [f"unix_millis({name})" if kind == "timestamp" else name for name, kind in frame.dtypes]
    return [tuple(_plain(cell) for cell in row) for row in frame.selectExpr(*cells).collect()]


def row_of_event(data: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(_plain(_millis(cell) if name.endswith(("_start", "_end")) else cell) for name, cell in data.items())


def _millis(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _plain(cell: Any) -> Any:
    """The ranking is a list of (room, events), as rows or as objects."""
    if not isinstance(cell, list):
        return cell
    return tuple(tuple(one.values() if isinstance(one, dict) else one) for one in cell)
