"""The results there are: what each is called, what it looks like in a table, and how it is worked out."""

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
    """`identity` names the columns that tell one result from all others; the first column is its time.

    `shape` is what the state of a running query depends on: asked for otherwise, it is another query.
    """

    name: str
    columns: tuple[Column, ...]
    identity: tuple[str, ...]
    shape: Callable[[Analysis], str]
    rows: "Callable[[DataFrame, Analysis], DataFrame]"

    def query(self, asked: Analysis) -> str:
        """The name of what works it out; it has its own checkpoint, and its results ids of their own."""
        return f"{self.name}-{self.shape(asked)}"

    @property
    def event_type(self) -> str:
        return f"activity.{self.name}"

    @property
    def time(self) -> str:
        return self.columns[0].name


def _windows(asked: Analysis) -> str:
    return f"{span_text(asked.window_ms)}-{span_text(asked.slide_ms)}"


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
    lambda asked: f"{_windows(asked)}-{asked.top}",
    activity.top_rooms,
)
SESSIONS = Result(
    "sessions",
    (*_SESSION, _ROOM, _USER, _EVENTS),
    ("session_start", "room", "user"),
    lambda asked: span_text(asked.gap_ms),
    activity.sessions,
)
RESULTS = {result.name: result for result in (COUNTS, USERS, TOP, SESSIONS)}
