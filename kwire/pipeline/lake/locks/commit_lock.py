"""A lock for commits to a table, if the catalog is a local directory.

Iceberg's Hadoop catalog commits by renaming a file to the name of the next version. The rename must fail if that name
exists. On HDFS this is atomic. On a local file system Iceberg checks the name first, and then the rename replaces an
existing file. So if two processes commit at the same time, one of the commits would be lost without an error. Within
one process, Iceberg prevents this. Between the processes of a writer and of maintenance, this lock prevents it.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kwire.pipeline.lake.locks.file_lock import java_lock, local_path
from kwire.pipeline.session import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The maximum wait for the lock. Maintenance holds the lock during a pass of compaction, which may take many minutes.
WAIT_S = 1800.0
LOCKS = "_locks"


class _ProcessLock:
    """A file lock that the threads of this process share. The first user acquires it, the last user releases it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._users = 0
        self._held = ExitStack()

    @contextmanager
    def use(self, spark: "SparkSession", path: Path) -> Iterator[None]:
        with self._mutex:
            if not self._users:
                # Processes poll for the lock. Maintenance commits repeatedly, so without the second lock (.next) it
                # would often acquire the lock again before a waiting writer polls. A waiting process holds the second
                # lock, and so it is the next one to acquire the first.
                with java_lock(spark, path.with_suffix(".next"), WAIT_S):
                    self._held.enter_context(java_lock(spark, path, WAIT_S))
            self._users += 1
        try:
            yield
        finally:
            with self._mutex:
                self._users -= 1
                if not self._users:
                    self._held.close()


_locks: dict[Path, _ProcessLock] = {}
_registry = threading.Lock()


@contextmanager
def hold_commit_lock(spark: "SparkSession", table: str) -> Iterator[None]:
    """Hold the commit lock of a table. Every statement that commits to the table needs it."""
    root = _catalog_directory(spark)
    if root is None:
        yield
        return
    path = root / LOCKS / f"{table}.lock"
    with _registry:
        lock = _locks.setdefault(path, _ProcessLock())
    with lock.use(spark, path):
        yield


def _catalog_directory(spark: "SparkSession") -> Path | None:
    catalog = f"spark.sql.catalog.{CATALOG}"
    if spark.conf.get(f"{catalog}.type", None) != "hadoop":
        return None
    return local_path(spark.conf.get(f"{catalog}.warehouse", None) or "")
