"""The common interface of Iceberg and plain Parquet tables.

    lake = open_lake(spark, warehouse, "iceberg")
    table = lake.table("orders")                    # kwire.orders; nothing is created yet
    table.prepare(columns, Partitioning())          # creates it, or adds missing columns; rewrites nothing
    table.append(rows, BatchMark(query_id, 7))      # does nothing if this mark is already committed
    table.read()                                    # a DataFrame, columns in table order

A batch mark is committed atomically with the rows of its micro-batch. If Spark repeats a micro-batch after a crash, the
table already has its mark, and the rows are not written again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kwire.pipeline.columns import Column, ddl, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("iceberg", "parquet")
TARGET_FILE_BYTES = 128 * 1024 * 1024
# The maximum number of queries whose last mark a table keeps. One query at a time writes to a table. If the checkpoint
# of the query is lost, the job starts a new query.
QUERIES_MAX = 100


@dataclass(frozen=True, slots=True)
class BatchMark:
    """Identifies a micro-batch: the id of the streaming query, from its checkpoint, and the number of the batch.

    `notes` are named texts that are stored with the mark, such as the end offsets of the batch.
    """

    query_id: str
    batch_id: int
    notes: Mapping[str, str] = field(default_factory=dict)


class Partitioning(NamedTuple):
    """The partitioning of a table: by day of `date_column` (unless it is None), then by the values of `fields`."""

    date_column: str | None = "kafka_timestamp"
    fields: tuple[str, ...] = ()


class Table(Protocol):
    """A table. It has only one writer at a time. Readers and maintenance may run at any time."""

    @property
    def name(self) -> str:
        """The name for SQL and messages: `lake.kwire.<table>` in the catalog, or the path of plain files."""
        ...

    def exists(self) -> bool: ...

    def columns(self) -> tuple[Column, ...]:
        """Return the columns in the table's order. The result is empty if the table does not exist."""
        ...

    def prepare(
        self, columns: Sequence[Column], partitioning: Partitioning, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create the table with these columns, or add the missing columns to it.

        Raises ColumnClash if a column of the table has another type.

        `properties` are Iceberg table properties for a new table.
        """
        ...

    def last_mark(self, query_id: str | None = None) -> BatchMark | None:
        """Return the last committed mark of this query, or of any query if `query_id` is None."""
        ...

    def holds(self, mark: BatchMark) -> bool:
        """Return whether this batch, or a later batch of the same query, is committed."""
        ...

    def append(self, rows: "DataFrame", mark: BatchMark) -> None:
        """Commit rows and mark atomically, unless the table holds the mark. Columns that the rows lack become null."""
        ...

    def read(self) -> "DataFrame": ...


class Lake(Protocol):
    """The tables in one warehouse."""

    def table(self, name: str) -> Table:
        """Return the table with this name. `name` is without `kwire.` (see columns.table_name)."""
        ...

    def names(self) -> list[str]:
        """Return the names of all tables, sorted."""
        ...


def open_lake(
    spark: "SparkSession", warehouse: str, table_format: str = "iceberg", file_bytes: int | None = None
) -> Lake:
    """Open the tables of a warehouse. `file_bytes` is the target size of a file."""
    from kwire.pipeline.lake.iceberg import IcebergLake
    from kwire.pipeline.lake.parquet import ParquetLake

    if table_format not in FORMATS:
        raise ValueError(f"unknown table format {table_format!r}: use {' or '.join(FORMATS)}")
    bound = TARGET_FILE_BYTES if file_bytes is None else file_bytes
    return IcebergLake(spark, bound) if table_format == "iceberg" else ParquetLake(spark, warehouse, bound)


def full_rows(rows: "DataFrame", columns: Sequence[Column]) -> "DataFrame":
    """Return the rows with exactly these columns, in this order. Columns that the rows lack are null."""
    from pyspark.sql import functions as f

    there = set(rows.columns)
    return rows.select(
        *(
            rows[quoted(column.name)] if column.name in there else f.lit(None).cast(ddl(column.type)).alias(column.name)
            for column in columns
        )
    )
