"""Reads the records of a topic with Spark, and parses them into rows of the topic's table.

`records` returns the Kafka source of a job. `parsed` converts each record to a row with the columns of a table. No
record is dropped. If a record cannot be converted, it has a `problem` instead of a row, and its Kafka columns are kept.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kwire.pipeline.columns import (
    METADATA_COLUMNS,
    METADATA_NAMES,
    VALUE_COLUMN,
    Column,
    ddl,
    has_open_payload,
    payload_columns,
)
from kwire.pipeline.server import Server
from kwire.pipeline.topic_facts import TopicFacts

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

EARLIEST = "earliest"
RECORDS_PER_TASK_MAX = 200_000
# The event type of a record without a type header. The server uses the same type.
DEFAULT_EVENT_TYPE = "message"
JSON_SPACE = " \t\r\n"

# Columns that `parsed` adds: the row (null if there is a problem), the problem, and whether the record has no value.
ROW, PROBLEM, TOMBSTONE = "row", "problem", "is_tombstone"

NOT_TEXT = "the value is not UTF-8"
NOT_FITTING = "the value is not a JSON object whose fields fit the columns of the table"
KEY_MISSING = "the record has no key, but its table has one row per key"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of the Kafka source. If an option is None, Spark's default is used."""

    server: Server
    starting_offsets: str = EARLIEST
    # If records were deleted before they were read: True fails the query, False skips them.
    fails_on_data_loss: bool = True
    records_per_batch_max: int | None = None
    # A task reads at most this many records of a partition. Further records are read by other tasks.
    records_per_task_max: int | None = RECORDS_PER_TASK_MAX

    def as_spark(self, topic: str) -> dict[str, str]:
        options = {
            **self.server.spark_options(),
            "subscribe": topic,
            "startingOffsets": self.starting_offsets,
            "includeHeaders": "true",
            "failOnDataLoss": json.dumps(self.fails_on_data_loss),
            # Records of aborted transactions must not be read.
            "kafka.isolation.level": "read_committed",
            "groupIdPrefix": "kwire-pipeline",
            # If a topic is deleted while a job runs, the job's requests must not create it again.
            "kafka.allow.auto.create.topics": "false",
        }
        if self.records_per_batch_max is not None:
            options["maxOffsetsPerTrigger"] = str(self.records_per_batch_max)
        if self.records_per_task_max is not None:
            options["maxRecordsPerPartition"] = str(self.records_per_task_max)
        return options


def records(spark: "SparkSession", topic: str, options: SourceOptions) -> "DataFrame":
    """Return the topic as a streaming DataFrame with Spark's Kafka columns."""
    return spark.readStream.format("kafka").options(**options.as_spark(topic)).load()


@dataclass(frozen=True, slots=True)
class RowShape:
    """Describes how the records of a topic are converted to rows."""

    topic: str
    payload: tuple[Column, ...]
    # Whether the column `value` holds the payload as text.
    has_text: bool
    # Whether event ids have the form that the event store assigns: topic and sequence number.
    is_event_topic: bool
    needs_key: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.payload, *METADATA_COLUMNS)


def row_shape(facts: TopicFacts, table_columns: Sequence[Column] = (), *, needs_key: bool = False) -> RowShape:
    """Return the row shape for a topic. `table_columns` may include columns that the schemas no longer have."""
    payload = [column for column in table_columns if column.name not in METADATA_NAMES]
    return RowShape(
        topic=facts.name,
        payload=tuple(payload) if table_columns else payload_columns(facts.schemas),
        has_text=has_open_payload(facts.schemas),
        is_event_topic=facts.is_event_topic,
        needs_key=needs_key,
    )


