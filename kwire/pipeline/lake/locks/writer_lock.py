"""A lock for the writer of a table. Without it, two concurrent drivers could write the same batch twice.

The lock works only for a warehouse on this machine. On other file systems, the operator must ensure that only one job
writes to a table.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kwire.pipeline.lake.locks.file_lock import TableInUse as TableInUse
from kwire.pipeline.lake.locks.file_lock import java_lock, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The maximum wait for the lock. If a Python process was killed, its Java process still holds the lock for some seconds.
WAIT_S = 60.0


@contextmanager
def sole_writer(spark: "SparkSession", uri: str) -> Iterator[None]:
    """Hold the writer lock of this URI in the block. Raises TableInUse if another process holds the lock for WAIT_S.

    The lock is a file next to the path of the URI, with the suffix `.lock`.
    """
    path = local_path(uri)
    if path is None:
        yield
        return
    with java_lock(spark, path.with_name(f"{path.name}.lock"), WAIT_S):
        yield
