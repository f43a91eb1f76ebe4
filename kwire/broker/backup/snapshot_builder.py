"""Makes a snapshot of all logs and of the metadata store at one moment: what a kill of the server would leave.

All appends, rolls and commits are visible in the event loop's thread. So one call in that thread, the cut, sees all
logs at the same moment. Everything that takes long is done before it:

1. The files of all logs are linked, in chunks. Threads make the links.
2. Logs that have changed since in more than their last batches (rolled, compacted, opened, moved) are linked again,
   until so few are left that the event loop can link them itself (CUT_FILES_MAX).
3. The cut: these are linked, the log start offsets, the sizes of all active segments and the entries of the metadata
   store are taken.

Recovery after a kill at that moment would serve every acknowledged record and finish or abort every transaction. The
same recovery runs when a server starts on a restored backup.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from kwire.broker.partition import Partition
from kwire.broker.topics.catalogue import KEY_PREFIX
from kwire.broker.topics.topics import Topics
from kwire.metastore import EmbeddedMetaStore
from kwire.metastore.captured_entries import CapturedEntries
from storage.data_directory.directories import LogDirectories
from storage.data_directory.partition_metadata import METADATA_NAME, encode_metadata
from storage.disk.files import Files
from storage.disk.journal import encode_journal
from storage.disk.mirrored_journal import JOURNAL_NAME
from storage.errors import DiskFailure, StorageError
from storage.snapshot.links import LinkedFile, SnapshotLinks
from storage.snapshot.log_snapshot import LogSnapshot, link_folder

# The path of a log's folder in a backup begins with this.
LOGS_PREFIX = "logs/"
# Describing an open log takes twenty microseconds, more with many producers. After this many, the event loop runs other
# work, and a thread links the files of these logs.
LOGS_PER_CHUNK = 50
# Linking the files of a closed log takes about a hundred microseconds.
FOLDERS_PER_JOB = 200
# The event loop itself links or writes at most this many files, in the cut. That takes a millisecond.
CUT_FILES_MAX = 64
# The number of rounds in which changed logs are linked again before the snapshot fails.
ROUNDS_MAX = 200
# A log whose segments are being replaced cannot be linked. The replacement takes milliseconds.
ROUND_PAUSE_SECONDS = 0.02
# The maximum number of files in a snapshot. Each needs about 300 bytes of memory while the snapshot exists.
FILES_MAX = 1_000_000
# Processing an entry of the catalogue, or the files of a log, takes some microseconds. After this many, the event loop
# runs other work.
ENTRIES_PER_CHUNK = 1000


class SnapshotFile(NamedTuple):
    """A file of a snapshot: its path in a backup, the path of the link, and the bytes that belong to it."""

    path: str
    link: str
    size_bytes: int


class BuiltSnapshot(NamedTuple):
    """The files of a snapshot. `offline` are the partitions that could not be linked: their folders and the reasons."""

    files: tuple[SnapshotFile, ...]
    offline: Mapping[str, str]
    topic_count: int
    partition_count: int
    revision: int


class SnapshotFailed(Exception):
    """No snapshot could be made. The message says why and what to do."""


class _ClosedLog(NamedTuple):
    """The linked files of a log that was not open."""

    topic_id: bytes
    files: Sequence[LinkedFile]


class _OpenLog(NamedTuple):
    """The snapshot of a log that was open."""

    topic_id: bytes
    folder: str
    snapshot: LogSnapshot


class SnapshotBuilder:
    """Builds one snapshot. Use it only in the event loop's thread."""

    def __init__(
        self, topics: Topics, store: LogDirectories, metastore: EmbeddedMetaStore, files: Files, links: SnapshotLinks
    ) -> None:
        self._topics = topics
        self._store = store
        self._metastore = metastore
        self._files = files
        self._links = links
        self._lane = topics.lanes.maintenance
        # The linked logs: those that were open by partition, the others by folder. A log is in one of the two.
        self._open: dict[Partition, _OpenLog] = {}
        self._closed: dict[str, _ClosedLog] = {}
        # Folders whose logs were open at some time since they were linked as closed logs.
        self._opened: set[str] = set()
        # Folders of closed logs that could not be linked: the topic id, and the reason.
        self._unlinked: dict[str, tuple[bytes, str]] = {}
        # The number of rounds in which changed logs were linked again.
        self.round_count = 0

    async def build(self) -> BuiltSnapshot:
        """Make the snapshot. Raises SnapshotFailed, StorageError or OSError."""
        await self._lane.run(self._links.create)
        self._topics.opened_folders = self._opened
        try:
            await self._link_closed(list(self._store.partition_folders))
            await self._link_open(list(self._topics.open_partitions))
            captured = await self._cut()
        finally:
            self._topics.opened_folders = None
            self._topics.is_parking_paused = False
        return await self._finish(captured)

    # --- links

    async def _link_closed(self, folders: Sequence[str]) -> None:
        """Link the files of those logs that are not open."""
        for start in range(0, len(folders), FOLDERS_PER_JOB):
            wanted: list[tuple[str, str, bytes]] = []
            for folder in folders[start : start + FOLDERS_PER_JOB]:
                facts = self._topics.catalogue.find(folder.rpartition("-")[0])
                partition = self._partition(folder)
                self._closed.pop(folder, None)
                if partition is not None:
                    self._open.pop(partition, None)
                if facts is None:
                    continue
                if partition is not None and partition.is_open:
                    self._opened.add(folder)  # it may be closed before it is linked as an open log
                    continue
                with suppress(StorageError):  # offline; `_finish` reports it
                    data_dir = self._store.directory_of(folder, facts.topic_id)
                    if data_dir is not None:
                        wanted.append((folder, os.path.join(data_dir, folder), facts.topic_id))
            for folder, topic_id, files in await self._lane.run(self._link_folders, wanted):
                self._closed[folder] = _ClosedLog(topic_id, files)
                self._unlinked.pop(folder, None)
            self._check_count()

    def _link_folders(self, wanted: Sequence[tuple[str, str, bytes]]) -> list[tuple[str, bytes, Sequence[LinkedFile]]]:
        """Link the files of folders, in a thread. Folders that cannot be linked are in `_unlinked`."""
        found: list[tuple[str, bytes, Sequence[LinkedFile]]] = []
        for folder, path, topic_id in wanted:
            if self._files.read_file(os.path.join(path, METADATA_NAME)) != encode_metadata(topic_id):
                self._unlinked[folder] = topic_id, f"{METADATA_NAME} in {path} does not have the id of the topic"
                continue
            try:
                found.append((folder, topic_id, link_folder(path, self._links, self._files)))
            except FileNotFoundError as error:
                self._unlinked[folder] = topic_id, f"{error.filename} is missing"
        return found

    async def _link_open(self, partitions: Sequence[Partition]) -> None:
        """Link the files of those logs that are open."""
        for start in range(0, len(partitions), LOGS_PER_CHUNK):
            described = self._describe(partitions[start : start + LOGS_PER_CHUNK])
            linked = await self._lane.run(_link_all, described, self._links)
            self._add_open(linked)
            self._check_count()

    def _describe(self, partitions: Iterable[Partition]) -> dict[Partition, _OpenLog]:
        described = {}
        for partition in partitions:
            topic = self._topics.live(partition.topic_name)
            if topic is None or topic.partition(partition.index) is not partition or not partition.is_open:
                continue  # parked, or the topic was deleted
            if _has_files(partition):
                known = self._open.get(partition)
                snapshot = partition.maintenance().snapshot(known.snapshot if known is not None else None)
                folder = f"{partition.topic_name}-{partition.index}"
                described[partition] = _OpenLog(topic.topic_id, folder, snapshot)
        return described

    def _add_open(self, linked: Mapping[Partition, _OpenLog]) -> None:
        for partition, one in linked.items():
            self._closed.pop(one.folder, None)
            self._unlinked.pop(one.folder, None)
            self._open[partition] = one

    def _check_count(self) -> None:
        if self._links.count > FILES_MAX:
            raise SnapshotFailed(f"the logs have more than {FILES_MAX} files, which is the limit of a backup")

    # --- the cut

    async def _cut(self) -> CapturedEntries:
        """Link changed logs until the links fit all logs in one call, and take sizes and entries in that call.

        No log is parked meanwhile: otherwise logs that maintenance opens and parks would have to be linked again.
        """
        self._topics.is_parking_paused = True
        for _ in range(ROUNDS_MAX):
            # From here to the return there is no `await`, unless another round is needed.
            changed, closed = self._changed()
            if not closed and self._link_few(changed):
                for one in self._open.values():
                    one.snapshot.fix()
                return self._metastore.capture()
            self.round_count += 1
            self._opened.difference_update(closed)
            await self._link_closed(closed)
            await self._link_open(changed)
            await asyncio.sleep(ROUND_PAUSE_SECONDS)
        raise SnapshotFailed("segments of the logs are replaced faster than they can be linked; try again later")

    def _changed(self) -> tuple[list[Partition], list[str]]:
        """Return the open logs, and the folders of closed logs, whose links do not fit."""
        changed: list[Partition] = []
        closed: list[str] = []
        opened = self._topics.open_partitions
        for partition in opened:
            known = self._open.get(partition)
            is_linked = known is not None and partition.fits(known.snapshot)
            if not is_linked and partition.is_open and _has_files(partition):
                changed.append(partition)
        for partition, one in list(self._open.items()):
            if partition in opened:
                continue
            if self._partition(one.folder) is not partition:
                del self._open[partition]  # the topic was deleted; another one may have its name
            elif one.folder in self._opened or not partition.fits(one.snapshot):
                closed.append(one.folder)
        for folder in self._opened:
            found = self._partition(folder)
            if found is None or (not found.is_open and found not in self._open):
                closed.append(folder)
        return changed, closed

    def _partition(self, folder: str) -> Partition | None:
        """Return the partition of a folder, if it is live."""
        name, _, index = folder.rpartition("-")
        topic = self._topics.live(name)
        return topic.partition(int(index)) if topic is not None else None

    def _link_few(self, changed: Sequence[Partition]) -> bool:
        """Link the files of changed logs in this call, if they are few. Returns False if they are not linked."""
        if not changed:
            return True
        if len(changed) > CUT_FILES_MAX:
            return False
        described = self._describe(changed)
        if sum(one.snapshot.new_file_count for one in described.values()) > CUT_FILES_MAX:
            return False
        linked = _link_all(described, self._links)
        self._add_open(linked)
        return len(linked) == len(described) and all(one.fits(linked[one].snapshot) for one in linked)

    # --- the result

    async def _finish(self, captured: CapturedEntries) -> BuiltSnapshot:
        """Write the metadata store, and list the files of the partitions that it has."""
        known: dict[bytes, int] = {}
        for number, (_, entry) in enumerate(captured.entries(KEY_PREFIX), start=1):
            known[bytes.fromhex(entry.value["id"])] = entry.value["partitions"]
            if number % ENTRIES_PER_CHUNK == 0:
                await asyncio.sleep(0)
        journal = await self._lane.run(self._write_journal, await captured.frames())
        files = [SnapshotFile(JOURNAL_NAME, journal.path, journal.size_bytes)]
        incomplete = [one.snapshot for one in self._open.values() if not one.snapshot.is_complete]
        await self._lane.run(_complete_all, incomplete, self._links)
        folders = chain(
            ((folder, one.topic_id, one.files) for folder, one in self._closed.items()),
            ((one.folder, one.topic_id, one.snapshot.files()) for one in self._open.values()),
        )
        for number, (folder, topic_id, linked) in enumerate(folders, start=1):
            if int(folder.rpartition("-")[2]) < known.get(topic_id, 0):
                files += [SnapshotFile(f"{LOGS_PREFIX}{folder}/{one.name}", one.path, one.size_bytes) for one in linked]
            if number % ENTRIES_PER_CHUNK == 0:
                await asyncio.sleep(0)
        offline = {folder: reason for folder, (topic_id, reason) in self._unlinked.items() if topic_id in known}
        offline |= {folder: str(error) for folder, error in self._store.offline_partitions.items()}
        offline |= {data_dir: str(error) for data_dir, error in self._store.offline_dirs.items()}
        return BuiltSnapshot(tuple(files), offline, len(known), sum(known.values()), captured.revision)

    def _write_journal(self, frames: Sequence[bytes]) -> LinkedFile:
        return self._links.write(os.path.join(self._store.data_dir, JOURNAL_NAME), encode_journal(frames))


def _link_all(described: Mapping[Partition, _OpenLog], links: SnapshotLinks) -> dict[Partition, _OpenLog]:
    """Link the files of described logs, in any thread. Logs that have changed since are left out."""
    linked = {}
    for partition, one in described.items():
        try:
            one.snapshot.link(links)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DiskFailure(f"link the files of {one.folder}: {error}", error.errno) from error
        linked[partition] = one
    return linked


def _complete_all(snapshots: Iterable[LogSnapshot], links: SnapshotLinks) -> None:
    """Write the checkpoints of logs whose records were deleted before the cut, in any thread."""
    for one in snapshots:
        one.complete(links)


def _has_files(partition: Partition) -> bool:
    """Whether an open log has, or had, records. Otherwise it may have no folder."""
    return partition.log_end_offset > 0 or partition.maintenance().segment_count > 0