def parsed(frame: "DataFrame", shape: RowShape) -> "DataFrame":
    """Convert records to rows.

    The result has the columns ROW (a struct with the columns of the shape), PROBLEM (null if there is none) and
    TOMBSTONE. It also has the Kafka columns of the record, which dead letters need.
    """
    from pyspark.sql import functions as f

    text = f.col("value").cast("string")
    payload, fits = _payload(text, shape)
    problem = f.when(f.col("value").isNotNull() & ~f.is_valid_utf8(text), NOT_TEXT)
    if fits is not None:
        problem = problem.when(~fits, NOT_FITTING)
    if shape.needs_key:
        problem = problem.when(f.col("key").isNull(), KEY_MISSING)
    found = frame.withColumn("payload", payload) if payload is not None else frame
    found = found.withColumn(PROBLEM, problem)
    fields = [_field(column, shape) for column in shape.payload]
    row = f.struct(*fields, *metadata(shape))
    return found.select(
        f.when(f.col(PROBLEM).isNull(), row).alias(ROW),
        PROBLEM,
        f.col("value").isNull().alias(TOMBSTONE),
        *frame.columns,
    )


def metadata(shape: RowShape) -> "list[SparkColumn]":
    """Return the metadata columns of a record."""
    from pyspark.sql import functions as f

    header_id = header_text("ce_id")
    store_id = f.concat(f.lit(f"{shape.topic}-"), f.col("offset") + 1)
    event_id = store_id if shape.is_event_topic else f.coalesce(header_id, f.concat(f.lit("evt_"), f.col("offset")))
    values = {
        "event_id": event_id,
        "event_type": f.coalesce(header_text("ce_type"), f.lit(DEFAULT_EVENT_TYPE)),
        "kafka_partition": f.col("partition"),
        "kafka_offset": f.col("offset"),
        "kafka_timestamp": f.col("timestamp"),
        "kafka_key": f.col("key"),
        "kafka_headers": f.col("headers"),
    }
    return [values[column.name].cast(ddl(column.type)).alias(column.name) for column in METADATA_COLUMNS]


def _payload(text: "SparkColumn", shape: RowShape) -> "tuple[SparkColumn | None, SparkColumn | None]":
    """Return two Spark columns: the fields of a value as a struct, and whether the value matches the columns.

    The first is None if the shape has no fields. The second is None if every value is accepted.
    """
    from pyspark.sql import functions as f

    fields = [column for column in shape.payload if not (shape.has_text and column.name == VALUE_COLUMN.name)]
    if not fields:
        return None, None
    # Spark writes values that it cannot parse to this column. Its name must differ from all payload fields.
    corrupt = "corrupt" + "_" * max(len(column.name) for column in fields)
    schema = ", ".join([*(column.ddl for column in fields), f"{corrupt} string"])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt}
    payload = f.from_json(text, schema, options)
    if shape.has_text:
        # Every value is accepted, because the payload is also stored as text.
        return payload, None
    # A record without a value, or with the JSON value null, becomes a row whose payload columns are null.
    is_nothing = f.col("value").isNull() | (f.trim(text, f.lit(JSON_SPACE)) == "null")
    # Spark parses an array of one object as if it were the object, so the first character is checked separately.
    is_object = f.ltrim(text, f.lit(JSON_SPACE)).startswith("{")
    parsed_payload = f.col("payload")
    return payload, is_nothing | (is_object & parsed_payload.isNotNull() & parsed_payload[corrupt].isNull())


def _field(column: Column, shape: RowShape) -> "SparkColumn":
    from pyspark.sql import functions as f

    if shape.has_text and column.name == VALUE_COLUMN.name:
        return f.col("value").cast("string").alias(column.name)
    return f.col("payload").getField(column.name).alias(column.name)


def header_text(name: str) -> "SparkColumn":
    """Return the value of the last non-empty header with this name, as text."""
    from pyspark.sql import functions as f

    def is_match(header: Any) -> Any:
        return (header["key"] == name) & (f.length(header["value"]) > 0)

    found = f.try_element_at(f.filter(f.col("headers"), is_match), f.lit(-1))
    return f.make_valid_utf8(found["value"].cast("string"))
