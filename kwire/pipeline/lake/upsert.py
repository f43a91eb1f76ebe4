"""Compacted topics as upsert tables: one row for each key, the one that the log would keep.

A log is compacted partition by partition, so the row of a key is found by its partition and key: after the cleaner has
been over the whole log, table and log hold the same records. A key that moves to another partition because the topic
was given more of them has a row for each, in the table as in the log; the one with the later `kafka_timestamp` counts.

A record without a value deletes its key's row. A record without a key has no place in such a table: it is a bad row.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kwire.pipeline.columns import quoted
from kwire.pipeline.lake.conflicts import is_conflict
from kwire.pipeline.lake.tables import BatchMark, Partitioning
from kwire.pipeline.source import ROW, TOMBSTONE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kwire.pipeline.lake.iceberg import IcebergTable

KEY_COLUMNS = ("kafka_partition", "kafka_key")
# Every micro-batch looks for its keys in the whole table: a partition for each day would only make more files of it.
PARTITIONING = Partitioning(date_column=None)
# A micro-batch writes small files that name the rows it replaces, instead of writing whole data files anew.
TABLE_PROPERTIES = {
    "kwire.lake.mode": "upsert",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}
# Maintenance may have rewritten a file in which this batch has found a row; then the batch looks again.
ATTEMPTS_MAX = 10
_VIEW = "kwire_upsert"


def upsert(table: "IcebergTable", rows: "DataFrame", mark: BatchMark) -> None:
    """Commit what the rows change, and the mark, in one step. A second time with this mark does nothing.

    The rows are as `source.parsed` makes them: a struct ROW, and TOMBSTONE, whether the record has no value.
    """
    if table.holds(mark):
        return
    # Read once: the statement may run again, and the topic may have been compacted in between.
    latest = latest_of_each_key(rows).persist()
    try:
        latest.createOrReplaceTempView(_VIEW)
        _merge(table, latest, mark)
    finally:
        latest.sparkSession.catalog.dropTempView(_VIEW)
        latest.unpersist()


def latest_of_each_key(rows: "DataFrame") -> "DataFrame":
    """What compaction would leave of these rows; deletions stay, as rows with their mark."""
    from pyspark.sql import functions

    last = functions.max_by(functions.struct(ROW, TOMBSTONE), f"{ROW}.kafka_offset").alias("last")
    return rows.groupBy(*(f"{ROW}.{name}" for name in KEY_COLUMNS)).agg(last).select("last.*")


def _merge(table: "IcebergTable", rows: "DataFrame", mark: BatchMark) -> None:
    given = rows.select(f"{ROW}.*").columns
    statement = merge_statement(table.name, [column.name for column in table.columns()], given)
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            with table.marked_by(mark, rows.sparkSession):
                rows.sparkSession.sql(statement)
            return
        except Exception as error:
            if attempt == ATTEMPTS_MAX or not is_conflict(error):
                raise
            if table.holds(mark):
                return


def merge_statement(table: str, columns: Sequence[str], given: Sequence[str]) -> str:
    """Columns of the table that the rows lack become null, as in an append."""
    values = [(quoted(name), f"new.{ROW}.{quoted(name)}" if name in given else "NULL") for name in columns]
    same_key = " AND ".join(f"old.{name} = new.{ROW}.{name}" for name in KEY_COLUMNS)
    is_later = f"new.{ROW}.kafka_offset > old.kafka_offset"
    return f"""
        MERGE INTO {table} AS old USING {_VIEW} AS new ON {same_key}
        WHEN MATCHED AND {is_later} AND new.{TOMBSTONE} THEN DELETE
        WHEN MATCHED AND {is_later} THEN UPDATE SET {", ".join(f"old.{name} = {value}" for name, value in values)}
        WHEN NOT MATCHED AND NOT new.{TOMBSTONE}
            THEN INSERT ({", ".join(name for name, _ in values)}) VALUES ({", ".join(value for _, value in values)})
    """
