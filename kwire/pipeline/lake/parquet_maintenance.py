"""Maintenance of plain Parquet tables, while the writer runs.

The writer only adds files with unique names and never reads them again. So maintenance may replace files that are in
their final directories.

A compaction writes the large files to a temporary directory, and then, atomically, a plan: the small files to delete
and the large files to move. Then it deletes the small files and moves the large files to their directory. After a
crash, the next maintenance completes the plan. Between the two steps readers do not see the rows of these files, but
they never see a row twice. (Iceberg tables are compacted atomically, without such a gap.)
"""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kwire.pipeline.lake.files import FileFacts, Files
from kwire.pipeline.lake.locks.writer_lock import sole_writer
from kwire.pipeline.lake.parquet import DATE_DIRECTORY, ParquetTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMESTAMP_COLUMN = "kafka_timestamp"
# If a directory has fewer small files than this, they are not compacted.
FILES_MIN = 5
# A file is small if its size is below this share of the target size. Only small files are compacted.
SMALL_SHARE = 0.75

_LOCK, _PLAN, _TEMPORARY = "_kwire/upkeep", "_kwire/compaction.json", "_compaction"


class ParquetMaintenance:
    """Maintenance of a plain Parquet table. Each step yields messages that describe its changes."""

    def __init__(self, spark: "SparkSession", table: ParquetTable, now: Callable[[], datetime]) -> None:
        self._spark = spark
        self._table = table
        self._files = Files(spark, table.name)
        self._now = now

    def compact(self) -> Iterator[str]:
        """Compact the small files of each directory into large ones."""
        removed = added = 0
        with self._locked():
            for group in small_groups(self._table.data_files(), self._table.file_bytes):
                added += self._replace(group)
                removed += len(group)
        if removed:
            yield f"{removed} files compacted into {added}"

    def retain(self, days: int) -> Iterator[str]:
        """Delete the directories of all days (in UTC) that are more than `days` days ago."""
        if self._table.partitioning().date_column != TIMESTAMP_COLUMN:
            yield f"nothing dropped: the age of files is unknown without partitions by {TIMESTAMP_COLUMN}"
            return
        first_kept = self._now().astimezone(UTC).date() - timedelta(days=days)
        with self._locked():
            old = [name for name in self._files.names("") if is_day_before(name, first_kept)]
            for name in old:
                self._files.delete(name)
        if old:
            yield f"{len(old)} days before {first_kept} dropped"

    def vacuum(self, history: timedelta, orphans: timedelta) -> Iterator[str]:
        """Do nothing. Plain files have no history, and the writer deletes the files of an uncommitted batch itself."""
        yield from ()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Acquire the maintenance lock, complete the plan of a maintenance that was killed, then run the block.

        The lock is needed because two concurrent compactions could both replace the same file, which would duplicate
        its rows. The plan is completed first, because a later completion could move files into the directory of a day
        that the block has dropped.
        """
        with sole_writer(self._spark, self._files.uri(_LOCK)):
            self._finish()
            self._files.delete(_TEMPORARY)
            yield

    def _replace(self, group: list[FileFacts]) -> int:
        """Replace these files by fewer files with the same rows. Return the number of new files."""
        directory = group[0].path.rpartition("/")[0]
        temporary = f"{_TEMPORARY}/{uuid.uuid4().hex}"
        count = max(1, round(sum(file.size_bytes for file in group) / self._table.file_bytes))
        rows = self._spark.read.schema(self._table.schema()).parquet(*(self._files.uri(file.path) for file in group))
        rows.coalesce(count).write.option("compression", "zstd").parquet(self._files.uri(temporary))
        fresh = [file.path for file in self._files.below(temporary)]
        moves = {f"{temporary}/{name}": f"{directory}/{name}".lstrip("/") for name in fresh}
        self._files.replace(_PLAN, json.dumps({"remove": [file.path for file in group], "move": moves}))
        self._finish()
        return len(fresh)

    def _finish(self) -> None:
        """Execute the remaining steps of the plan, if there is a plan."""
        if not self._files.exists(_PLAN):
            return
        plan: Any = json.loads(self._files.read(_PLAN))
        for path in plan["remove"]:
            self._files.delete(path)
        for path, target in plan["move"].items():
            if self._files.exists(path):
                self._files.move(path, target)
        self._files.delete(_PLAN)


def small_groups(files: list[FileFacts], file_bytes: int) -> Iterator[list[FileFacts]]:
    """Yield the small files of each directory that has at least FILES_MIN of them."""
    small = sorted(file for file in files if file.size_bytes < SMALL_SHARE * file_bytes)
    for _, group in groupby(small, key=lambda file: file.path.rpartition("/")[0]):
        found = list(group)
        if len(found) >= FILES_MIN:
            yield found


def is_day_before(directory: str, first_kept: date) -> bool:
    """Return whether a directory has the rows of a day before this date.

    Return False for the directory of rows without a timestamp, whose name does not contain a date.
    """
    name, equals, day = directory.partition("=")
    if name != DATE_DIRECTORY or not equals:
        return False
    try:
        return date.fromisoformat(day) < first_kept
    except ValueError:
        return False
