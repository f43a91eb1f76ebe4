"""One writer for each table: two drivers at once would both find that a batch is not there yet.

Where the warehouse is on another file system than this machine's, it is up to whoever starts the job to start it once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kwire.pipeline.lake.file_lock import TableInUse as TableInUse
from kwire.pipeline.lake.file_lock import java_lock, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A Java process whose Python process was killed ends within seconds.
WAIT_S = 60.0


@contextmanager
def sole_writer(spark: "SparkSession", uri: str) -> Iterator[None]:
    """Be the one who writes what this URI stands for; TableInUse if another process is. The lock stands beside it."""
    path = local_path(uri)
    if path is None:
        yield
        return
    with java_lock(spark, path.with_name(f"{path.name}.lock"), WAIT_S):
        yield
