"""The sizes of topics in bytes, found without opening their logs.

The size of an open log comes from the log itself, and the size of a parked log from `Topics.stored_bytes`. The files of
all other logs are measured in a thread, until that succeeds once. Each call of `measure` measures at most
FOLDERS_PER_ROUND folders, so with a hundred thousand folders the sum is complete only after 50 calls.
"""

import asyncio
import os

from kwire.broker.topics.topics import Topics
from storage.data_directory.directories import LogDirectories
from storage.data_directory.store import LogStore
from storage.disk.files import Files

LOG_SUFFIX = ".log"
# Measuring a folder takes about twenty microseconds if the operating system has it in memory. Otherwise it takes a disk
# read.
FOLDERS_PER_ROUND = 2000
# Adding the size of a partition takes half a microsecond. After this many partitions, the event loop runs other work.
PARTITIONS_PER_CHUNK = 5000


def folder_size_bytes(files: Files, path: str) -> int | None:
    """Return the size of the segment files in a partition's folder; None if the folder cannot be read. Call this in a
    thread."""
    try:
        return sum(files.size_of(os.path.join(path, name)) for name in files.listdir(path) if name.endswith(LOG_SUFFIX))
    except OSError:
        return None


class StoredSizes:
    """The sizes of topics, for metrics. It must be created at the start, when all folders are from earlier runs."""

    def __init__(self, topics: Topics, store: LogStore | LogDirectories, files: Files) -> None:
        self._topics = topics
        self._store = store
        self._files = files
        # The folders that have not been measured yet. Later folders need not be measured: their logs were opened in
        # this run, so their sizes are known.
        self._unknown = list(store.partition_folders)
        # The topics that are reported by name if there are more than `topics_max`, in the order of their first use.
        self._used: dict[str, None] = {}
        self._measuring: asyncio.Future[None] | None = None

    async def measure(self) -> None:
        """Measure up to FOLDERS_PER_ROUND folders that have not been measured yet, and wait for the result."""
        if self._unknown and (self._measuring is None or self._measuring.done()):
            self._measuring = asyncio.ensure_future(self._measure())
        if self._measuring is not None:
            await asyncio.shield(self._measuring)

    async def _measure(self) -> None:
        some = self._unknown[-FOLDERS_PER_ROUND:]
        del self._unknown[-FOLDERS_PER_ROUND:]
        sizes = await self._topics.lanes.survey.run(lambda: [self._size(folder) for folder in some])
        stored, catalogue = self._topics.stored_bytes, self._topics.catalogue
        unreadable: list[str] = []
        for folder, size_bytes in zip(some, sizes, strict=True):
            # If the log was parked during the measurement, `stored` already has a newer size. If the topic was deleted,
            # the size is not needed.
            if folder not in stored and catalogue.find(folder.rpartition("-")[0]) is not None:
                if size_bytes is None:
                    unreadable.append(folder)
                else:
                    stored[folder] = size_bytes
        # These folders are measured again after all others.
        self._unknown[:0] = unreadable

    def _size(self, folder: str) -> int | None:
        path = self._store.path_of(folder)
        return 0 if path is None else folder_size_bytes(self._files, path)

    async def by_topic(self, topics_max: int) -> tuple[dict[str, int], int]:
        """Return the size in bytes of each listed topic, and the sum of the sizes of all other topics.

        All topics are listed if there are at most `topics_max`. Otherwise up to `topics_max` topics that have been used
        since the start are listed.
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
                if done % PARTITIONS_PER_CHUNK == 0:
                    await asyncio.sleep(0)
        return sizes, max(0, total - sum(sizes.values()))
