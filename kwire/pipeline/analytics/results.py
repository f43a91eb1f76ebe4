"""The kinds of results of analytics, each with its name, table columns and computation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kwire.pipeline.analytics import activity
from kwire.pipeline.analytics.analysis import Analysis, span_text
from kwire.pipeline.columns import TEXT, Array, Column, Struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Result:
    """A kind of result.

    `identity` has the names of the columns that identify a result. The first of `columns` is the time of the result.
    `shape` returns, as text, the parameters on which the state of a query depends. If they change, a new query is
    needed.
    """

    name: str
    columns: tuple[Column, ...]
    identity: tuple[str, ...]
    shape: Callable[[Analysis], str]
    rows: "Callable[[DataFrame, Analysis], DataFrame]"

    def query(self, analysis: Analysis) -> str:
        """Return the name of the query that computes the result. Each name has its own checkpoint and event ids."""
        return f"{self.name}-{self.shape(analysis)}"

    @property
    def event_type(self) -> str:
        return f"activity.{self.name}"

    @property
    def time(self) -> str:
        return self.columns[0].name


def _windows(analysis: Analysis) -> str:
    return f"{span_text(analysis.window_ms)}-{span_text(analysis.slide_ms)}"


_WINDOW = (Column("window_start", "timestamp"), Column("window_end", "timestamp"))
_SESSION = (Column("session_start", "timestamp"), Column("session_end", "timestamp"))
_ROOM, _TYPE, _USER = Column("room", TEXT), Column("event_type", TEXT), Column("user", TEXT)
_EVENTS, _USERS = Column("events", "bigint"), Column("users", "bigint")
_ROOMS = Column("rooms", Array(Struct((_ROOM, _EVENTS))))

COUNTS = Result(
    "counts",
    (*_WINDOW, _ROOM, _TYPE, _EVENTS),
    ("window_start", "window_end", "room", "event_type"),
    _windows,
    activity.counts,
)
USERS = Result(
    "users",
    (*_WINDOW, _ROOM, _USERS, _EVENTS),
    ("window_start", "window_end", "room"),
    _windows,
    activity.active_users,
)
TOP = Result(
    "top",
    (*_WINDOW, _ROOMS),
    ("window_start", "window_end"),
    lambda analysis: f"{_windows(analysis)}-{analysis.top}",
    activity.top_rooms,
)
SESSIONS = Result(
    "sessions",
    (*_SESSION, _ROOM, _USER, _EVENTS),
    ("session_start", "room", "user"),
    lambda analysis: span_text(analysis.gap_ms),
    activity.sessions,
)
RESULTS = {result.name: result for result in (COUNTS, USERS, TOP, SESSIONS)}
