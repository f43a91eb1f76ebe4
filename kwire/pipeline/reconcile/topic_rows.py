"""What the table of a topic should hold, from the records that the topic has now."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kwire.pipeline.columns import Column
from kwire.pipeline.lake.upsert import latest_of_each_key
from kwire.pipeline.source import PROBLEM, ROW, TOMBSTONE, SourceOptions, parsed, row_shape
from kwire.pipeline.topic_facts import UPSERT, LogBounds, TopicFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

Bounds = Mapping[int, LogBounds]


def within(whole: LogBounds, first: int, last: int) -> LogBounds:
    """The part of a partition from one offset to another, both included."""
    start = min(max(first, whole.first), whole.end)
    return LogBounds(start, max(start, min(last + 1, whole.end)))


@dataclass(frozen=True)
class TopicRows:
    """`good` has the columns of the table, `bad` the place of each record without a row, and its problem.

    Whoever reads all of `good` knows how many are bad.
    """

    good: "DataFrame"
    bad: "DataFrame"
    counted: "Observation"

    @property
    def bad_count(self) -> int:
        return int(self.counted.get["bad"])


def topic_rows(
    spark: "SparkSession", facts: TopicFacts, columns: tuple[Column, ...], bounds: Bounds, source: SourceOptions
) -> TopicRows:
    """Records between these bounds as the lake job makes rows of them, for a table with these columns."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    is_upsert = facts.lake_mode == UPSERT
    shape = row_shape(facts, columns, needs_key=is_upsert)
    rows = parsed(_records(spark, facts.name, bounds, source), shape)
    is_bad, counted = F.col(PROBLEM).isNotNull(), Observation()
    good = rows.observe(counted, F.count_if(is_bad).alias("bad")).where(~is_bad)
    if is_upsert:
        good = latest_of_each_key(good.select(ROW, TOMBSTONE)).where(~F.col(TOMBSTONE))
    place = F.col("partition").alias("kafka_partition"), F.col("offset").alias("kafka_offset")
    return TopicRows(good.select(f"{ROW}.*"), rows.where(is_bad).select(*place, PROBLEM), counted)


def _records(spark: "SparkSession", topic: str, bounds: Bounds, source: SourceOptions) -> "DataFrame":
    def offsets(which: str) -> str:
        return json.dumps({topic: {str(number): getattr(one, which) for number, one in bounds.items()}})

    options = {**source.as_spark(topic), "startingOffsets": offsets("first"), "endingOffsets": offsets("end")}
    return spark.read.format("kafka").options(**options).load()
