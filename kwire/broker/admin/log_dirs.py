"""Describes the log directories for DescribeLogDirs: partitions and their sizes, and the space of the volumes.

The sizes of logs that are open, or were open since the start, are in memory. The sizes of other logs are measured here
and stored in `Topics.stored_bytes`. A thread measures at most FOLDERS_PER_JOB folders at a time.
"""

import asyncio
import os
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from kwire.broker.maintenance.relocation import Relocations
from kwire.broker.topics.stored_sizes import folder_size_bytes
from kwire.broker.topics.topics import Topics
from storage.data_directory.directories import LogDirectories
from storage.data_directory.partition_metadata import partition_folder
from storage.disk.files import Files
from storage.errors import StorageError

# Finding the directory and size of a partition takes two microseconds if the size is in memory. After this many
# partitions, the event loop runs other work.
PARTITIONS_PER_CHUNK = 500
# Measuring a folder takes about twenty microseconds if the operating system has it in memory.
FOLDERS_PER_JOB = 500


class ReplicaFacts(NamedTuple):
    """A replica in a log directory.

    For a future replica, `offset_lag` is the number of offsets up to the log end offset that are not copied yet.
    Otherwise it is 0.
    """

    partition_index: int
    size_bytes: int
    offset_lag: int = 0
    is_future: bool = False


class LogDirFacts(Struct):
    """A log directory. If it is offline, `error` is the reason."""

    path: str
    error: str | None = None
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False
    topics: dict[str, list[ReplicaFacts]] = field(default_factory=dict)


class LogDirs:
    """Describes the log directories. Use it only in the event loop's thread."""

    def __init__(self, topics: Topics, store: LogDirectories, relocations: Relocations, files: Files) -> None:
        self._topics = topics
        self._store = store
        self._relocations = relocations
        self._files = files

    async def describe(self, wanted: Mapping[str, Collection[int]] | None) -> list[LogDirFacts]:
        """Return all directories with the wanted partitions. If `wanted` is None, all partitions are included."""
        found = {path: self._directory(path) for path in self._store.configured_dirs}
        await self._topics.lanes.survey.run(self._measure_volumes, list(found.values()))
        opened = {partition_folder(one.topic_name, one.index): one.size_bytes for one in self._topics.open_partitions}
        unknown: list[tuple[str, str, int, str]] = []
        for number, (name, topic_id, index) in enumerate(self._partitions(wanted), start=1):
            if number % PARTITIONS_PER_CHUNK == 0:
                await asyncio.sleep(0)
            folder = partition_folder(name, index)
            try:
                place = self._store.assign_directory(folder, topic_id)
            except StorageError:
                continue  # the partition may be in an offline directory
            size_bytes = opened[folder] if folder in opened else self._known_size(folder)
            if size_bytes is None:
                unknown.append((place, name, index, folder))
            else:
                found[place].topics.setdefault(name, []).append(ReplicaFacts(index, size_bytes))
        for at in range(0, len(unknown), FOLDERS_PER_JOB):
            await self._measure(unknown[at : at + FOLDERS_PER_JOB], found)
        for future in self._relocations.futures():
            name, index = future.topic_name, future.partition_index
            if wanted is None or index in wanted.get(name, ()):
                facts = ReplicaFacts(index, future.size_bytes, future.offset_lag, is_future=True)
                found[future.data_dir].topics.setdefault(name, []).append(facts)
        return list(found.values())

    def _directory(self, path: str) -> LogDirFacts:
        error = self._store.offline_dirs.get(path)
        is_cordoned = path in self._store.cordoned_dirs
        return LogDirFacts(path, None if error is None else str(error), is_cordoned=is_cordoned)

    def _measure_volumes(self, directories: list[LogDirFacts]) -> None:
        """Set the total and usable bytes of each directory's volume. Runs in a thread."""
        for one in directories:
            if one.error is None:
                try:
                    one.total_bytes, one.usable_bytes = self._store.space(one.path)
                except StorageError as error:
                    one.error = str(error)

    def _partitions(self, wanted: Mapping[str, Collection[int]] | None) -> Iterator[tuple[str, bytes, int]]:
        """Yield the wanted partitions that exist. Topics that are deleted during the iteration are skipped."""
        names = self._topics.catalogue.names() if wanted is None else wanted
        for name in names:
            facts = self._topics.catalogue.find(name)
            if facts is None:
                continue
            for index in range(facts.partition_count) if wanted is None else sorted(wanted[name]):
                if 0 <= index < facts.partition_count:
                    yield name, facts.topic_id, index

    def _known_size(self, folder: str) -> int | None:
        if self._store.path_of(folder) is None:
            return 0
        return self._topics.stored_bytes.get(folder)

    async def _measure(self, some: list[tuple[str, str, int, str]], found: dict[str, LogDirFacts]) -> None:
        paths = [os.path.join(place, folder) for place, _, _, folder in some]
        sizes = await self._topics.lanes.survey.run(lambda: [folder_size_bytes(self._files, path) for path in paths])
        for (place, name, index, folder), size_bytes in zip(some, sizes, strict=True):
            if self._topics.catalogue.find(name) is not None:
                if size_bytes is not None:
                    self._topics.stored_bytes.setdefault(folder, size_bytes)
                # If the folder cannot be read, it was moved, or opening the log reports the error.
                found[place].topics.setdefault(name, []).append(ReplicaFacts(index, size_bytes or 0))
