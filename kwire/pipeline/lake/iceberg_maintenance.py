"""Maintenance of Iceberg tables with Iceberg's procedures, while the writer runs.

Every step consists of normal Iceberg commits. A commit has no effect if the writer has changed the same files in the
meantime. Appends never conflict with maintenance, but upserts can. After a conflict, maintenance and the writer both
retry a bounded number of times.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from kwire.pipeline.lake.commit_conflicts import is_commit_conflict
from kwire.pipeline.lake.iceberg import IcebergTable
from kwire.pipeline.session import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

TIMESTAMP_COLUMN = "kafka_timestamp"
ATTEMPTS_MAX = 5
# If a partition has fewer small files than this, they are not compacted.
FILES_MIN = 5
# The maximum number of files that one pass rewrites. If the catalog is a local directory, the writer waits for the
# commit lock during the complete pass, so a pass must take less than commit_lock.WAIT_S. A small machine needs about
# ten minutes for this many files, if their size is only a little below the target size.
FILES_PER_PASS_MAX = 500
PASSES_MAX = 1000
# The maximum number of commits in a pass. With other catalogs, the writer may commit during a pass. Then a conflict
# makes one of the pass's commits fail, and the others succeed.
COMMITS_MAX = 10
# A data file is rewritten if at least this many delete files refer to it.
DELETE_FILES_MIN = 3
# The number of snapshots that are always kept: the last one, and the one before it, which a reader or a commit may
# still use.
SNAPSHOTS_KEPT_MIN = 2

Answer = TypeVar("Answer")


class IcebergMaintenance:
    """Maintenance of an Iceberg table. Each step yields messages that describe its changes."""

    def __init__(
        self,
        spark: "SparkSession",
        table: IcebergTable,
        now: Callable[[], datetime],
        files_per_pass: int = FILES_PER_PASS_MAX,
    ) -> None:
        self._spark = spark
        self._table = table
        self._now = now
        self._files_per_pass = files_per_pass

    def compact(self) -> Iterator[str]:
        """Compact small files in several passes, so that a waiting writer can commit between two passes."""
        options = {
            "min-input-files": FILES_MIN,
            "delete-file-threshold": DELETE_FILES_MIN,
            "max-files-to-rewrite": self._files_per_pass,
            "partial-progress.enabled": "true",
            "partial-progress.max-commits": COMMITS_MAX,
            "remove-dangling-deletes": "true",
        }
        pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
        removed = added = 0
        for _ in range(PASSES_MAX):
            done = self._with_retries(lambda: self._call("rewrite_data_files", f"options => map({pairs})"))
            if done is None:
                yield "compaction stopped after repeated conflicts with the writer; the next maintenance continues"
                break
            removed += done["rewritten_data_files_count"]
            added += done["added_data_files_count"]
            if done["failed_data_files_count"]:
                yield f"{done['failed_data_files_count']} files not compacted because of conflicts with the writer"
            if done["rewritten_data_files_count"] < self._files_per_pass:
                break
        if removed:
            yield f"{removed} files compacted into {added}"
        manifests = self._with_retries(lambda: self._call("rewrite_manifests", "use_caching => false"))
        if manifests is not None and manifests["rewritten_manifests_count"]:
            before, after = manifests["rewritten_manifests_count"], manifests["added_manifests_count"]
            yield f"{before} manifests rewritten into {after}"

    def retain(self, days: int) -> Iterator[str]:
        """Delete the rows of all days (in UTC) that are more than `days` days ago.

        If the table is partitioned by day, complete files are dropped, and none is rewritten.
        """
        if self._table.properties().get("kwire.lake.mode") == "upsert":
            yield "nothing dropped: the table has one row per key and no history"
            return
        if TIMESTAMP_COLUMN not in {column.name for column in self._table.columns()}:
            yield f"nothing dropped: the table has no column {TIMESTAMP_COLUMN}"
            return
        first_kept = self._now().astimezone(UTC).date() - timedelta(days=days)
        condition = f"{TIMESTAMP_COLUMN} < TIMESTAMP '{first_kept.isoformat()} 00:00:00Z'"
        rows = self._spark.table(self._table.name).where(condition).count()
        if not rows:
            return
        done = self._with_retries(lambda: self._delete(condition))
        yield (
            f"{rows} rows before {first_kept} dropped"
            if done is not None
            else "nothing dropped because of conflicts with the writer"
        )

    def vacuum(self, history: timedelta, orphans: timedelta) -> Iterator[str]:
        """Delete snapshots older than `history`, and files older than `orphans` that no snapshot refers to.

        First, batch marks are copied to the table properties, because the writer still needs them.
        """
        self._table.keep_marks()
        older = f"older_than => TIMESTAMP '{self._before(history)}', retain_last => {SNAPSHOTS_KEPT_MIN}"
        expired = self._call("expire_snapshots", older)
        deleted = sum(value for key, value in expired.asDict().items() if key.startswith("deleted_") and value)
        if deleted:
            yield f"{deleted} files of old snapshots deleted"
        # Only old files are deleted. A new file without a snapshot may belong to a batch that is not committed yet.
        found = self._spark.sql(
            f"CALL {CATALOG}.system.remove_orphan_files(table => '{self._table.name}', "
            f"older_than => TIMESTAMP '{self._before(orphans)}')"
        ).collect()
        if found:
            yield f"{len(found)} orphan files deleted"

    def _delete(self, condition: str) -> bool:
        with self._table.commit_lock():
            self._spark.sql(f"DELETE FROM {self._table.name} WHERE {condition}")
        return True

    def _call(self, procedure: str, arguments: str) -> "Row":
        statement = f"CALL {CATALOG}.system.{procedure}(table => '{self._table.name}', {arguments})"
        with self._table.commit_lock():
            return self._spark.sql(statement).collect()[0]

    def _before(self, age: timedelta) -> str:
        return (self._now().astimezone(UTC) - age).strftime("%Y-%m-%d %H:%M:%S.%fZ")

    def _with_retries(self, step: Callable[[], Answer]) -> Answer | None:
        """Run a step, and repeat it after a conflict. Return None if all ATTEMPTS_MAX attempts had a conflict."""
        for _ in range(ATTEMPTS_MAX):
            try:
                return step()
            except Exception as error:
                if not is_commit_conflict(error):
                    raise
        return None
