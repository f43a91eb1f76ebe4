"""Tables of the lake, the same for both formats: made and widened from columns, appended to once for each micro-batch.

    lake = open_lake(spark, warehouse, "iceberg")
    table = lake.table("orders")                    # kwire.orders; nothing is made yet
    table.prepare(columns, Partitioning())          # makes it, or adds the columns it lacks; rewrites nothing
    table.append(rows, BatchMark(query_id, 7))      # a second time with this mark does nothing
    table.read()                                    # a DataFrame, columns in table order

A mark is committed together with the rows, by the same atomic step: there are never rows without their mark, nor a
mark without its rows. That is what makes a repeated micro-batch harmless, whenever the driver was killed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kwire.pipeline.columns import Column, ddl, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("iceberg", "parquet")
TARGET_FILE_BYTES = 128 * 1024 * 1024
# Queries whose last batch a table remembers; it has one at a time, and another one after its checkpoint got lost.
QUERIES_MAX = 100


@dataclass(frozen=True, slots=True)
class BatchMark:
    """Names a micro-batch: the streaming query's id, which lives in its checkpoint, and the number of the batch.

    `notes` is stored beside it, for whoever reads the table's history: text to text, e.g. the offsets it ends at.
    """

    query_id: str
    batch_id: int
    notes: Mapping[str, str] = field(default_factory=dict)


class Partitioning(NamedTuple):
    """By day of `date_column` (none if None), then by the values of `fields`."""

    date_column: str | None = "kafka_timestamp"
    fields: tuple[str, ...] = ()


class Table(Protocol):
    """One writer at a time; readers and maintenance whenever they like."""

    @property
    def name(self) -> str:
        """As SQL and people take it: `lake.kwire.<table>` in the catalog, a path of plain files."""
        ...

    def exists(self) -> bool: ...

    def columns(self) -> tuple[Column, ...]:
        """In the table's order; nothing if it does not exist."""
        ...

    def prepare(
        self, columns: Sequence[Column], partitioning: Partitioning, properties: Mapping[str, str] | None = None
    ) -> None:
        """Make it with these columns, or add those it lacks; ColumnClash if it has one of another type.

        `properties` are Iceberg's, for a table that is made.
        """
        ...

    def last_mark(self, query_id: str | None = None) -> BatchMark | None:
        """The last mark that was committed, of this query or of any."""
        ...

    def holds(self, mark: BatchMark) -> bool:
        """Whether this batch, or a later one of its query, has been committed."""
        ...

    def append(self, rows: "DataFrame", mark: BatchMark) -> None:
        """Commit rows and mark in one step. The rows have columns of the table, by name; absent ones become null."""
        ...

    def read(self) -> "DataFrame": ...


class Lake(Protocol):
    """The tables in one warehouse."""

    def table(self, name: str) -> Table:
        """By its name without `kwire.` (see columns.table_name)."""
        ...

    def names(self) -> list[str]:
        """Of the tables there are, sorted."""
        ...


def open_lake(
    spark: "SparkSession", warehouse: str, table_format: str = "iceberg", file_bytes: int | None = None
) -> Lake:
    """`file_bytes` is the size at which a file is closed and the next one begun."""
    from kwire.pipeline.lake.iceberg import IcebergLake
    from kwire.pipeline.lake.parquet import ParquetLake

    if table_format not in FORMATS:
        raise ValueError(f"there is no table format {table_format!r}, only {' and '.join(FORMATS)}")
    bound = TARGET_FILE_BYTES if file_bytes is None else file_bytes
    return IcebergLake(spark, bound) if table_format == "iceberg" else ParquetLake(spark, warehouse, bound)


def full_rows(rows: "DataFrame", columns: Sequence[Column]) -> "DataFrame":
    """The rows with all these columns, in this order; those they lack are null."""
    from pyspark.sql import functions as f

    there = set(rows.columns)
    return rows.select(
        *(
            rows[quoted(column.name)] if column.name in there else f.lit(None).cast(ddl(column.type)).alias(column.name)
            for column in columns
        )
    )
