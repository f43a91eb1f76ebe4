"""File locks held by the Java process of Spark.

The Java process holds the locks because it makes the commits, and because it may run for some seconds after the Python
process was killed. The kernel releases a lock when the process that holds it ends. File locks work only between
processes of one machine.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kwire.client.backoff import Backoff

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELAY_S_MAX = 0.5
FILE_SCHEME = "file://"

# The locks of this process. They are tracked here because the kernel allows a process to lock a file twice, and then
# releases the lock as soon as the process closes the file once.
_held: set[Path] = set()
_registry = threading.Lock()


class TableInUse(ValueError):
    """Another job is using the table."""


def local_path(uri: str) -> Path | None:
    """Return the path of a file: URI, or None if the URI belongs to another file system."""
    return Path(uri.removeprefix(FILE_SCHEME)) if uri.startswith(FILE_SCHEME) else None


@contextmanager
def java_lock(spark: "SparkSession", path: Path, wait_s: float) -> Iterator[None]:
    """Wait at most `wait_s` for the lock of this file, and hold the lock in the block.

    Raises TableInUse if another process does not release the lock in this time, or if this process already holds it.
    """
    with _registry:
        if path in _held:
            raise TableInUse(f"{path} is already locked by this process")
        _held.add(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        java: Any = spark._jvm
        file = java.java.io.RandomAccessFile(str(path), "rw")
        try:
            _lock(file.getChannel(), path, wait_s)
            yield
        finally:
            file.close()
    finally:
        with _registry:
            _held.remove(path)


def _lock(channel: Any, path: Path, wait_s: float) -> None:
    # The kernel does not notify processes when a file lock is released, so the lock is polled.
    backoff, deadline = Backoff(delay_s_max=DELAY_S_MAX), time.monotonic() + wait_s
    while channel.tryLock() is None:
        delay_s = backoff.next_delay_s()
        if time.monotonic() + delay_s > deadline:
            raise TableInUse(f"{path} is locked by another job: wait for it to end, or stop it")
        time.sleep(delay_s)
