"""Converts the rows of a table back to records.

Key, headers and timestamp are stored in the table. The value is rebuilt from the payload columns.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kwire.pipeline.columns import (
    METADATA_NAMES,
    VALUE_COLUMN,
    Column,
    has_open_payload,
    payload_columns,
    quoted,
    table_name,
)
from kwire.pipeline.lake.parquet import check_in_place
from kwire.pipeline.lake.tables import open_lake
from kwire.pipeline.lake.topic_writer import TOPIC_ID_NOTE, TOPIC_NOTE
from kwire.pipeline.replay.event import CannotReplay, Record, ReplayEvent
from kwire.pipeline.replay.payload import Payloads
from kwire.pipeline.topic_facts import TopicFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class TopicTable:
    """The table of a topic.

    If the table stores the payload of an event as text, in the column `value`, this text is the value of the record.
    Otherwise the value is built from the payload columns.
    """

    rows: "DataFrame"
    payloads: Payloads
    # The id of the topic from which the table was filled, or "" if it is unknown.
    topic_id: str

    def events(self, rows: Iterable[Any]) -> Iterator[ReplayEvent]:
        """Yield the events of sorted rows. Raises CannotReplay if an offset occurs twice."""
        last: dict[int, int] = {}
        for row in rows:
            partition, offset = row["kafka_partition"], row["kafka_offset"]
            name = f"partition {partition} offset {offset}"
            if last.get(partition) == offset:
                raise CannotReplay(f"the table has {name} twice: check it with kwire pipeline reconcile")
            last[partition] = offset
            yield ReplayEvent(partition, offset, self._record(row, name))

    def _record(self, row: Any, name: str) -> Record:
        headers = []
        for header in row["headers"] or ():
            if header["value"] is None:
                # kafka-python cannot send null header values, and an empty value is not the same as null.
                raise CannotReplay(f"{name}: the header {header['key']} has a null value, which cannot be sent")
            headers.append((header["key"], bytes(header["value"])))
        key = None if row["key"] is None else bytes(row["key"])
        return Record(key, self._value(row), row["timestamp_ms"], tuple(headers))

    def _value(self, row: Any) -> bytes | None:
        if row["fields"] is not None:
            return self.payloads.value(row["event_type"], row["fields"])
        text: str | None = row["text"]
        return None if text is None else text.encode()


def topic_table(spark: "SparkSession", warehouse: str, table_format: str, topic: str, facts: TopicFacts) -> TopicTable:
    """Open the table of a topic. `facts` describe the topic, or another topic with the same schemas."""
    from pyspark.sql import functions as F

    table = open_lake(spark, warehouse, table_format).table(table_name(topic))
    if not table.exists():
        raise CannotReplay(f"table {table.name} does not exist in {warehouse}")
    mark = table.last_mark()
    notes = mark.notes if mark else {}
    if (owner := notes.get(TOPIC_NOTE, topic)) != topic:
        raise CannotReplay(f"{table.name} is the table of {owner}, not of topic {topic}")
    columns = [column for column in table.columns() if column.name not in METADATA_NAMES]
    is_open = has_open_payload(facts.schemas)
    if is_open and VALUE_COLUMN.name not in {column.name for column in columns}:
        raise CannotReplay(
            f"{table.name} has no column value, but topic {facts.name} has payloads without named fields"
        )
    # If no schema has a field `value`, then a column `value` holds payloads as text. They belong to rows that were
    # written before the schemas had fields.
    has_text = is_open or VALUE_COLUMN.name not in {column.name for column in payload_columns(facts.schemas)}
    nothing = F.lit(None).cast("string")
    fields = [column for column in columns if not (has_text and column.name == VALUE_COLUMN.name)]
    text = F.col(VALUE_COLUMN.name) if len(fields) < len(columns) else nothing
    has_fields = F.lit(not is_open)
    for column in fields:
        has_fields = has_fields | F.col(quoted(column.name)).isNotNull()
    size = F.lit(0)
    for content in (F.col("key"), F.to_json("headers"), F.col("text"), F.col("fields")):
        size = size + F.coalesce(F.octet_length(content), F.lit(0))
    rows = table.read().select(
        "kafka_partition",
        "kafka_offset",
        "kafka_timestamp",
        "event_type",
        F.col("kafka_key").alias("key"),
        F.col("kafka_headers").alias("headers"),
        F.unix_millis("kafka_timestamp").alias("timestamp_ms"),
        text.alias("text"),
        # Rows that were written before the table had the column `value` have no text.
        F.when(text.isNull() & has_fields, _as_json(fields) if fields else nothing).alias("fields"),
    )
    # The replay does not see the rows of files that are not yet in their final directories. It would send later
    # offsets and then continue after them, so these rows would never be sent.
    check_in_place(table)
    payloads = Payloads(fields, facts.schemas)
    return TopicTable(rows.withColumn("size_bytes", size), payloads, notes.get(TOPIC_ID_NOTE, ""))


def _as_json(columns: list[Column]) -> Any:
    from pyspark.sql import functions as F

    return F.to_json(F.struct(*[F.col(quoted(column.name)) for column in columns]))
