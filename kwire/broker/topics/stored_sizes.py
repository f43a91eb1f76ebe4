"""How many bytes of records there are, by topic, without opening a log for it.

A log that is open knows its own size; of a parked one it was noted (`Topics.stored_bytes`). The files of all others are
measured once, in a thread and not many at a time: with a hundred thousand topics the sum is whole after some rounds.
"""

import asyncio
import os

from kwire.broker.topics import Topics
from storage.directories import LogDirectories
from storage.files import Files
from storage.store import LogStore

LOG_SUFFIX = ".log"
# A folder takes some twenty microseconds when the system has it in memory, and a read of the disk when not.
FOLDERS_PER_ROUND = 2000
# Adding up a partition takes half a microsecond; after this many the loop gets its turn.
PARTITIONS_PER_TURN = 5000


class StoredSizes:
    """Sizes for those who ask now and then. Made at the start, when all folders are those of earlier runs."""

    def __init__(self, topics: Topics, store: LogStore | LogDirectories, files: Files) -> None:
        self._topics = topics
        self._store = store
        self._files = files
        # Folders made later are those of logs that were opened, so only these are ever measured.
        self._unknown = list(store.partition_folders)
        # Topics beyond the bound that are told apart all the same, in the order in which they were first seen in use.
        self._used: dict[str, None] = {}
        self._measuring: asyncio.Future[None] | None = None

    async def measure(self) -> None:
        """Get to know some more sizes; waits for the disk, until there is nothing left to measure."""
        if self._unknown and (self._measuring is None or self._measuring.done()):
            self._measuring = asyncio.ensure_future(self._measure())
        if self._measuring is not None:
            await asyncio.shield(self._measuring)

    async def _measure(self) -> None:
        some = self._unknown[-FOLDERS_PER_ROUND:]
        del self._unknown[-FOLDERS_PER_ROUND:]
        sizes = await self._topics.lanes.survey.run(lambda: [self._size(folder) for folder in some])
        stored, catalogue = self._topics.stored_bytes, self._topics.catalogue
        for folder, size_bytes in zip(some, sizes, strict=True):
            # What was parked meanwhile is known better; what was deleted is nobody's.
            if folder not in stored and catalogue.find(folder.rpartition("-")[0]) is not None:
                stored[folder] = size_bytes

    def _size(self, folder: str) -> int:
        path = self._store.path_of(folder)
        if path is None:
            return 0
        try:
            names = self._files.listdir(path)
            return sum(self._files.size_of(os.path.join(path, name)) for name in names if name.endswith(LOG_SUFFIX))
        except OSError:
            return 0  # deleted meanwhile, or not readable: whoever opens it will be told

    async def by_topic(self, topics_max: int) -> tuple[dict[str, int], int]:
        """Bytes of each topic, and the sum of those that are not told apart.

        With more topics than `topics_max` only those are told apart that have been in use since the start.
        """
        topics, catalogue = self._topics, self._topics.catalogue
        opened = {(one.topic_name, one.index): one.size_bytes for one in topics.open_partitions}
        if len(catalogue) <= topics_max:
            named = dict.fromkeys(catalogue.names())
        else:
            for name, _ in opened:
                if len(self._used) < topics_max:
                    self._used.setdefault(name)
            self._used = named = {name: None for name in self._used if catalogue.find(name) is not None}
        stored = topics.stored_bytes
        total = sum(stored.values())
        total += sum(size - stored.get(f"{name}-{index}", 0) for (name, index), size in opened.items())
        sizes: dict[str, int] = {}
        done = 0
        for name in named:
            facts = catalogue.find(name)
            for index in range(facts.partition_count if facts is not None else 0):
                size = opened.get((name, index))
                sizes[name] = sizes.get(name, 0) + (stored.get(f"{name}-{index}", 0) if size is None else size)
                done += 1
                if done % PARTITIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
        return sizes, max(0, total - sum(sizes.values()))
