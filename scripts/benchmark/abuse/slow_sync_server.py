"""Runs kwire with syncs that take one second longer: `python -m benchmark.abuse.slow_sync_server serve …`."""

import runpy
import time
from collections.abc import Callable

from storage.disk.files import Files

SYNC_SECONDS = 1.0


def slowed(sync: Callable[[Files, int], None]) -> Callable[[Files, int], None]:
    def slow(files: Files, fd: int) -> None:
        time.sleep(SYNC_SECONDS)
        sync(files, fd)

    return slow


if __name__ == "__main__":
    Files.fsync, Files.fdatasync = slowed(Files.fsync), slowed(Files.fdatasync)  # type: ignore[method-assign, assignment]
    runpy.run_module("kwire", run_name="__main__")
