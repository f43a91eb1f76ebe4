"""The analyses: each takes events (room, event_type, user, event_time) and returns its rows.

The same functions work on a stream and on a batch. On a stream each group leaves once, when the watermark has passed
its window's end, in output mode `append`; the watermark follows the newest event that the analysis counts. What is
counted twice, first by user or room and then over them, is two aggregations in a row: exact, and no row of state grows
with the number of users.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kwire.pipeline.analytics.analysis import Analysis, interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def counts(events: "DataFrame", asked: Analysis) -> "DataFrame":
    """How many events of each type came in each room, by sliding window."""
    groups = _in_time(events, asked).groupBy(_window(asked), "room", "event_type")
    return groups.agg(F.count("*").alias("events")).select(*_ends("window"), "room", "event_type", "events")


def active_users(events: "DataFrame", asked: Analysis) -> "DataFrame":
    """How many different users did something in each room, by sliding window."""
    groups = _in_time(_with_user(events), asked).groupBy(_window(asked), "room", "user")
    seen = groups.agg(F.count("*").alias("events"))
    by_room = seen.groupBy("window", "room").agg(F.count("*").alias("users"), F.sum("events").alias("events"))
    return by_room.select(*_ends("window"), "room", "users", "events")


def top_rooms(events: "DataFrame", asked: Analysis) -> "DataFrame":
    """The rooms with most events, by sliding window; of equal ones those first in the alphabet."""
    by_room = _in_time(events, asked).groupBy(_window(asked), "room").agg(F.count("*").alias("events"))
    # Sorted by the count from the largest, then by the name from the smallest: ascending in both.
    ranked = F.sort_array(F.collect_list(F.struct((-F.col("events")).alias("below"), F.col("room"))))
    first = F.transform(
        F.slice(ranked, 1, asked.top), lambda one: F.struct(one["room"].alias("room"), (-one["below"]).alias("events"))
    )
    by_window = by_room.groupBy("window").agg(first.alias("rooms"))
    return by_window.select(*_ends("window"), "rooms")


def sessions(events: "DataFrame", asked: Analysis) -> "DataFrame":
    """What each user did in each room without a longer pause: from the first event to the last."""
    pause = F.session_window("event_time", interval(asked.gap_ms))
    groups = _in_time(_with_user(events), asked).groupBy(pause, "room", "user")
    whole = groups.agg(F.count("*").alias("events"), F.max("event_time").alias("session_end"))
    return whole.select(F.col("session_window.start").alias("session_start"), "session_end", "room", "user", "events")


def _with_user(events: "DataFrame") -> "DataFrame":
    return events.where("user IS NOT NULL")


def _in_time(events: "DataFrame", asked: Analysis) -> "DataFrame":
    return events.withWatermark("event_time", interval(asked.lateness_ms))


def _window(asked: Analysis) -> "Column":
    return F.window("event_time", interval(asked.window_ms), interval(asked.slide_ms))


def _ends(window: str) -> tuple["Column", "Column"]:
    return F.col(f"{window}.start").alias("window_start"), F.col(f"{window}.end").alias("window_end")
