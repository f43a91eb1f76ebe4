"""Compares two DataFrames that should have the same rows: one from the topic and one from the table.

First, the number of rows and a checksum over all columns are computed on each side, by partition and hour. Single rows
are compared only in hours that differ. So if both sides are the same, each side is read only once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kwire.pipeline.columns import quoted
from kwire.pipeline.ordered_rows import rows_in_order

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MISSING, EXTRA, DIFFERENT, BEHIND = "missing", "extra", "different", "behind"
# The kinds of differences. A row is `missing` if it is only in the topic, `extra` if it is only in the table or more
# than once in it, and `different` if columns differ. A row is `behind` if the writer has not reached its offset yet.
KINDS = (MISSING, EXTRA, DIFFERENT, BEHIND)

HOUR_SECONDS = 3600
# The hour of rows without a timestamp. All records have a timestamp, but a damaged table may have such rows, and they
# must be compared, too.
NO_HOUR = -1
ROW_KEY = ("kafka_partition", "kafka_offset")
BUCKET = ("kafka_partition", "hour")
# Timestamps are compared with microseconds. Spark's default format has only milliseconds.
_JSON_OPTIONS = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


class Hour(NamedTuple):
    """Row counts and checksums of one partition for one hour. A checksum is the sum of the hashes of the rows."""

    partition: int
    # Hours since 1970, in UTC.
    hour: int
    topic_rows: int
    topic_checksum: int
    table_rows: int
    table_checksum: int
    # The lowest and the highest offset of the hour's rows on both sides.
    first: int
    last: int

    @property
    def is_same(self) -> bool:
        return (self.topic_rows, self.topic_checksum) == (self.table_rows, self.table_checksum)


class Difference(NamedTuple):
    """A row that differs. `detail` has the names of the differing columns or the number of copies of the row."""

    kind: str
    partition: int
    offset: int
    detail: str = ""


@dataclass(frozen=True)
class Comparison:
    """A comparison of two DataFrames with the same columns.

    `next_offsets` has the next offset that the table's writer will read, by partition.
    """

    topic: "DataFrame"
    table: "DataFrame"
    next_offsets: Mapping[int, int]

    def hours(self) -> list[Hour]:
        """Return the row counts and checksums of every partition and hour, in order.

        A partition has about 9,000 hours per year.
        """
        from pyspark.sql import functions as F

        columns = self.table.columns
        topic = _sums(_hashed(self.topic, columns), "topic")
        table = _sums(_hashed(self.table, columns), "table")
        joined = topic.join(table, list(BUCKET), "full_outer")
        figures = [f"{side}_{figure}" for side in ("topic", "table") for figure in ("rows", "checksum")]
        filled = [F.coalesce(F.col(name), F.lit(0)) for name in figures]
        first, last = F.least("topic_first", "table_first"), F.greatest("topic_last", "table_last")
        found = joined.select(*BUCKET, *filled, first, last).collect()
        # In Spark the checksums are decimals, so that their sum does not overflow.
        return sorted(Hour(*map(int, row)) for row in found)

    def differences(self, hours: Sequence[Hour]) -> Iterator[Difference]:
        """Yield the rows of these hours that differ between the two sides."""
        rows = sum(one.topic_rows + one.table_rows for one in hours)
        for row in rows_in_order(self._different_rows(hours), ROW_KEY, rows):
            partition, offset = row["kafka_partition"], row["kafka_offset"]
            if not row["copies"]:
                kind = BEHIND if offset >= self.next_offsets.get(partition, 0) else MISSING
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
        compared = [name for name in columns if name not in ROW_KEY]
        names = [(one.partition, one.hour) for one in hours]
        wanted = F.broadcast(self.table.sparkSession.createDataFrame(names, "kafka_partition int, hour bigint"))
        topic = _hashed(self.topic, columns, compared).join(wanted, list(BUCKET), "left_semi")
        table = _hashed(self.table, columns, compared).join(wanted, list(BUCKET), "left_semi")
        topic = topic.select(*ROW_KEY, F.col("hash").alias("topic_hash"), F.col("cells").alias("topic_cells"))
        table = table.groupBy(*ROW_KEY).agg(
            F.count("*").alias("copies"),
            F.collect_set("hash").alias("table_hashes"),
            F.collect_list("cells").alias("table_cells"),
        )
        is_same = F.forall("table_hashes", lambda one: one == F.col("topic_hash"))
        differing = F.array(*[_differs(at) for at in range(len(compared))])
        differ = F.filter(F.array(*map(F.lit, compared)), lambda _, at: differing[at])
        return (
            topic.join(table, list(ROW_KEY), "full_outer")
            .where(F.col("topic_hash").isNull() | F.col("copies").isNull() | ~is_same | (F.col("copies") > 1))
            .select(
                *ROW_KEY,
                "topic_hash",
                F.coalesce("copies", F.lit(0)).alias("copies"),
                F.when(~is_same, differ).alias("columns"),
            )
        )


def _differs(at: int) -> "Column":
    """Return the condition that a copy of the row in the table differs from the topic in the column with this index."""
    from pyspark.sql import functions as F

    return F.exists("table_cells", lambda cells: cells[at] != F.col("topic_cells")[at])


def _hashed(rows: "DataFrame", columns: list[str], cells: list[str] | None = None) -> "DataFrame":
    """Return partition, offset, hour and hash of each row, and the hash of each column in `cells`."""
    from pyspark.sql import functions as F

    wanted = [
        *ROW_KEY,
        F.coalesce(F.floor(F.unix_seconds("kafka_timestamp") / HOUR_SECONDS), F.lit(NO_HOUR)).alias("hour"),
        _hash(columns).alias("hash"),
    ]
    if cells is not None:
        wanted.append(F.array(*[_hash([name]) for name in cells]).alias("cells"))
    return rows.select(*wanted)


def _hash(columns: list[str]) -> "Column":
    """Return a hash of the columns, encoded as JSON.

    Without JSON, xxhash64 would skip nulls, so a value in the wrong column could have the same hash.
    """
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
