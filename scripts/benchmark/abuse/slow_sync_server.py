"""kwire on a disk that takes a second longer for each sync: `python -m benchmark.abuse.slow_sync_server serve …`."""

import os
import runpy
import time
from collections.abc import Callable

SYNC_SECONDS = 1.0


def slowed(sync: Callable[[int], None]) -> Callable[[int], None]:
    def slow(fd: int) -> None:
        time.sleep(SYNC_SECONDS)
        sync(fd)

    return slow


if __name__ == "__main__":
    os.fsync, os.fdatasync = slowed(os.fsync), slowed(os.fdatasync)  # type: ignore[assignment]
    runpy.run_module("kwire", run_name="__main__")
