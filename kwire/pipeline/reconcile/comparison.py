"""Two frames of the same events compared: what the topic has, and what the table has.

First each side is summed up by partition and hour: how many rows, and a checksum over all their columns. Only where
the two disagree are rows looked at one by one, so a table that is right costs one pass over each side.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kwire.pipeline.columns import quoted
from kwire.pipeline.ordered_rows import rows_in_order

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MISSING, EXTRA, DIFFERENT, BEHIND = "missing", "extra", "different", "behind"
# In the topic only, in the table only, in both but not the same; `behind`: the table has not got there yet.
KINDS = (MISSING, EXTRA, DIFFERENT, BEHIND)

HOUR_SECONDS = 3600
# Of rows without a time, which no record is; nothing may be passed over because of it.
NO_HOUR = -1
PLACE = ("kafka_partition", "kafka_offset")
BUCKET = ("kafka_partition", "hour")
# Times are written whole: the usual format leaves out what is below a millisecond.
_JSON_OPTIONS = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


class Hour(NamedTuple):
    """One partition in one hour, by the events' own time. A checksum is the sum of the rows' hashes."""

    partition: int
    # Since 1970, in UTC.
    hour: int
    topic_rows: int
    topic_checksum: int
    table_rows: int
    table_checksum: int
    # The offsets of its rows, on both sides.
    first: int
    last: int

    @property
    def is_same(self) -> bool:
        return (self.topic_rows, self.topic_checksum) == (self.table_rows, self.table_checksum)


class Difference(NamedTuple):
    """`detail` names the columns that differ, or says how often a row is there."""

    kind: str
    partition: int
    offset: int
    detail: str = ""


@dataclass(frozen=True)
class Comparison:
    """`topic` and `table` have the same columns. `reach` says, by partition, which offset the table needs next."""

    topic: "DataFrame"
    table: "DataFrame"
    reach: Mapping[int, int]

    def hours(self) -> list[Hour]:
        """One for each partition and hour that either side has, in order: a few thousand for a year of a partition."""
        from pyspark.sql import functions as F

        columns = self.table.columns
        topic = _sums(_hashed(self.topic, columns), "topic")
        table = _sums(_hashed(self.table, columns), "table")
        joined = topic.join(table, list(BUCKET), "full_outer")
        figures = [f"{side}_{figure}" for side in ("topic", "table") for figure in ("rows", "checksum")]
        filled = [F.coalesce(F.col(name), F.lit(0)) for name in figures]
        first, last = F.least("topic_first", "table_first"), F.greatest("topic_last", "table_last")
        found = joined.select(*BUCKET, *filled, first, last).collect()
        # Checksums are decimals in Spark, so that no sum overflows.
        return sorted(Hour(*map(int, row)) for row in found)

    def differences(self, hours: Sequence[Hour]) -> Iterator[Difference]:
        """Each row that is not the same on both sides, among those of these hours."""
        rows = sum(one.topic_rows + one.table_rows for one in hours)
        for row in rows_in_order(self._different_rows(hours), PLACE, rows):
            partition, offset = row["kafka_partition"], row["kafka_offset"]
            if not row["copies"]:
                kind = BEHIND if offset >= self.reach.get(partition, 0) else MISSING
                yield Difference(kind, partition, offset)
                continue
            if row["topic_hash"] is None:
                yield Difference(EXTRA, partition, offset, "" if row["copies"] == 1 else f"{row['copies']} times")
                continue
            if row["columns"]:
                yield Difference(DIFFERENT, partition, offset, ", ".join(row["columns"]))
            if row["copies"] > 1:
                yield Difference(EXTRA, partition, offset, f"{row['copies']} times")

    def _different_rows(self, hours: Sequence[Hour]) -> "DataFrame":
        from pyspark.sql import functions as F

        columns = self.table.columns
        compared = [name for name in columns if name not in PLACE]
        names = [(one.partition, one.hour) for one in hours]
        wanted = F.broadcast(self.table.sparkSession.createDataFrame(names, "kafka_partition int, hour bigint"))
        topic = _hashed(self.topic, columns, compared).join(wanted, list(BUCKET), "left_semi")
        table = _hashed(self.table, columns, compared).join(wanted, list(BUCKET), "left_semi")
        topic = topic.select(*PLACE, F.col("hash").alias("topic_hash"), F.col("cells").alias("topic_cells"))
        table = table.groupBy(*PLACE).agg(
            F.count("*").alias("copies"),
            F.collect_set("hash").alias("table_hashes"),
            F.collect_list("cells").alias("table_cells"),
        )
        is_same = F.forall("table_hashes", lambda one: one == F.col("topic_hash"))
        differing = F.array(*[_differs(at) for at in range(len(compared))])
        differ = F.filter(F.array(*map(F.lit, compared)), lambda _, at: differing[at])
        return (
            topic.join(table, list(PLACE), "full_outer")
            .where(F.col("topic_hash").isNull() | F.col("copies").isNull() | ~is_same | (F.col("copies") > 1))
            .select(
                *PLACE,
                "topic_hash",
                F.coalesce("copies", F.lit(0)).alias("copies"),
                F.when(~is_same, differ).alias("columns"),
            )
        )


def _differs(at: int) -> "Column":
    """Whether a copy of the row in the table has another cell there than the topic."""
    from pyspark.sql import functions as F

    return F.exists("table_cells", lambda cells: cells[at] != F.col("topic_cells")[at])


def _hashed(rows: "DataFrame", columns: list[str], cells: list[str] | None = None) -> "DataFrame":
    """Place, hour and hash of each row; and, if asked for, a hash of each cell."""
    from pyspark.sql import functions as F

    wanted = [
        *PLACE,
        F.coalesce(F.floor(F.unix_seconds("kafka_timestamp") / HOUR_SECONDS), F.lit(NO_HOUR)).alias("hour"),
        _hash(columns).alias("hash"),
    ]
    if cells is not None:
        wanted.append(F.array(*[_hash([name]) for name in cells]).alias("cells"))
    return rows.select(*wanted)


def _hash(columns: list[str]) -> "Column":
    """Of JSON, not of the cells: xxhash64 passes over nulls, so a value in the next column would be the same to it."""
    from pyspark.sql import functions as F

    return F.xxhash64(F.to_json(F.struct(*map(quoted, columns)), _JSON_OPTIONS))


def _sums(rows: "DataFrame", side: str) -> "DataFrame":
    from pyspark.sql import functions as F

    return rows.groupBy(*BUCKET).agg(
        F.count("*").alias(f"{side}_rows"),
        F.sum(F.col("hash").cast("decimal(20,0)")).alias(f"{side}_checksum"),
        F.min("kafka_offset").alias(f"{side}_first"),
        F.max("kafka_offset").alias(f"{side}_last"),
    )
