"""The space on the volumes of the data directories, for metrics."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from kwire.concurrency.disk_lanes import Lane
from storage.data_directory.directories import LogDirectories
from storage.errors import StorageError

# The maximum time that a scrape waits for a disk that does not answer. It then gets the previous values.
WAIT_SECONDS = 1.0


class VolumeSpace(NamedTuple):
    """The size of a volume, and the bytes that the server may still use."""

    size_bytes: int
    free_bytes: int

    @property
    def used_bytes(self) -> int:
        """The bytes that the server cannot use, including those that the file system reserves for root."""
        return self.size_bytes - self.free_bytes


class DiskSpace:
    """Measures the volumes in a thread. Use it only in the event loop's thread."""

    def __init__(self, store: LogDirectories, lane: Lane) -> None:
        self._store = store
        self._lane = lane
        self._measuring: asyncio.Future[None] | None = None
        self._known: Mapping[str, VolumeSpace] = {}

    async def measure(self) -> Mapping[str, VolumeSpace]:
        """Return the space of each data directory that is online. Waits at most WAIT_SECONDS for the disk."""
        if self._measuring is None or self._measuring.done():
            self._measuring = asyncio.ensure_future(self._measure())
        await asyncio.wait((self._measuring,), timeout=WAIT_SECONDS)
        return self._known

    async def _measure(self) -> None:
        self._known = await self._lane.run(self._spaces)

    def _spaces(self) -> dict[str, VolumeSpace]:
        """Runs in a thread of the lane."""
        spaces: dict[str, VolumeSpace] = {}
        for path in self._store.configured_dirs:
            if path not in self._store.offline_dirs:
                try:
                    spaces[path] = VolumeSpace(*self._store.space(path))
                except StorageError:
                    continue  # the volume is gone; it has no series then
        return spaces
