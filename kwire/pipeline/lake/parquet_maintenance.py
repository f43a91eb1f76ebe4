"""Maintenance of plain Parquet tables, beside a writer that goes on.

The writer only ever adds files, under names of its own, and never looks at one again: maintenance may replace those
that are in their places. What it is about to do is noted in one file first, in one step. Then the small files are
deleted and the large one is moved to their directory; the next maintenance finishes what it finds noted after a crash.
In between readers miss the rows of those files, and never see one twice. (Tables that change in one step are what
Iceberg is for.)
"""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kwire.pipeline.lake.files import FileFacts, Files
from kwire.pipeline.lake.parquet import DATE_DIRECTORY, ParquetTable
from kwire.pipeline.lake.writer_lock import sole_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMESTAMP_COLUMN = "kafka_timestamp"
# Fewer small files than this in one directory are left for next time.
FILES_MIN = 5
# What is nearly as large as it should be is left alone.
SMALL_SHARE = 0.75

_UPKEEP, _NOTE, _ASIDE = "_kwire/upkeep", "_kwire/compaction.json", "_compaction"


class ParquetUpkeep:
    """Each step tells in words what it did; nothing if there was nothing to do."""

    def __init__(self, spark: "SparkSession", table: ParquetTable, now: Callable[[], datetime]) -> None:
        self._spark = spark
        self._table = table
        self._files = Files(spark, table.name)
        self._now = now

    def compact(self) -> Iterator[str]:
        """Small files of one directory into large ones."""
        removed = added = 0
        with self._alone():
            for group in small_groups(self._table.data_files(), self._table.file_bytes):
                added += self._replace(group)
                removed += len(group)
        if removed:
            yield f"{removed} files into {added}"

    def retain(self, days: int) -> Iterator[str]:
        """Drop the directories of the days before the last `days`."""
        if self._table.partitioning().date_column != TIMESTAMP_COLUMN:
            yield f"not divided by the day of {TIMESTAMP_COLUMN}: its files do not tell how old they are"
            return
        first_kept = self._now().astimezone(UTC).date() - timedelta(days=days)
        with self._alone():
            old = [name for name in self._files.names("") if is_day_before(name, first_kept)]
            for name in old:
                self._files.delete(name)
        if old:
            yield f"{len(old)} days before {first_kept} dropped"

    def vacuum(self, history: timedelta, orphans: timedelta) -> Iterator[str]:
        """Nothing: plain files have no history, and a batch that was never committed is swept away by the next."""
        yield from ()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else maintains the table meanwhile, and nothing is left of one who died at it.

        Two compactions at once would both replace a file, and its rows would be there twice; one that is finished after
        its day was dropped would bring it back.
        """
        with sole_writer(self._spark, self._files.uri(_UPKEEP)):
            self._finish()
            self._files.delete(_ASIDE)
            yield

    def _replace(self, group: list[FileFacts]) -> int:
        """Write the rows of these files to fewer files, and put those in their place."""
        directory = group[0].path.rpartition("/")[0]
        aside = f"{_ASIDE}/{uuid.uuid4().hex}"
        count = max(1, round(sum(file.size_bytes for file in group) / self._table.file_bytes))
        rows = self._spark.read.schema(self._table.schema()).parquet(*(self._files.uri(file.path) for file in group))
        rows.coalesce(count).write.option("compression", "zstd").parquet(self._files.uri(aside))
        fresh = [file.path for file in self._files.below(aside)]
        moves = {f"{aside}/{name}": f"{directory}/{name}".lstrip("/") for name in fresh}
        self._files.replace(_NOTE, json.dumps({"remove": [file.path for file in group], "move": moves}))
        self._finish()
        return len(fresh)

    def _finish(self) -> None:
        """Do what the note says, or the rest of it."""
        if not self._files.exists(_NOTE):
            return
        note: Any = json.loads(self._files.read(_NOTE))
        for path in note["remove"]:
            self._files.delete(path)
        for path, target in note["move"].items():
            if self._files.exists(path):
                self._files.move(path, target)
        self._files.delete(_NOTE)


def small_groups(files: list[FileFacts], file_bytes: int) -> Iterator[list[FileFacts]]:
    """Files of one directory that are worth being put together."""
    small = sorted(file for file in files if file.size_bytes < SMALL_SHARE * file_bytes)
    for _, group in groupby(small, key=lambda file: file.path.rpartition("/")[0]):
        found = list(group)
        if len(found) >= FILES_MIN:
            yield found


def is_day_before(directory: str, first_kept: date) -> bool:
    """Whether a directory holds a day before this one; rows without a time have a directory that is no day."""
    name, equals, day = directory.partition("=")
    if name != DATE_DIRECTORY or not equals:
        return False
    try:
        return date.fromisoformat(day) < first_kept
    except ValueError:
        return False
