"""The lake job as tests run it, and what must be in a table: the log itself, read by a plain consumer."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.pipeline.lake import job
from kwire.pipeline.lake.tables import open_lake
from tests.support.clients import read_topic
from tests.support.jobs import job_options
from tests.support.server import KwireProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LogRow(NamedTuple):
    """What identifies a record in log and table, and its bytes."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    value: bytes | None


class LakeUnderTest:
    """A warehouse, and the jobs of one session that write to it."""

    def __init__(
        self, spark: "SparkSession", kwire: KwireProcess, warehouse: str, table_format: str = "iceberg"
    ) -> None:
        self.spark = spark
        self.kwire = kwire
        self.warehouse = warehouse
        self.table_format = table_format

    def run_once(self, *topics: str, more: tuple[str, ...] = ()) -> None:
        arguments = lake_arguments(self.kwire, self.warehouse, self.table_format, *topics)
        assert job.run(job_options("lake", *arguments, *more, "--once")) == 0

    def table(self, name: str) -> Any:
        return open_lake(self.spark, self.warehouse, self.table_format).table(name)

    def rows(self, name: str) -> list[dict[str, Any]]:
        found = [row.asDict(recursive=True) for row in self.table(name).read().collect()]
        return sorted(found, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))

    def log_rows(self, name: str) -> list[LogRow]:
        """A table of a topic without schemas as the records that it was made of, in their order."""
        return [log_row_of(row) for row in self.rows(name)]


def lake_arguments(kwire: KwireProcess, warehouse: str, table_format: str, *topics: str) -> list[str]:
    named = [part for topic in topics for part in ("--topic", topic)]
    server = ["--bootstrap", kwire.bootstrap, "--http", kwire.http_url]
    return [*server, *named, "--warehouse", warehouse, "--format", table_format, "--quiet"]


def commits(root: Path, table_format: str = "iceberg") -> int:
    """A number that grows with each commit of the table in this directory."""
    if table_format == "iceberg":
        versions = [int(one.name[1:].split(".")[0]) for one in root.glob("metadata/v*.metadata.json")]
        return max(versions, default=0)
    committed = root / "_kwire" / "committed.json"
    return committed.stat().st_mtime_ns if committed.exists() else 0


def log_row_of(row: dict[str, Any]) -> LogRow:
    return LogRow(
        row["kafka_partition"],
        row["kafka_offset"],
        round(row["kafka_timestamp"].timestamp() * 1000),
        _bytes(row["kafka_key"]),
        tuple((header["key"], _bytes(header["value"])) for header in row["kafka_headers"] or ()),
        row["value"].encode() if row["value"] is not None else None,
    )


def log_of(bootstrap: str, topic: str) -> list[LogRow]:
    """Every record of a topic, in the order of partitions and offsets."""
    return [
        LogRow(partition, one.offset, one.timestamp, one.key, tuple((k, v) for k, v in one.headers), one.value)
        for partition, found in sorted(read_topic(bootstrap, topic).items())
        for one in found
    ]


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
