"""What becomes of a record that has no row: it goes to a table, to a topic, or it stops the job.

A dead letter keeps all that the record had, and says what is wrong with it. In a table each one stands once, as rows
do. A topic may get one again when the driver dies in the middle of a batch, for a plain producer cannot take anything
back; its header `kwire_origin` (topic, partition, offset) tells who is who.
"""

import re
from typing import TYPE_CHECKING

from kwire.pipeline.columns import DEAD_LETTER_SUFFIX, METADATA_COLUMNS, TEXT, Column
from kwire.pipeline.lake.tables import BatchMark, Lake, Partitioning, Table
from kwire.pipeline.source import PROBLEM, ROW, RowShape, metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TO_TABLE, TO_TOPIC, STOP = "table", "topic", "stop"
CHOICES = (TO_TABLE, TO_TOPIC, STOP)
TOPIC_SUFFIX = ".dead-letters"

COLUMNS = (Column("problem", TEXT), Column("kafka_value", "binary"), *METADATA_COLUMNS)
PROBLEM_HEADER, ORIGIN_HEADER = "kwire_problem", "kwire_origin"
_TOLD = "bad record "


class BadRecord(ValueError):
    """A record that has no row, where that stops the job."""


def dead_letter_table(lake: Lake, table: str) -> Table:
    return lake.table(table + DEAD_LETTER_SUFFIX)


def write_to_table(table: Table, parsed: "DataFrame", shape: RowShape, mark: BatchMark) -> None:
    """The records of a batch that have a problem, once."""
    from pyspark.sql import functions as f

    table.prepare(COLUMNS, Partitioning())
    letters = parsed.where(f.col(PROBLEM).isNotNull())
    table.append(letters.select(PROBLEM, f.col("value").alias("kafka_value"), *metadata(shape)), mark)


def write_to_topic(topic: str, bootstrap: str, parsed: "DataFrame") -> None:
    """The same as records of a topic, with two headers more."""
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
    writer = letters.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.option("includeHeaders", "true").save()


def stopping_at_problems(parsed: "DataFrame") -> "DataFrame":
    """The same rows; reading the first one with a problem fails the batch, and so the job."""
    from pyspark.sql import functions as f

    place = f.concat("topic", f.lit(" partition "), "partition", f.lit(" offset "), "offset")
    told = f.concat(f.lit(_TOLD), place, f.lit(": "), PROBLEM)
    return parsed.withColumn(ROW, f.when(f.col(PROBLEM).isNotNull(), f.raise_error(told)).otherwise(f.col(ROW)))


def bad_record_in(error: Exception) -> BadRecord | None:
    """What `stopping_at_problems` has said, out of the words that Spark puts around it; None for any other error."""
    found = re.search(f"{_TOLD}[^\\n]*?(?= SQLSTATE: |$)", str(error), re.MULTILINE)
    return BadRecord(found[0]) if found else None
