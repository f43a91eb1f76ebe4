"""Plain Parquet tables: Parquet files in directories, for readers that do not support Iceberg.

    <warehouse>/kwire/<table>/
        _kwire/table.json            the columns and the directory layout
        _kwire/committed.json        the last batch mark of each query, and the files of the last batch
        _staging/…                   files of a batch before it is committed
        kafka_date=2026-11-16/by_city=Oslo/part-….parquet

The files of a batch are written to the staging directory. Then committed.json is replaced atomically: it contains the
batch mark and the list of the files. This commits the batch. Last, the files are moved to their final directories.

If the driver is killed before the commit, the batch has no effect. If it is killed after the commit, the next driver
first moves the remaining files. Until then, readers may see only a part of the batch, but no row twice.

Directory names contain values of columns: `kafka_date` is the day of the date column, and `by_<field>` is the value of
a field. The files contain these columns, too, so readers do not have to decode values from directory names.
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
# The assumed size of a row in a file. After the first batch, the measured size is used.
ROW_BYTES_GUESS = 1000.0

TABLE_FILE = "_kwire/table.json"
_OWN, _COMMITTED, _STAGING = "_kwire", "_kwire/committed.json", "_staging"


class ParquetLake:
    """The plain Parquet tables of a warehouse."""

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
    """A plain Parquet table with one writer at a time."""

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
            raise ValueError(f"plain Parquet tables cannot have table properties such as {next(iter(properties))}")
        self._move_staged_files()
        there = self.columns()
        wanted = merged(there, columns)
        if there and wanted == there:
            return
        # The directory _kwire may exist without a table, if a driver was killed while it created the table.
        if not there and set(self._files.names("")) - {_OWN}:
            raise ValueError(f"{self.name} contains other files than a plain Parquet table, such as an Iceberg table")
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
        self._move_staged_files()
        if self.holds(mark):
            return
        self._files.delete(_STAGING)
        self._write(rows)
        others = [one for one in self._committed()["marks"] if one["query_id"] != mark.query_id]
        committed = {"query_id": mark.query_id, "batch_id": mark.batch_id, "notes": dict(mark.notes)}
        files = [file.path for file in self.data_files(_STAGING)]
        self._files.replace(_COMMITTED, json.dumps({"marks": [*others, committed][-QUERIES_MAX:], "files": files}))
        self._move_staged_files()

    def read(self) -> "DataFrame":
        schema = self.schema()
        if not self.data_files():
            return self._spark.createDataFrame([], schema)
        # Spark adds a column for each level of directories. `select` omits these columns.
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
            # Without this shuffle, every task would write a file for every value of the fields.
            full = full.repartition(*map(quoted, directories))
        rows_per_file = max(1, int(self.file_bytes / self._row_bytes))
        writer = full.write.option("maxRecordsPerFile", rows_per_file).option("compression", "zstd")
        writer.partitionBy(*directories).parquet(self._files.uri(_STAGING))
        row_count = counted.get["rows"]
        if row_count:
            self._row_bytes = max(1.0, sum(file.size_bytes for file in self.data_files(_STAGING)) / row_count)

    def _move_staged_files(self) -> None:
        """Move the files of the last committed batch to their final directories, unless they are already there."""
        for path in self._committed()["files"]:
            if self._files.exists(f"{_STAGING}/{path}"):
                self._files.move(f"{_STAGING}/{path}", path)

    def is_in_place(self) -> bool:
        """Return whether all committed files are in their final directories, so that readers see all committed rows."""
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
    """Some files of the last batch are not in their final directories yet, so a reader would not see their rows."""


def check_in_place(table: Table) -> None:
    """Raise NotInPlace if the table is a plain Parquet table with files that are not in their final directories yet."""
    if isinstance(table, ParquetTable) and not table.is_in_place():
        raise NotInPlace(
            f"{table.name}: a batch is incomplete, because it is being written or the lake job was killed. Wait for "
            "the lake job, or run it again, and then repeat this command"
        )


def _check_directories(columns: Sequence[Column], layout: Partitioning) -> None:
    names = {column.name.lower() for column in columns}
    directories = [DATE_DIRECTORY] if layout.date_column else []
    for directory in [*directories, *(FIELD_PREFIX + field for field in layout.fields)]:
        if directory.lower() in names:
            raise ColumnClash(f"column {directory} has the same name as a partition directory of its table")
