"""Records of rooms and topics as events to be counted: where, what, who, when."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from kwire.pipeline.source import DEFAULT_EVENT_TYPE, header_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class EventFields:
    """Where the payload says who did it and, if it does, when: names of fields, with dots between those of objects."""

    user: str
    time: str | None = None

    def __post_init__(self) -> None:
        for field in (self.user, self.time):
            if field is not None:
                json_path(field)


def events_of(records: "DataFrame", fields: EventFields) -> "DataFrame":
    """(room, event_type, user, event_time) of Kafka's columns (topic, value, timestamp, headers).

    An event whose payload does not say who did it has no user. Its time is the payload's if that can be read and is not
    later than the record's, which counts otherwise. What is said to happen in the future happens now: one wrong clock
    must not make the events of all others late. (Now is when the micro-batch was planned, also when it is repeated.)
    """
    payload = F.col("value").cast("string")
    time: Column = F.least(F.col("timestamp"), F.current_timestamp())
    if fields.time is not None:
        # `least` leaves out what is null.
        time = F.least(F.try_to_timestamp(F.get_json_object(payload, json_path(fields.time))), time)
    return records.select(
        F.col("topic").alias("room"),
        F.coalesce(header_text("ce_type"), F.lit(DEFAULT_EVENT_TYPE)).alias("event_type"),
        F.get_json_object(payload, json_path(fields.user)).alias("user"),
        time.alias("event_time"),
    )


def json_path(field: str) -> str:
    """`who.id` as Spark's `$['who']['id']`; ValueError for a name that cannot be written so."""
    names = field.split(".")
    if not all(names) or any(character in field for character in "'[]*"):
        raise ValueError(f"{field!r} is no name of a field, nor several with dots between them")
    return "$" + "".join(f"['{name}']" for name in names)
