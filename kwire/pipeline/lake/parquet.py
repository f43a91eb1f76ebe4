"""Tables as plain Parquet files in directories, for readers that know nothing of table formats.

    <warehouse>/kwire/<table>/
        _kwire/table.json            the columns, and how the files are laid out
        _kwire/committed.json        the last mark of each query, and the files of the last batch of all
        _staging/…                   files of a batch that is being written
        kafka_date=2026-11-16/by_city=Oslo/part-….parquet

A batch is written aside. Its mark, which names the files, is what commits it: one small file that is replaced in one
step. Then the files are moved to their places. A driver that died before the mark has left nothing; one that died after
it is finished off by the next, before anything else. Until then readers may see a part of the batch, never one twice.

Names of directories are copies: `kafka_date` is the day of the date column, `by_<field>` a field. The files have all
columns, so that no value suffers from having been a directory name.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kwire.pipeline.columns import Column, ColumnClash, columns_of, merged, quoted
from kwire.pipeline.lake.files import FileFacts, Files
from kwire.pipeline.lake.tables import QUERIES_MAX, BatchMark, Partitioning, Table, full_rows
from kwire.pipeline.session import NAMESPACE, warehouse_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

DATE_DIRECTORY = "kafka_date"
FIELD_PREFIX = "by_"
# What a row takes in a file, until a batch has shown it.
ROW_BYTES_GUESS = 1000.0

TABLE_FILE = "_kwire/table.json"
_OWN, _COMMITTED, _STAGING = "_kwire", "_kwire/committed.json", "_staging"


class ParquetLake:
    def __init__(self, spark: "SparkSession", warehouse: str, file_bytes: int) -> None:
        self._spark = spark
        self._root = f"{warehouse_uri(warehouse).rstrip('/')}/{NAMESPACE}"
        self._file_bytes = file_bytes

    def table(self, name: str) -> "ParquetTable":
        return ParquetTable(self._spark, Files(self._spark, f"{self._root}/{name}"), self._file_bytes)

    def names(self) -> list[str]:
        files = Files(self._spark, self._root)
        return [name for name in files.names("") if files.exists(f"{name}/{TABLE_FILE}")]


class ParquetTable:
    """One writer at a time."""

    def __init__(self, spark: "SparkSession", files: Files, file_bytes: int) -> None:
        self._spark = spark
        self._files = files
        self.file_bytes = file_bytes
        self._row_bytes = ROW_BYTES_GUESS

    @property
    def name(self) -> str:
        return self._files.root

    def exists(self) -> bool:
        return self._files.exists(TABLE_FILE)

    def columns(self) -> tuple[Column, ...]:
        return columns_of(self._facts()["schema"]) if self.exists() else ()

    def prepare(
        self, columns: Sequence[Column], partitioning: Partitioning, properties: Mapping[str, str] | None = None
    ) -> None:
        from pyspark.sql.types import StructType

        if properties:
            raise ValueError(f"plain files have no table properties such as {next(iter(properties))}")
        self._put_in_place()
        there = self.columns()
        wanted = merged(there, columns)
        if there and wanted == there:
            return
        # (A driver that died while it made the table has left nothing but our own directory.)
        if not there and set(self._files.names("")) - {_OWN}:
            raise ValueError(
                f"{self.name} holds something that is no table of plain files, such as a table of Iceberg's"
            )
        layout = self.partitioning() if there else partitioning
        _check_directories(wanted, layout)
        schema = StructType.fromDDL(", ".join(column.ddl for column in wanted)).jsonValue()
        self._files.replace(TABLE_FILE, json.dumps({"schema": schema, "partitioning": layout._asdict()}))

    def last_mark(self, query_id: str | None = None) -> BatchMark | None:
        marks = [BatchMark(**one) for one in self._committed()["marks"]]
        return next((mark for mark in reversed(marks) if query_id in (None, mark.query_id)), None)

    def holds(self, mark: BatchMark) -> bool:
        last = self.last_mark(mark.query_id)
        return last is not None and last.batch_id >= mark.batch_id

    def append(self, rows: "DataFrame", mark: BatchMark) -> None:
        self._put_in_place()
        if self.holds(mark):
            return
        self._files.delete(_STAGING)
        self._write(rows)
        others = [one for one in self._committed()["marks"] if one["query_id"] != mark.query_id]
        noted = {"query_id": mark.query_id, "batch_id": mark.batch_id, "notes": dict(mark.notes)}
        files = [file.path for file in self.data_files(_STAGING)]
        self._files.replace(_COMMITTED, json.dumps({"marks": [*others, noted][-QUERIES_MAX:], "files": files}))
        self._put_in_place()

    def read(self) -> "DataFrame":
        schema = self.schema()
        if not self.data_files():
            return self._spark.createDataFrame([], schema)
        # Directories are columns too, for Spark; they come last, and are left out here.
        return self._spark.read.schema(schema).parquet(self._files.root).select(*map(quoted, schema.fieldNames()))

    def _write(self, rows: "DataFrame") -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        layout = self.partitioning()
        full = full_rows(rows, self.columns())
        directories = {FIELD_PREFIX + field: full[quoted(field)] for field in layout.fields}
        if layout.date_column:
            directories = {DATE_DIRECTORY: f.to_date(full[quoted(layout.date_column)]), **directories}
        counted = Observation()
        full = full.withColumns(directories).observe(counted, f.count(f.lit(1)).alias("rows"))
        if layout.fields:
            # So that not every task has a file for every value.
            full = full.repartition(*map(quoted, directories))
        rows_per_file = max(1, int(self.file_bytes / self._row_bytes))
        writer = full.write.option("maxRecordsPerFile", rows_per_file).option("compression", "zstd")
        writer.partitionBy(*directories).parquet(self._files.uri(_STAGING))
        row_count = counted.get["rows"]
        if row_count:
            self._row_bytes = max(1.0, sum(file.size_bytes for file in self.data_files(_STAGING)) / row_count)

    def _put_in_place(self) -> None:
        """Move the files of the last batch that was committed. Those that are not there have been moved before."""
        for path in self._committed()["files"]:
            if self._files.exists(f"{_STAGING}/{path}"):
                self._files.move(f"{_STAGING}/{path}", path)

    def is_in_place(self) -> bool:
        """Whether readers see all that was committed; not while a batch is moved, and not if that was cut short."""
        return not any(self._files.exists(f"{_STAGING}/{path}") for path in self._committed()["files"])

    def _facts(self) -> Any:
        return json.loads(self._files.read(TABLE_FILE))

    def schema(self) -> "StructType":
        from pyspark.sql.types import StructType

        return StructType.fromJson(self._facts()["schema"])

    def partitioning(self) -> Partitioning:
        layout = self._facts()["partitioning"]
        return Partitioning(layout["date_column"], tuple(layout["fields"]))

    def _committed(self) -> Any:
        return (
            json.loads(self._files.read(_COMMITTED)) if self._files.exists(_COMMITTED) else {"marks": [], "files": []}
        )

    def data_files(self, directory: str = "") -> list[FileFacts]:
        return list(self._files.below(directory))


class NotInPlace(ValueError):
    """A reader would miss some rows of a batch, and not notice."""


def check_in_place(table: Table) -> None:
    """NotInPlace if it has plain files some of which are still to be moved; tables of Iceberg's never have."""
    if isinstance(table, ParquetTable) and not table.is_in_place():
        raise NotInPlace(
            f"{table.name}: a batch is being written, or the job that wrote it was killed. Wait for the lake job, or "
            "start it once more, before this"
        )


def _check_directories(columns: Sequence[Column], layout: Partitioning) -> None:
    names = {column.name.lower() for column in columns}
    directories = [DATE_DIRECTORY] if layout.date_column else []
    for directory in [*directories, *(FIELD_PREFIX + field for field in layout.fields)]:
        if directory.lower() in names:
            raise ColumnClash(f"the column {directory} has the name of a directory of its table")
