"""How much the logs hold that nobody has opened since the start: their files are measured once, when first asked for.

A log that is not open does not change, so once is enough; a log that is open knows its own size.
"""

import asyncio
import os

from kwire.broker.partition import Partition
from kwire.broker.topics import Topics
from storage.files import Files
from storage.store import partition_folder

LOG_SUFFIX = ".log"


class StoredSizes:
    """Fills in `Partition.stored_bytes` of what was there at the start. `folders` are those that existed then."""

    def __init__(self, topics: Topics, data_dir: str, folders: frozenset[str], files: Files) -> None:
        self._files = files
        # Topics made later have no files that are not open, so only those of now are ever looked at.
        self._unknown = [
            (partition, os.path.join(data_dir, partition_folder(topic.name, partition.index)))
            for topic in topics
            for partition in topic.partitions
            if not partition.is_open and partition_folder(topic.name, partition.index) in folders
        ]
        self._measuring: asyncio.Future[None] | None = None

    async def known(self) -> None:
        """Returns when every partition knows its size; waits for the disk the first time only."""
        if self._unknown and self._measuring is None:
            self._measuring = asyncio.ensure_future(self._measure())
        if self._measuring is not None:
            await asyncio.shield(self._measuring)

    async def _measure(self) -> None:
        unknown, self._unknown = self._unknown, []
        sizes = await asyncio.to_thread(self._sizes, unknown)
        for (partition, _), size_bytes in zip(unknown, sizes, strict=True):
            partition.stored_bytes = size_bytes

    def _sizes(self, unknown: list[tuple[Partition, str]]) -> list[int]:
        return [self._size(path) for _, path in unknown]

    def _size(self, path: str) -> int:
        try:
            names = self._files.listdir(path)
            return sum(self._files.size_of(os.path.join(path, name)) for name in names if name.endswith(LOG_SUFFIX))
        except OSError:
            return 0  # deleted meanwhile, or not readable: whoever opens it will be told
