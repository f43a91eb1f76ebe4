"""The functions that compute the analyses. Each takes events (room, event_type, user, event_time) and returns rows.

The functions work on streams and on batches. On a stream, in output mode `append`, each group is emitted once, when the
watermark has passed the end of its window. Only events that the analysis includes advance the watermark.
Active users and top rooms use two aggregations in sequence. The results are exact, and the size of a row in Spark's
state does not grow with the number of users.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kwire.pipeline.analytics.analysis import Analysis, interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def counts(events: "DataFrame", analysis: Analysis) -> "DataFrame":
    """Return the number of events of each type in each room, by sliding window."""
    groups = _in_time(events, analysis).groupBy(_window(analysis), "room", "event_type")
    return groups.agg(F.count("*").alias("events")).select(*_ends("window"), "room", "event_type", "events")


def active_users(events: "DataFrame", analysis: Analysis) -> "DataFrame":
    """Return the number of distinct users with events in each room, by sliding window."""
    groups = _in_time(_with_user(events), analysis).groupBy(_window(analysis), "room", "user")
    seen = groups.agg(F.count("*").alias("events"))
    by_room = seen.groupBy("window", "room").agg(F.count("*").alias("users"), F.sum("events").alias("events"))
    return by_room.select(*_ends("window"), "room", "users", "events")


def top_rooms(events: "DataFrame", analysis: Analysis) -> "DataFrame":
    """Return the rooms with the most events, by sliding window. Rooms with equal numbers are in alphabetical order."""
    by_room = _in_time(events, analysis).groupBy(_window(analysis), "room").agg(F.count("*").alias("events"))
    # The count is negated, so that the sort is by descending count and then by ascending name.
    ranked = F.sort_array(F.collect_list(F.struct((-F.col("events")).alias("below"), F.col("room"))))
    first = F.transform(
        F.slice(ranked, 1, analysis.top),
        lambda one: F.struct(one["room"].alias("room"), (-one["below"]).alias("events")),
    )
    by_window = by_room.groupBy("window").agg(first.alias("rooms"))
    return by_window.select(*_ends("window"), "rooms")


def sessions(events: "DataFrame", analysis: Analysis) -> "DataFrame":
    """Return the sessions of each user in each room. A session ends after a pause of `analysis.gap_ms`."""
    pause = F.session_window("event_time", interval(analysis.gap_ms))
    groups = _in_time(_with_user(events), analysis).groupBy(pause, "room", "user")
    whole = groups.agg(F.count("*").alias("events"), F.max("event_time").alias("session_end"))
    return whole.select(F.col("session_window.start").alias("session_start"), "session_end", "room", "user", "events")


def _with_user(events: "DataFrame") -> "DataFrame":
    return events.where("user IS NOT NULL")


def _in_time(events: "DataFrame", analysis: Analysis) -> "DataFrame":
    return events.withWatermark("event_time", interval(analysis.lateness_ms))


def _window(analysis: Analysis) -> "Column":
    return F.window("event_time", interval(analysis.window_ms), interval(analysis.slide_ms))


def _ends(window: str) -> tuple["Column", "Column"]:
    return F.col(f"{window}.start").alias("window_start"), F.col(f"{window}.end").alias("window_end")
