"""Locks on files, held by the Java process: it is the one that commits, and it may outlive a Python process that was
killed by a moment in which it still can. The kernel frees a lock when its process ends, however it ends.

File locks are known to this machine only.
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

# What this process holds. The kernel does not say: a process may lock a file again, and loses the lock when it closes
# the file once.
_held: set[Path] = set()
_registry = threading.Lock()


class TableInUse(ValueError):
    """Another job is at work on the table."""


def local_path(uri: str) -> Path | None:
    """The place of a file: URI on this machine; None for every other file system."""
    return Path(uri.removeprefix(FILE_SCHEME)) if uri.startswith(FILE_SCHEME) else None


@contextmanager
def java_lock(spark: "SparkSession", path: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock of this file; TableInUse if somebody else keeps it for so long, or this process has it already."""
    with _registry:
        if path in _held:
            raise TableInUse(f"this process holds {path} already")
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
    # Nobody tells when a file lock is free: it has to be tried.
    backoff, deadline = Backoff(delay_s_max=DELAY_S_MAX), time.monotonic() + wait_s
    while channel.tryLock() is None:
        delay_s = backoff.next_delay_s()
        if time.monotonic() + delay_s > deadline:
            raise TableInUse(f"another job holds {path}")
        time.sleep(delay_s)
