"""Dead letters: records that cannot be converted to rows are written to another table or to a topic, or stop the job.

A dead letter has all fields of the record and a description of the problem. Each dead letter is written to a table
once. To a topic it may be written twice, if the driver is killed within a batch, because the producer is not
transactional. Such duplicates have the same header `kwire_origin` (topic, partition and offset of the record).
"""

import re
from typing import TYPE_CHECKING

from kwire.pipeline.columns import DEAD_LETTER_SUFFIX, METADATA_COLUMNS, TEXT, Column
from kwire.pipeline.lake.tables import BatchMark, Lake, Partitioning, Table
from kwire.pipeline.server import Server
from kwire.pipeline.source import PROBLEM, ROW, RowShape, metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TO_TABLE, TO_TOPIC, STOP = "table", "topic", "stop"
CHOICES = (TO_TABLE, TO_TOPIC, STOP)
TOPIC_SUFFIX = ".dead-letters"

COLUMNS = (Column("problem", TEXT), Column("kafka_value", "binary"), *METADATA_COLUMNS)
PROBLEM_HEADER, ORIGIN_HEADER = "kwire_problem", "kwire_origin"
_BAD_RECORD_PREFIX = "bad record "


class BadRecord(ValueError):
    """A record cannot be converted to a row, and the job is configured to stop at such a record."""


def dead_letter_table(lake: Lake, table: str) -> Table:
    return lake.table(table + DEAD_LETTER_SUFFIX)


def write_to_table(table: Table, parsed: "DataFrame", shape: RowShape, mark: BatchMark) -> None:
    """Append the records of a batch that have a problem, unless the table already holds the batch."""
    from pyspark.sql import functions as f

    table.prepare(COLUMNS, Partitioning())
    letters = parsed.where(f.col(PROBLEM).isNotNull())
    table.append(letters.select(PROBLEM, f.col("value").alias("kafka_value"), *metadata(shape)), mark)


def write_to_topic(topic: str, server: Server, parsed: "DataFrame") -> None:
    """Send the records that have a problem to a topic, with two additional headers."""
    from pyspark.sql import functions as f

    origin = f.concat_ws("/", "topic", f.col("partition").cast("string"), f.col("offset").cast("string"))
    more = f.array(
        *(
            f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in ((PROBLEM_HEADER, f.col(PROBLEM)), (ORIGIN_HEADER, origin))
        )
    )
    none = f.array().cast("array<struct<key:string,value:binary>>")
    letters = parsed.where(f.col(PROBLEM).isNotNull()).select(
        "key", "value", f.concat(f.coalesce("headers", none), more).alias("headers"), f.lit(topic).alias("topic")
    )
    writer = letters.write.format("kafka").options(**server.spark_options())
    writer.option("includeHeaders", "true").save()


def failing_at_problems(parsed: "DataFrame") -> "DataFrame":
    """Return the same rows. When Spark evaluates a row with a problem, the batch fails, and so does the job."""
    from pyspark.sql import functions as f

    location = f.concat("topic", f.lit(" partition "), "partition", f.lit(" offset "), "offset")
    message = f.concat(f.lit(_BAD_RECORD_PREFIX), location, f.lit(": "), PROBLEM)
    return parsed.withColumn(ROW, f.when(f.col(PROBLEM).isNotNull(), f.raise_error(message)).otherwise(f.col(ROW)))


def bad_record_in(error: Exception) -> BadRecord | None:
    """Return the error of `failing_at_problems` that Spark's error contains, or None if it contains no such error."""
    found = re.search(f"{_BAD_RECORD_PREFIX}[^\\n]*?(?= SQLSTATE: |$)", str(error), re.MULTILINE)
    return BadRecord(found[0]) if found else None
