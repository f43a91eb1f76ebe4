"""Apache Iceberg tables. The summary of a snapshot has the mark of the batch that it commits (see tables.py)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kwire.pipeline.columns import Addition, Column, additions, columns_of, ddl, quoted
from kwire.pipeline.lake.files import Files
from kwire.pipeline.lake.locks.commit_lock import hold_commit_lock
from kwire.pipeline.lake.parquet import TABLE_FILE
from kwire.pipeline.lake.tables import QUERIES_MAX, BatchMark, Partitioning, full_rows
from kwire.pipeline.session import CATALOG, NAMESPACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Keys in a snapshot's summary.
QUERY_ID, BATCH_ID, NOTE_PREFIX = "kwire.query-id", "kwire.batch-id", "kwire.note."
# Prefix of the session settings that add summary keys to the commits of SQL statements.
_SESSION_PREFIX = "spark.sql.iceberg.snapshot-property."
_WRITE_PREFIX = "snapshot-property."
# The table property with copies of batch marks, which are kept when maintenance deletes the snapshots of the marks.
_KEPT_MARKS = "kwire.last-marks"

_PROPERTIES = {
    "format-version": "2",
    # The maximum number of retries after a conflict with a concurrent commit, for example of maintenance.
    "commit.retry.num-retries": "20",
    # Every commit writes a metadata file. Without this setting, old metadata files would never be deleted.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergLake:
    """The Iceberg tables of a catalog."""

    def __init__(self, spark: "SparkSession", file_bytes: int) -> None:
        self._spark = spark
        self._file_bytes = file_bytes

    def table(self, name: str) -> "IcebergTable":
        return IcebergTable(self._spark, name, self._file_bytes)

    def names(self) -> list[str]:
        if not self._spark.sql(f"SHOW NAMESPACES IN {CATALOG}").where(f"namespace = '{NAMESPACE}'").count():
            return []
        return sorted(row["tableName"] for row in self._spark.sql(f"SHOW TABLES IN {CATALOG}.{NAMESPACE}").collect())


class IcebergTable:
    """An Iceberg table with one writer at a time. The object caches the last committed batch of each query."""

    def __init__(self, spark: "SparkSession", name: str, file_bytes: int) -> None:
        self._spark = spark
        self._file_bytes = file_bytes
        self.name = f"{CATALOG}.{NAMESPACE}.{quoted(name)}"
        self._short_name = name
        self._committed: dict[str, int] = {}

    def exists(self) -> bool:
        return bool(self._spark.catalog.tableExists(self.name))

    def columns(self) -> tuple[Column, ...]:
        return columns_of(self._spark.table(self.name).schema.jsonValue()) if self.exists() else ()

    def prepare(
        self, columns: Sequence[Column], partitioning: Partitioning, properties: Mapping[str, str] | None = None
    ) -> None:
        if not self.exists():
            self._create(columns, partitioning, properties or {})
            return
        for addition in additions(self.columns(), columns):
            with self.commit_lock():
                self._spark.sql(f"ALTER TABLE {self.name} ADD COLUMN {_column_clause(addition)}")

    def commit_lock(self) -> AbstractContextManager[None]:
        """Return the lock that must be held during every commit to the table."""
        return hold_commit_lock(self._spark, self._short_name)

    def last_mark(self, query_id: str | None = None) -> BatchMark | None:
        return next((mark for mark in self._marks() if query_id in (None, mark.query_id)), None)

    def keep_marks(self) -> None:
        """Copy the last mark of every query to the table properties, to keep it when its snapshot is deleted."""
        # One property has all marks, because their order is needed: the first mark has the table's end offsets.
        marks = json.dumps([asdict(mark) for mark in self._last_marks()[:QUERIES_MAX]])
        if marks != self.properties().get(_KEPT_MARKS, "[]"):
            with self.commit_lock():
                self._spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('{_KEPT_MARKS}' = {_literal(marks)})")

    def properties(self) -> dict[str, str]:
        return dict(self._loaded().properties())

    def _last_marks(self) -> list[BatchMark]:
        """Return the last mark of every query that has written to the table, newest first."""
        last: dict[str, BatchMark] = {}
        for mark in self._marks():
            last.setdefault(mark.query_id, mark)
        return list(last.values())

    def _marks(self) -> Iterator[BatchMark]:
        """Yield all marks, newest first. Only ancestors of the current snapshot are read, not rolled back snapshots."""
        if not self.exists():
            return
        table = self._loaded()
        java: Any = self._spark._jvm
        snapshots = java.org.apache.iceberg.util.SnapshotUtil.currentAncestors(table).iterator()
        while snapshots.hasNext():
            summary = snapshots.next().summary()
            if summary.get(QUERY_ID) is not None:
                yield _mark_of(dict(summary))
        # The marks in the properties are not newer than those of the snapshots.
        yield from (BatchMark(**one) for one in json.loads(table.properties().get(_KEPT_MARKS) or "[]"))

    def _loaded(self) -> Any:
        """Load the current Iceberg table object.

        Its snapshots and properties are of the same version. Spark's SQL would redact values that look like secrets,
        such as a topic named `tokens`.
        """
        java: Any = self._spark._jvm
        return java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._spark._jsparkSession, self.name)

    def holds(self, mark: BatchMark) -> bool:
        if mark.query_id not in self._committed:
            last = self.last_mark(mark.query_id)
            self._committed[mark.query_id] = -1 if last is None else last.batch_id
        return self._committed[mark.query_id] >= mark.batch_id

    def append(self, rows: "DataFrame", mark: BatchMark) -> None:
        if self.holds(mark):
            return
        options = {_WRITE_PREFIX + key: value for key, value in _summary_of(mark).items()}
        options["target-file-size-bytes"] = str(self._file_bytes)
        with self._commit(mark):
            full_rows(rows, self.columns()).writeTo(self.name).options(**options).append()

    @contextmanager
    def marked_by(self, mark: BatchMark, session: "SparkSession") -> Iterator[None]:
        """In this block, commits by SQL statements of the session store the mark in their snapshot."""
        properties = {_SESSION_PREFIX + key: value for key, value in _summary_of(mark).items()}
        for key, value in properties.items():
            session.conf.set(key, value)
        try:
            with self._commit(mark):
                yield
        finally:
            for key in properties:
                session.conf.unset(key)

    def read(self) -> "DataFrame":
        return self._spark.table(self.name)

    @contextmanager
    def _commit(self, mark: BatchMark) -> Iterator[None]:
        """Hold the commit lock in this block, and update the cache after it.

        If the block fails, the query has no entry in the cache, because the commit may have succeeded.
        """
        self._committed.pop(mark.query_id, None)
        with self.commit_lock():
            yield
        self._committed[mark.query_id] = mark.batch_id

    def _create(self, columns: Sequence[Column], partitioning: Partitioning, properties: Mapping[str, str]) -> None:
        self._check_directory()
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")
        parts = [f"days({quoted(partitioning.date_column)})"] if partitioning.date_column else []
        parts += [quoted(field) for field in partitioning.fields]
        given = {
            **_PROPERTIES,
            "write.target-file-size-bytes": str(self._file_bytes),
            # Without partition fields, every task writes the rows that it has read. A shuffle would send all rows of
            # one day, usually the complete batch, to one task. With partition fields, rows are shuffled. Otherwise a
            # task would need an open file for every value of the fields.
            "write.distribution-mode": "hash" if partitioning.fields else "none",
            "write.spark.fanout.enabled": "false" if partitioning.fields else "true",
            **{
                # Statistics for these columns, because by default Iceberg has them only for the first hundred columns.
                f"write.metadata.metrics.column.{column.name}": "full"
                for column in columns
                if column.name in ("kafka_partition", "kafka_offset", "kafka_timestamp")
            },
            **properties,
        }
        statement = (
            f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(column.ddl for column in columns)}) USING iceberg "
            + (f"PARTITIONED BY ({', '.join(parts)}) " if parts else "")
            + f"TBLPROPERTIES ({', '.join(f'{_literal(key)} = {_literal(value)}' for key, value in given.items())})"
        )
        with self.commit_lock():
            self._spark.sql(statement)

    def _check_directory(self) -> None:
        """If the catalog is a directory, check that the table's directory does not contain a plain Parquet table."""
        catalog = f"spark.sql.catalog.{CATALOG}"
        if self._spark.conf.get(f"{catalog}.type", None) != "hadoop":
            return
        directory = f"{self._spark.conf.get(f'{catalog}.warehouse', '')}/{NAMESPACE}/{self._short_name}"
        if Files(self._spark, directory).exists(TABLE_FILE):
            raise ValueError(f"{directory} is a plain Parquet table, not an Iceberg table: use --format parquet")


def _column_clause(addition: Addition) -> str:
    path = ".".join(quoted(part) for part in addition.path)
    position = "FIRST" if addition.after is None else f"AFTER {quoted(addition.after)}"
    return f"{path} {ddl(addition.type)} {position}"


def _summary_of(mark: BatchMark) -> dict[str, str]:
    notes = {NOTE_PREFIX + key: value for key, value in mark.notes.items()}
    return {QUERY_ID: mark.query_id, BATCH_ID: str(mark.batch_id), **notes}


def _mark_of(summary: Mapping[str, str]) -> BatchMark:
    notes = {key[len(NOTE_PREFIX) :]: value for key, value in summary.items() if key.startswith(NOTE_PREFIX)}
    return BatchMark(summary[QUERY_ID], int(summary[BATCH_ID]), notes)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
