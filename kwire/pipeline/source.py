"""Records of a topic as Spark reads them, and as rows of its table.

`records` is the Kafka source of a job. `parsed` makes of each record a row with the columns of a table, or says what is
wrong with it: nothing is dropped on the way, what has no row has a `problem` and keeps all that the record had.
"""

import json
from collections.abc import Mapping, Sequence
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
from kwire.pipeline.topic_facts import TopicFacts

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

EARLIEST = "earliest"
RECORDS_PER_TASK_MAX = 200_000
# A record without this header is an event of this type, as the server shows it.
DEFAULT_EVENT_TYPE = "message"
JSON_SPACE = " \t\r\n"

# Columns of `parsed`: the row (null where there is a problem), what is wrong, whether the record has no value.
ROW, PROBLEM, TOMBSTONE = "row", "problem", "is_tombstone"

NOT_TEXT = "the value is not UTF-8"
NOT_FITTING = "the value is no JSON object whose fields fit the columns of the table"
KEY_MISSING = "the record has no key, and its table is kept by key"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a job may say of how it reads; None leaves it to Spark."""

    bootstrap: str
    starting_offsets: str = EARLIEST
    # Whether records that were deleted before they were read end the query, or are passed over.
    fails_on_data_loss: bool = True
    records_per_batch_max: int | None = None
    # A partition that has more than this is read by several tasks.
    records_per_task_max: int | None = RECORDS_PER_TASK_MAX
    # Further options of Spark's Kafka source, such as kafka.security.protocol.
    more: Mapping[str, str] | None = None

    def as_spark(self, topic: str) -> dict[str, str]:
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": topic,
            "startingOffsets": self.starting_offsets,
            "includeHeaders": "true",
            "failOnDataLoss": json.dumps(self.fails_on_data_loss),
            # What a transaction has taken back was never an event.
            "kafka.isolation.level": "read_committed",
            "groupIdPrefix": "kwire-pipeline",
            # A topic that was deleted under a job must not come back because the job asks for it.
            "kafka.allow.auto.create.topics": "false",
        }
        if self.records_per_batch_max is not None:
            options["maxOffsetsPerTrigger"] = str(self.records_per_batch_max)
        if self.records_per_task_max is not None:
            options["maxRecordsPerPartition"] = str(self.records_per_task_max)
        return {**options, **(self.more or {})}


def records(spark: "SparkSession", topic: str, options: SourceOptions) -> "DataFrame":
    """The topic as a stream of records, with Spark's columns for them."""
    return spark.readStream.format("kafka").options(**options.as_spark(topic)).load()


@dataclass(frozen=True, slots=True)
class RowShape:
    """What a row of a topic is made of: the columns of its table that come from the payload, and how."""

    topic: str
    payload: tuple[Column, ...]
    # Whether the payload as text is the column `value`.
    has_text: bool
    # Whether ids of events are those of the event store.
    is_event_topic: bool
    needs_key: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.payload, *METADATA_COLUMNS)


def row_shape(facts: TopicFacts, table_columns: Sequence[Column] = (), *, needs_key: bool = False) -> RowShape:
    """For a topic, and a table that may know columns of it that the topic no longer has."""
    payload = [column for column in table_columns if column.name not in METADATA_NAMES]
    return RowShape(
        topic=facts.name,
        payload=tuple(payload) if table_columns else payload_columns(facts.schemas),
        has_text=has_open_payload(facts.schemas),
        is_event_topic=facts.is_event_topic,
        needs_key=needs_key,
    )


def parsed(frame: "DataFrame", shape: RowShape) -> "DataFrame":
    """Of records: ROW (a struct with the columns of the shape), PROBLEM (null if there is none), TOMBSTONE, and the
    record's own columns, for those who keep what has a problem."""
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
    """The metadata columns of a record."""
    from pyspark.sql import functions as f

    said_id = header_text("ce_id")
    made_id = f.concat(f.lit(f"{shape.topic}-"), f.col("offset") + 1)
    event_id = made_id if shape.is_event_topic else f.coalesce(said_id, f.concat(f.lit("evt_"), f.col("offset")))
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
    """The fields of a value as a struct, and whether the value fits it; None where there is nothing to ask."""
    from pyspark.sql import functions as f

    fields = [column for column in shape.payload if not (shape.has_text and column.name == VALUE_COLUMN.name)]
    if not fields:
        return None, None
    # Spark puts there what it cannot read; it must be no field of the payload.
    corrupt = "corrupt" + "_" * max(len(column.name) for column in fields)
    schema = ", ".join([*(column.ddl for column in fields), f"{corrupt} string"])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt}
    payload = f.from_json(text, schema, options)
    if shape.has_text:
        # Whatever it is, it is there as text.
        return payload, None
    # A record without a value, and the value null, are rows without fields.
    is_nothing = f.col("value").isNull() | (f.trim(text, f.lit(JSON_SPACE)) == "null")
    # Spark takes an array with one object in it for that object.
    is_object = f.ltrim(text, f.lit(JSON_SPACE)).startswith("{")
    parsed_payload = f.col("payload")
    return payload, is_nothing | (is_object & parsed_payload.isNotNull() & parsed_payload[corrupt].isNull())


def _field(column: Column, shape: RowShape) -> "SparkColumn":
    from pyspark.sql import functions as f

    if shape.has_text and column.name == VALUE_COLUMN.name:
        return f.col("value").cast("string").alias(column.name)
    return f.col("payload").getField(column.name).alias(column.name)


def header_text(name: str) -> "SparkColumn":
    """The last header of this name that says something, as text."""
    from pyspark.sql import functions as f

    def says_it(header: Any) -> Any:
        return (header["key"] == name) & (f.length(header["value"]) > 0)

    found = f.try_element_at(f.filter(f.col("headers"), says_it), f.lit(-1))
    return f.make_valid_utf8(found["value"].cast("string"))
