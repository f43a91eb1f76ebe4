"""Maintenance of Iceberg tables, by the procedures that Iceberg has for it, beside a writer that goes on.

Every step is a commit like any other: it replaces what it has read or, if the writer was there first, nothing. An
append never stands in the way. Only upserts do, and then it is maintenance that gives way and tries again, a bounded
number of times; the writer does the same from its side.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from kwire.pipeline.lake.conflicts import is_conflict
from kwire.pipeline.lake.iceberg import IcebergTable
from kwire.pipeline.session import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

TIMESTAMP_COLUMN = "kafka_timestamp"
ATTEMPTS_MAX = 5
# Fewer small files than this in one partition are left for next time.
FILES_MIN = 5
# Files of one turn. Where turns are taken, the writer waits for a whole one, for less than commit_lock.WAIT_S: so many
# files that are nearly large enough are some ten minutes' work for a small machine.
FILES_PER_TURN_MAX = 500
TURNS_MAX = 1000
# A turn is committed in so many pieces at most: where none are taken, the writer can spoil one of them, not all.
COMMITS_MAX = 10
# A data file is written anew once so many files name rows of it that are replaced.
DELETE_FILES_MIN = 3
# A snapshot that somebody may just be reading, or about to commit on, is not the last but one.
SNAPSHOTS_KEPT_MIN = 2

Answer = TypeVar("Answer")


class IcebergUpkeep:
    """Each step tells in words what it did; nothing if there was nothing to do."""

    def __init__(
        self,
        spark: "SparkSession",
        table: IcebergTable,
        now: Callable[[], datetime],
        files_per_turn: int = FILES_PER_TURN_MAX,
    ) -> None:
        self._spark = spark
        self._table = table
        self._now = now
        self._files_per_turn = files_per_turn

    def compact(self) -> Iterator[str]:
        """Small files into large ones, many turns of some files each: a writer that has to wait gets the next one."""
        options = {
            "min-input-files": FILES_MIN,
            "delete-file-threshold": DELETE_FILES_MIN,
            "max-files-to-rewrite": self._files_per_turn,
            "partial-progress.enabled": "true",
            "partial-progress.max-commits": COMMITS_MAX,
            "remove-dangling-deletes": "true",
        }
        pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
        removed = added = 0
        for _ in range(TURNS_MAX):
            done = self._patiently(lambda: self._call("rewrite_data_files", f"options => map({pairs})"))
            if done is None:
                yield "the writer was always first: some files are left for next time"
                break
            removed += done["rewritten_data_files_count"]
            added += done["added_data_files_count"]
            if done["failed_data_files_count"]:
                yield f"{done['failed_data_files_count']} files left to the writer for this time"
            if done["rewritten_data_files_count"] < self._files_per_turn:
                break
        if removed:
            yield f"{removed} files into {added}"
        manifests = self._patiently(lambda: self._call("rewrite_manifests", "use_caching => false"))
        if manifests is not None and manifests["rewritten_manifests_count"]:
            yield f"{manifests['rewritten_manifests_count']} manifests into {manifests['added_manifests_count']}"

    def retain(self, days: int) -> Iterator[str]:
        """Drop the days before the last `days`: whole ones, which are whole files where a table is divided by day."""
        if self._table.properties().get("kwire.lake.mode") == "upsert":
            yield "kept by key: it holds what is, not what was, and has no days to drop"
            return
        if TIMESTAMP_COLUMN not in {column.name for column in self._table.columns()}:
            yield f"has no {TIMESTAMP_COLUMN} to tell how old a row is"
            return
        first_kept = self._now().astimezone(UTC).date() - timedelta(days=days)
        condition = f"{TIMESTAMP_COLUMN} < TIMESTAMP '{first_kept.isoformat()} 00:00:00Z'"
        rows = self._spark.table(self._table.name).where(condition).count()
        if not rows:
            return
        done = self._patiently(lambda: self._delete(condition))
        yield f"{rows} rows before {first_kept} dropped" if done is not None else "the writer was always first: kept"

    def vacuum(self, history: timedelta, orphans: timedelta) -> Iterator[str]:
        """Forget how the table was before `history`, and delete files that it does not know and that are `orphans` old.

        Marks are noted first: the writer must know what it has committed however long ago that was.
        """
        self._table.keep_marks()
        older = f"older_than => TIMESTAMP '{self._before(history)}', retain_last => {SNAPSHOTS_KEPT_MIN}"
        expired = self._call("expire_snapshots", older)
        deleted = sum(value for key, value in expired.asDict().items() if key.startswith("deleted_") and value)
        if deleted:
            yield f"{deleted} files of old snapshots deleted"
        # A file is written before it is committed: what is young may belong to a batch on its way.
        found = self._spark.sql(
            f"CALL {CATALOG}.system.remove_orphan_files(table => '{self._table.name}', "
            f"older_than => TIMESTAMP '{self._before(orphans)}')"
        ).collect()
        if found:
            yield f"{len(found)} files that belong to nothing deleted"

    def _delete(self, condition: str) -> bool:
        with self._table.committing():
            self._spark.sql(f"DELETE FROM {self._table.name} WHERE {condition}")
        return True

    def _call(self, procedure: str, arguments: str) -> "Row":
        statement = f"CALL {CATALOG}.system.{procedure}(table => '{self._table.name}', {arguments})"
        with self._table.committing():
            return self._spark.sql(statement).collect()[0]

    def _before(self, age: timedelta) -> str:
        return (self._now().astimezone(UTC) - age).strftime("%Y-%m-%d %H:%M:%S.%fZ")

    def _patiently(self, step: Callable[[], Answer]) -> Answer | None:
        """None if the writer was first every time."""
        for _ in range(ATTEMPTS_MAX):
            try:
                return step()
            except Exception as error:
                if not is_conflict(error):
                    raise
        return None
