"""A table as records again: key, headers and timestamp as they were, the value from the columns of the payload."""

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
    """The table of a topic. Where `value` holds the payload as text, that is the value; otherwise it is made anew."""

    rows: "DataFrame"
    payloads: Payloads
    # The id of the topic that the table was filled from; nothing if it does not say.
    topic_id: str

    def events(self, rows: Iterable[Any]) -> Iterator[ReplayEvent]:
        """Of rows in order, each offset once."""
        last: dict[int, int] = {}
        for row in rows:
            partition, offset = row["kafka_partition"], row["kafka_offset"]
            name = f"partition {partition} offset {offset}"
            if last.get(partition) == offset:
                raise CannotReplay(f"the table has {name} twice: see kwire pipeline reconcile")
            last[partition] = offset
            yield ReplayEvent(partition, offset, self._record(row, name))

    def _record(self, row: Any, name: str) -> Record:
        headers = []
        for header in row["headers"] or ():
            if header["value"] is None:
                # kafka-python sends none, and an empty one would not be the same.
                raise CannotReplay(f"{name}: its header {header['key']} has no value, which cannot be sent")
            headers.append((header["key"], bytes(header["value"])))
        key = None if row["key"] is None else bytes(row["key"])
        return Record(key, self._value(row), row["timestamp_ms"], tuple(headers))

    def _value(self, row: Any) -> bytes | None:
        if row["fields"] is not None:
            return self.payloads.value(row["event_type"], row["fields"])
        text: str | None = row["text"]
        return None if text is None else text.encode()


def topic_table(spark: "SparkSession", warehouse: str, table_format: str, topic: str, facts: TopicFacts) -> TopicTable:
    """`facts` are those of the topic, or of one with the same schemas."""
    from pyspark.sql import functions as F

    table = open_lake(spark, warehouse, table_format).table(table_name(topic))
    if not table.exists():
        raise CannotReplay(f"there is no table {table.name} in {warehouse}")
    mark = table.last_mark()
    notes = mark.notes if mark else {}
    if (owner := notes.get(TOPIC_NOTE, topic)) != topic:
        raise CannotReplay(f"{table.name} is the table of {owner}, not of {topic}")
    columns = [column for column in table.columns() if column.name not in METADATA_NAMES]
    is_open = has_open_payload(facts.schemas)
    if is_open and VALUE_COLUMN.name not in {column.name for column in columns}:
        raise CannotReplay(f"{table.name} has no column value, but {facts.name} has payloads without named fields")
    # No field of the schemas: then it is the payload as text, of rows from before they named any.
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
        # A row of the time before there were open payloads has no text.
        F.when(text.isNull() & has_fields, _as_json(fields) if fields else nothing).alias("fields"),
    )
    # Rows that come to light later would be behind those that are sent, and never be sent.
    check_in_place(table)
    payloads = Payloads(fields, facts.schemas)
    return TopicTable(rows.withColumn("size_bytes", size), payloads, notes.get(TOPIC_ID_NOTE, ""))


def _as_json(columns: list[Column]) -> Any:
    from pyspark.sql import functions as F

    return F.to_json(F.struct(*[F.col(quoted(column.name)) for column in columns]))
