"""Computes the rows that a topic's table should hold, from the current records of the topic."""

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
    """Return the part of a partition's offset range from `first` to `last`, both included."""
    start = min(max(first, whole.first), whole.end)
    return LogBounds(start, max(start, min(last + 1, whole.end)))


@dataclass(frozen=True)
class TopicRows:
    """The expected rows of a table, and the bad records, which have no row.

    `good` has the columns of the table. `bad` has partition, offset and problem of each bad record. `bad_count` is
    available only after all rows of `good` were read.
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
    """Return the rows that the lake job would write for the records within these bounds, with these table columns."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    is_upsert = facts.lake_mode == UPSERT
    shape = row_shape(facts, columns, needs_key=is_upsert)
    rows = parsed(_records(spark, facts.name, bounds, source), shape)
    is_bad, counted = F.col(PROBLEM).isNotNull(), Observation()
    good = rows.observe(counted, F.count_if(is_bad).alias("bad")).where(~is_bad)
    if is_upsert:
        good = latest_of_each_key(good.select(ROW, TOMBSTONE)).where(~F.col(TOMBSTONE))
    row_key = F.col("partition").alias("kafka_partition"), F.col("offset").alias("kafka_offset")
    return TopicRows(good.select(f"{ROW}.*"), rows.where(is_bad).select(*row_key, PROBLEM), counted)


def _records(spark: "SparkSession", topic: str, bounds: Bounds, source: SourceOptions) -> "DataFrame":
    def offsets(which: str) -> str:
        return json.dumps({topic: {str(number): getattr(one, which) for number, one in bounds.items()}})

    options = {**source.as_spark(topic), "startingOffsets": offsets("first"), "endingOffsets": offsets("end")}
    return spark.read.format("kafka").options(**options).load()
