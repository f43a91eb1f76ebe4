"""One commit at a time, where the catalog is a directory of this machine.

Iceberg's Hadoop catalog commits by renaming a file to the name of the next version, if nobody has it yet. On HDFS
that is one step. On a local file system it is two, a look and a rename, and a rename replaces what is there: of two
processes that commit in the same moment one would lose its commit and not know it. Inside one process Iceberg prevents
that; between a writer and maintenance, each in its own process, this does.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kwire.pipeline.lake.file_lock import java_lock, local_path
from kwire.pipeline.session import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Maintenance may put together many files before it commits.
WAIT_S = 1800.0
LOCKS = "_locks"


class _Shared:
    """A lock that the threads of this process share: the first takes it, the last frees it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._users = 0
        self._held = ExitStack()

    @contextmanager
    def use(self, spark: "SparkSession", path: Path) -> Iterator[None]:
        with self._turn:
            if not self._users:
                # Who waits is next. Maintenance commits again and again, and would else have the lock back before a
                # writer that looks now and then has seen it free.
                with java_lock(spark, path.with_suffix(".next"), WAIT_S):
                    self._held.enter_context(java_lock(spark, path, WAIT_S))
            self._users += 1
        try:
            yield
        finally:
            with self._turn:
                self._users -= 1
                if not self._users:
                    self._held.close()


_locks: dict[Path, _Shared] = {}
_registry = threading.Lock()


@contextmanager
def committing(spark: "SparkSession", table: str) -> Iterator[None]:
    """Around every statement that commits to a table of the catalog."""
    root = _catalog_directory(spark)
    if root is None:
        yield
        return
    path = root / LOCKS / f"{table}.lock"
    with _registry:
        lock = _locks.setdefault(path, _Shared())
    with lock.use(spark, path):
        yield


def _catalog_directory(spark: "SparkSession") -> Path | None:
    catalog = f"spark.sql.catalog.{CATALOG}"
    if spark.conf.get(f"{catalog}.type", None) != "hadoop":
        return None
    return local_path(spark.conf.get(f"{catalog}.warehouse", None) or "")
