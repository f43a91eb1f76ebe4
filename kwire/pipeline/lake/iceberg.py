"""Tables as Apache Iceberg keeps them: a mark is part of the snapshot that its rows are committed with."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kwire.pipeline.columns import Addition, Column, additions, columns_of, ddl, quoted
from kwire.pipeline.lake.commit_lock import committing
from kwire.pipeline.lake.files import Files
from kwire.pipeline.lake.parquet import TABLE_FILE
from kwire.pipeline.lake.tables import QUERIES_MAX, BatchMark, Partitioning, full_rows
from kwire.pipeline.session import CATALOG, NAMESPACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Names in a snapshot's summary.
QUERY_ID, BATCH_ID, NOTE_PREFIX = "kwire.query-id", "kwire.batch-id", "kwire.note."
# How a session puts them on what its SQL statements commit.
_SESSION_PREFIX = "spark.sql.iceberg.snapshot-property."
_WRITE_PREFIX = "snapshot-property."
# The name of a table property.
_KEPT_MARKS = "kwire.last-marks"

_PROPERTIES = {
    "format-version": "2",
    # A commit that meets another one is put on top of it, so often; maintenance commits too.
    "commit.retry.num-retries": "20",
    # Every commit writes a metadata file; without this they would be kept for ever.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergLake:
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
    """One writer at a time. What this object has committed itself it remembers and need not look up."""

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
            with self.committing():
                self._spark.sql(f"ALTER TABLE {self.name} ADD COLUMN {_column_clause(addition)}")

    def committing(self) -> AbstractContextManager[None]:
        """Around everything that commits to the table, whoever does it."""
        return committing(self._spark, self._short_name)

    def last_mark(self, query_id: str | None = None) -> BatchMark | None:
        return next((mark for mark in self._marks() if query_id in (None, mark.query_id)), None)

    def keep_marks(self) -> None:
        """Note the last mark of every query in the table's properties: there they outlive their snapshots."""
        # In one property, because their order matters: the first of all says how far the table has come.
        noted = json.dumps([asdict(mark) for mark in self._last_marks()[:QUERIES_MAX]])
        if noted != self.properties().get(_KEPT_MARKS, "[]"):
            with self.committing():
                self._spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('{_KEPT_MARKS}' = {_literal(noted)})")

    def properties(self) -> dict[str, str]:
        return dict(self._loaded().properties())

    def _last_marks(self) -> list[BatchMark]:
        """Of every query that has written here, the newest first."""
        last: dict[str, BatchMark] = {}
        for mark in self._marks():
            last.setdefault(mark.query_id, mark)
        return list(last.values())

    def _marks(self) -> Iterator[BatchMark]:
        """All of them, the newest first, from the present snapshot back: one that was rolled back is not committed."""
        if not self.exists():
            return
        table = self._loaded()
        java: Any = self._spark._jvm
        snapshots = java.org.apache.iceberg.util.SnapshotUtil.currentAncestors(table).iterator()
        while snapshots.hasNext():
            summary = snapshots.next().summary()
            if summary.get(QUERY_ID) is not None:
                yield _mark_of(dict(summary))
        # What maintenance has kept is older than what still has a snapshot.
        yield from (BatchMark(**one) for one in json.loads(table.properties().get(_KEPT_MARKS) or "[]"))

    def _loaded(self) -> Any:
        """Iceberg's own view of it, as it is now: all of one moment, and nothing blackened that looks like a secret,
        such as a topic named `tokens`."""
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
        with self._committing(mark):
            full_rows(rows, self.columns()).writeTo(self.name).options(**options).append()

    @contextmanager
    def marked_by(self, mark: BatchMark, session: "SparkSession") -> Iterator[None]:
        """What is committed by a SQL statement of this session inside the block carries the mark."""
        properties = {_SESSION_PREFIX + key: value for key, value in _summary_of(mark).items()}
        for key, value in properties.items():
            session.conf.set(key, value)
        try:
            with self._committing(mark):
                yield
        finally:
            for key in properties:
                session.conf.unset(key)

    def read(self) -> "DataFrame":
        return self._spark.table(self.name)

    @contextmanager
    def _committing(self, mark: BatchMark) -> Iterator[None]:
        """If it fails, whether it was committed has to be looked up."""
        self._committed.pop(mark.query_id, None)
        with self.committing():
            yield
        self._committed[mark.query_id] = mark.batch_id

    def _create(self, columns: Sequence[Column], partitioning: Partitioning, properties: Mapping[str, str]) -> None:
        self._check_directory()
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")
        parts = [f"days({quoted(partitioning.date_column)})"] if partitioning.date_column else []
        parts += [quoted(field) for field in partitioning.fields]
        said = {
            **_PROPERTIES,
            "write.target-file-size-bytes": str(self._file_bytes),
            # Without a field to sort by, every task writes what it has read: a shuffle would send a whole day, that is
            # the whole batch, to one task. With one, a task must not have a file open for each value there is.
            "write.distribution-mode": "hash" if partitioning.fields else "none",
            "write.spark.fanout.enabled": "false" if partitioning.fields else "true",
            **{
                # Statistics are kept for the first hundred columns only, unless they are asked for.
                f"write.metadata.metrics.column.{column.name}": "full"
                for column in columns
                if column.name in ("kafka_partition", "kafka_offset", "kafka_timestamp")
            },
            **properties,
        }
        statement = (
            f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(column.ddl for column in columns)}) USING iceberg "
            + (f"PARTITIONED BY ({', '.join(parts)}) " if parts else "")
            + f"TBLPROPERTIES ({', '.join(f'{_literal(key)} = {_literal(value)}' for key, value in said.items())})"
        )
        with self.committing():
            self._spark.sql(statement)

    def _check_directory(self) -> None:
        """Where the catalog is a directory, plain files may be where the table would be."""
        catalog = f"spark.sql.catalog.{CATALOG}"
        if self._spark.conf.get(f"{catalog}.type", None) != "hadoop":
            return
        directory = f"{self._spark.conf.get(f'{catalog}.warehouse', '')}/{NAMESPACE}/{self._short_name}"
        if Files(self._spark, directory).exists(TABLE_FILE):
            raise ValueError(f"{directory} is a table of plain files, not one of Iceberg's")


def _column_clause(addition: Addition) -> str:
    path = ".".join(quoted(part) for part in addition.path)
    place = "FIRST" if addition.after is None else f"AFTER {quoted(addition.after)}"
    return f"{path} {ddl(addition.type)} {place}"


def _summary_of(mark: BatchMark) -> dict[str, str]:
    notes = {NOTE_PREFIX + key: value for key, value in mark.notes.items()}
    return {QUERY_ID: mark.query_id, BATCH_ID: str(mark.batch_id), **notes}


def _mark_of(summary: Mapping[str, str]) -> BatchMark:
    notes = {key[len(NOTE_PREFIX) :]: value for key, value in summary.items() if key.startswith(NOTE_PREFIX)}
    return BatchMark(summary[QUERY_ID], int(summary[BATCH_ID]), notes)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
