"""Converts records of rooms and topics to the events that are analysed, with room, type, user and time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kwire.pipeline.source import DEFAULT_EVENT_TYPE, header_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class EventFields:
    """The payload fields with the user and, optionally, the time. A nested field is a path, such as `who.id`."""

    user: str
    time: str | None = None

    def __post_init__(self) -> None:
        for field in (self.user, self.time):
            if field is not None:
                json_path(field)


def events_of(records: "DataFrame", fields: EventFields) -> "DataFrame":
    """Convert Kafka's columns (topic, value, timestamp, headers) to (room, event_type, user, event_time).

    If the payload has no user field, the user is null. The event time is the time in the payload, if it is valid and
    not later than the record's timestamp. Otherwise it is the record's timestamp. Times in the future are replaced by
    the current time, so that an event from a machine with a wrong clock does not make all other events late. (The
    current time is the time at which the micro-batch was planned. It does not change if the micro-batch is repeated.)
    """
    payload = F.col("value").cast("string")
    time: Column = F.least(F.col("timestamp"), F.current_timestamp())
    if fields.time is not None:
        # If the payload has no valid time, `try_to_timestamp` returns null, which `least` ignores.
        time = F.least(F.try_to_timestamp(F.get_json_object(payload, json_path(fields.time))), time)
    return records.select(
        F.col("topic").alias("room"),
        F.coalesce(header_text("ce_type"), F.lit(DEFAULT_EVENT_TYPE)).alias("event_type"),
        F.get_json_object(payload, json_path(fields.user)).alias("user"),
        time.alias("event_time"),
    )


def json_path(field: str) -> str:
    """Convert a field name such as `who.id` to Spark's `$['who']['id']`. Raises ValueError if the name is invalid."""
    names = field.split(".")
    if not all(names) or any(character in field for character in "'[]*"):
        raise ValueError(f"expected a field name, or several with dots between them, got {field!r}")
    return "$" + "".join(f"['{name}']" for name in names)
