"""Upsert tables for compacted topics. A table has one row per key: the record that compaction would keep.

Compaction works per partition, so a row is identified by partition and key. After the log cleaner has compacted the
complete log, table and log hold the same records. If partitions are added to a topic, later records of a key may be in
another partition. Then the table, like the log, has a row for each of the two partitions. The row with the later
`kafka_timestamp` is current.

A record without a value (a tombstone) deletes the row of its key. A record without a key is a bad record.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kwire.pipeline.columns import quoted
from kwire.pipeline.lake.commit_conflicts import is_commit_conflict
from kwire.pipeline.lake.tables import BatchMark, Partitioning
from kwire.pipeline.source import ROW, TOMBSTONE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kwire.pipeline.lake.iceberg import IcebergTable

KEY_COLUMNS = ("kafka_partition", "kafka_key")
# Upsert tables are not partitioned by day. Every micro-batch searches the complete table for its keys, so partitions
# would only produce more files.
PARTITIONING = Partitioning(date_column=None)
# With "merge-on-read", a micro-batch does not rewrite data files. It writes small delete files for the rows that it
# replaces.
TABLE_PROPERTIES = {
    "kwire.lake.mode": "upsert",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}
# A batch is retried if maintenance has meanwhile rewritten a file with a row that the batch changes.
ATTEMPTS_MAX = 10
_VIEW = "kwire_upsert"


def upsert(table: "IcebergTable", rows: "DataFrame", mark: BatchMark) -> int:
    """Commit the changes and the mark atomically. Do nothing if the mark is already committed.

    Returns the number of keys whose last record was merged into the table.

    `rows` has two columns of `source.parsed`: the struct ROW, and TOMBSTONE, which is true if the record has no value.
    """
    if table.holds(mark):
        return 0
    # `persist` ensures that the topic is read only once. The statement may be repeated, and compaction may have removed
    # records in the meantime.
    latest = latest_of_each_key(rows).persist()
    try:
        latest.createOrReplaceTempView(_VIEW)
        count = int(latest.count())
        _merge(table, latest, mark)
        return count
    finally:
        latest.sparkSession.catalog.dropTempView(_VIEW)
        latest.unpersist()


def latest_of_each_key(rows: "DataFrame") -> "DataFrame":
    """Return the last row of each key, as compaction would. Tombstones are kept as rows."""
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
            if attempt == ATTEMPTS_MAX or not is_commit_conflict(error):
                raise
            if table.holds(mark):
                return


def merge_statement(table: str, columns: Sequence[str], given: Sequence[str]) -> str:
    """Return the MERGE statement of an upsert. Columns that the rows lack become null, as in an append."""
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
