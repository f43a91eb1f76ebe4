"""The data directories as an operator sees them: which partitions are where, how large, and how full the volumes are.

A log that is open, or was since the start, knows its size. Others are measured here, by a thread and a few at a time;
what was found is kept where all sizes are (`Topics.stored_bytes`).
"""

import asyncio
import os
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from kwire.broker.moves import Moves
from kwire.broker.topics import Topics
from storage.directories import LogDirectories
from storage.errors import StorageError
from storage.files import Files
from storage.partition_metadata import partition_folder

LOG_SUFFIX = ".log"
# To find a partition's place and size takes two microseconds when it need not be measured.
PARTITIONS_PER_TURN = 500
# A folder takes some twenty microseconds when the system has it in memory.
FOLDERS_PER_JOB = 500


class ReplicaFacts(NamedTuple):
    """`offset_lag` counts from the log end of the partition for a copy in the making, and is 0 for the log itself."""

    partition_index: int
    size_bytes: int
    offset_lag: int = 0
    is_future: bool = False


class LogDirFacts(Struct):
    """`error` says why it is offline."""

    path: str
    error: str | None = None
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False
    topics: dict[str, list[ReplicaFacts]] = field(default_factory=dict)


class LogDirs:
    """Called from the event loop."""

    def __init__(self, topics: Topics, store: LogDirectories, moves: Moves, files: Files) -> None:
        self._topics = topics
        self._store = store
        self._moves = moves
        self._files = files

    async def describe(self, wanted: Mapping[str, Collection[int]] | None) -> list[LogDirFacts]:
        """All directories with the partitions that are wanted; with all of them for None."""
        found = {path: self._directory(path) for path in self._store.configured_dirs}
        await self._topics.lanes.survey.run(self._look_at_volumes, list(found.values()))
        opened = {partition_folder(one.topic_name, one.index): one.size_bytes for one in self._topics.open_partitions}
        unknown: list[tuple[str, str, int, str]] = []
        for number, (name, topic_id, index) in enumerate(self._partitions(wanted), start=1):
            if number % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            folder = partition_folder(name, index)
            try:
                place = self._store.place(folder, topic_id)
            except StorageError:
                continue  # it may be in a directory that is offline, of which nothing is known
            size_bytes = opened[folder] if folder in opened else self._known_size(folder)
            if size_bytes is None:
                unknown.append((place, name, index, folder))
            else:
                found[place].topics.setdefault(name, []).append(ReplicaFacts(index, size_bytes))
        for at in range(0, len(unknown), FOLDERS_PER_JOB):
            await self._measure(unknown[at : at + FOLDERS_PER_JOB], found)
        for future in self._moves.futures():
            name, index = future.topic_name, future.partition_index
            if wanted is None or index in wanted.get(name, ()):
                facts = ReplicaFacts(index, future.size_bytes, future.offset_lag, is_future=True)
                found[future.data_dir].topics.setdefault(name, []).append(facts)
        return list(found.values())

    def _directory(self, path: str) -> LogDirFacts:
        error = self._store.offline_dirs.get(path)
        is_cordoned = path in self._store.cordoned_dirs
        return LogDirFacts(path, None if error is None else str(error), is_cordoned=is_cordoned)

    def _look_at_volumes(self, directories: list[LogDirFacts]) -> None:
        """In a thread."""
        for one in directories:
            if one.error is None:
                try:
                    one.total_bytes, one.usable_bytes = self._store.space(one.path)
                except StorageError as error:
                    one.error = str(error)

    def _partitions(self, wanted: Mapping[str, Collection[int]] | None) -> Iterator[tuple[str, bytes, int]]:
        """Those that exist; a topic that is deleted meanwhile is left out."""
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
        sizes = await self._topics.lanes.survey.run(lambda: [self._size(path) for path in paths])
        for (place, name, index, folder), size_bytes in zip(some, sizes, strict=True):
            if self._topics.catalogue.find(name) is not None:
                self._topics.stored_bytes.setdefault(folder, size_bytes)
                found[place].topics.setdefault(name, []).append(ReplicaFacts(index, size_bytes))

    def _size(self, path: str) -> int:
        """In a thread."""
        try:
            names = self._files.listdir(path)
            return sum(self._files.size_of(os.path.join(path, name)) for name in names if name.endswith(LOG_SUFFIX))
        except OSError:
            return 0  # deleted or moved meanwhile
