"""Warns in the server's log when a disk is nearly full, and reports when it has space again."""

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from kwire.concurrency.disk_lanes import LaneClosed
from storage.data_directory.directories import LogDirectories
from storage.errors import StorageError

if TYPE_CHECKING:
    from kwire.concurrency.disk_lanes import Lane

log = logging.getLogger("kwire.broker")

CHECK_SECONDS = 30.0
# A disk is nearly full if less than this part of it, and less than this number of bytes, is free.
FREE_PART_MIN = 0.05
FREE_BYTES_MIN = 10 * 1024**3
# It has space again above this multiple of the limit, so that the log does not report every small change.
SPACE_AGAIN_FACTOR = 1.25
# While a disk stays nearly full, the warning is repeated at this interval.
REPEAT_SECONDS = 3600.0

_MIB, _GIB = 1024**2, 1024**3


class NearlyFullDisks:
    """Decides what is logged about the free space of directories. It reads no clock and no disk."""

    def __init__(self) -> None:
        # When the last warning about a directory was logged.
        self._warned_at: dict[str, float] = {}

    def check(self, directory: str, size_bytes: int, free_bytes: int, now: float) -> None:
        """Log a warning if the disk of the directory is nearly full, or that it no longer is."""
        limit_bytes = min(size_bytes * FREE_PART_MIN, FREE_BYTES_MIN)
        warned_at = self._warned_at.get(directory)
        if free_bytes < limit_bytes:
            if warned_at is None or now - warned_at >= REPEAT_SECONDS:
                self._warned_at[directory] = now
                log.warning(
                    "the disk of %s is nearly full: %s of %s are free; shorten the retention of topics, delete topics, "
                    "or use a larger disk",
                    directory,
                    _size(free_bytes),
                    _size(size_bytes),
                )
        elif warned_at is not None and free_bytes > limit_bytes * SPACE_AGAIN_FACTOR:
            del self._warned_at[directory]
            log.info("the disk of %s has space again: %s are free", directory, _size(free_bytes))


class DiskSpaceWatch:
    """Checks the free space of all data directories every CHECK_SECONDS, in a disk lane."""

    def __init__(self, store: LogDirectories, lane: "Lane") -> None:
        self._store = store
        self._lane = lane
        self._disks = NearlyFullDisks()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            for directory in self._store.data_dirs:
                # A directory that cannot be read is reported by the code that uses it.
                with suppress(StorageError, LaneClosed):
                    size_bytes, free_bytes = await self._lane.run(self._store.space, directory)
                    self._disks.check(directory, size_bytes, free_bytes, time.monotonic())
            await asyncio.sleep(CHECK_SECONDS)


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB else f"{size_bytes / _MIB:.0f} MiB"
