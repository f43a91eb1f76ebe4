"""The snapshot of the node, if there is one: made for a backup, read in pieces, and removed.

A snapshot keeps the space of files that the logs have removed since. So there is one at a time. It is removed if it is
not read for IDLE_SECONDS, and if a data directory has no space left: then the disk reserve is in use.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable
from contextlib import suppress

from kwire.broker.backup.snapshot_builder import BuiltSnapshot, SnapshotBuilder, SnapshotFailed, SnapshotFile
from kwire.broker.topics.topics import Topics
from kwire.clock import Clock
from kwire.concurrency.disk_lanes import LaneClosed
from kwire.metastore import EmbeddedMetaStore
from storage.data_directory.directories import LogDirectories
from storage.disk.files import Files
from storage.snapshot.links import SnapshotLinks

log = logging.getLogger("kwire.backup")

# A snapshot that was not read for this time is removed.
IDLE_SECONDS = 300.0
# The interval of the check for idle snapshots and full disks.
CHECK_SECONDS = 2.0
# The maximum size of one read.
READ_BYTES_MAX = 4 * 1024 * 1024
# Removing a link takes ten microseconds.
LINKS_PER_JOB = 500


class SnapshotExists(Exception):
    """Another backup is being made. The message says how to end it."""


class SnapshotNotFound(Exception):
    """The id of the snapshot or the number of the file is unknown. The message says why."""


class Snapshot:
    """A snapshot: its id, the time of the cut and its files."""

    def __init__(self, snapshot_id: str, created_ms: int, built: BuiltSnapshot, links: SnapshotLinks) -> None:
        self.snapshot_id = snapshot_id
        self.created_ms = created_ms
        self.files = built.files
        self.offline = built.offline
        self.topic_count = built.topic_count
        self.partition_count = built.partition_count
        self.revision = built.revision
        self.size_bytes = sum(one.size_bytes for one in built.files)
        self.links = links


class Snapshots:
    """Makes, serves and removes the snapshot of the node. Use it only in the event loop's thread."""

    def __init__(
        self,
        topics: Topics,
        store: LogDirectories,
        metastore: EmbeddedMetaStore,
        files: Files,
        clock: Clock,
        call_later: Callable[..., asyncio.TimerHandle],
    ) -> None:
        self._topics = topics
        self._store = store
        self._metastore = metastore
        self._files = files
        self._clock = clock
        self._call_later = call_later
        self._current: Snapshot | None = None
        self._is_making = False
        self._used_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._removing: set[asyncio.Task[None]] = set()
        # The reason for the removal of the last snapshot, by its id.
        self._removed: tuple[str, str] = ("", "")

    async def create(self) -> Snapshot:
        """Make a snapshot. Raises SnapshotExists, SnapshotFailed, StorageError or OSError."""
        if self._current is not None:
            path = f"/admin/backups/{self._current.snapshot_id}"
            raise SnapshotExists(
                f"another backup is being made; wait for its end. If its program was killed, remove it (DELETE {path}) "
                f"or wait {IDLE_SECONDS:.0f} seconds"
            )
        if self._is_making:
            raise SnapshotExists("another backup is being made; wait for its end")
        if self._is_disk_full():
            raise SnapshotFailed("a data directory has no free space; free some space first, then make the backup")
        snapshot_id = uuid.uuid4().hex
        links = SnapshotLinks(snapshot_id, self._store.data_dirs, self._files)
        self._is_making = True
        try:
            builder = SnapshotBuilder(self._topics, self._store, self._metastore, self._files, links)
            built = await builder.build()
        except BaseException:
            self._begin_removal(links)
            raise
        finally:
            self._is_making = False
        self._current = Snapshot(snapshot_id, self._clock.now_ms(), built, links)
        self._used_at = self._clock.monotonic()
        self._timer = self._call_later(CHECK_SECONDS, self._check)
        return self._current

    def get(self, snapshot_id: str) -> Snapshot:
        """Return the snapshot with this id. Raises SnapshotNotFound."""
        current = self._current
        if current is None or current.snapshot_id != snapshot_id:
            removed_id, reason = self._removed
            raise SnapshotNotFound(reason if removed_id == snapshot_id else "there is no such backup")
        self._used_at = self._clock.monotonic()
        return current

    async def read(self, snapshot_id: str, number: int, offset: int, size_bytes: int) -> bytes:
        """Return up to `size_bytes` bytes of a file from `offset` on. Raises SnapshotNotFound or OSError."""
        snapshot = self.get(snapshot_id)
        if not 0 <= number < len(snapshot.files):
            raise SnapshotNotFound(f"the backup has {len(snapshot.files)} files, numbered from 0; there is no {number}")
        file = snapshot.files[number]
        size_bytes = min(size_bytes, READ_BYTES_MAX, max(file.size_bytes - offset, 0))
        try:
            return await self._topics.lanes.maintenance.run(self._read, file, offset, size_bytes)
        except FileNotFoundError:
            self.get(snapshot_id)  # the snapshot was removed while the read waited for a thread
            raise

    def _read(self, file: SnapshotFile, offset: int, size_bytes: int) -> bytes:
        fd = self._files.open_read(file.link)
        try:
            data = self._files.pread(fd, size_bytes, offset)
        finally:
            self._files.close(fd)
        if len(data) < size_bytes:
            raise OSError(f"{file.link} ({file.path}) ends at byte {offset + len(data)} instead of {file.size_bytes}")
        return data

    async def remove(self, snapshot_id: str) -> None:
        """Remove the snapshot, and wait until its links are gone. Raises SnapshotNotFound."""
        self.get(snapshot_id)
        await self._drop("it was removed by a client")

    def _drop(self, reason: str) -> asyncio.Task[None]:
        assert self._current is not None
        current, self._current = self._current, None
        self._removed = current.snapshot_id, reason
        if self._timer is not None:
            self._timer.cancel()
        return self._begin_removal(current.links)

    def _begin_removal(self, links: SnapshotLinks) -> asyncio.Task[None]:
        removing = asyncio.ensure_future(self._remove_links(links))
        self._removing.add(removing)
        removing.add_done_callback(self._removing.discard)
        return removing

    async def _remove_links(self, links: SnapshotLinks) -> None:
        lane = self._topics.lanes.delete
        try:
            paths = await lane.run(links.names)
            for start in range(0, len(paths), LINKS_PER_JOB):
                await lane.run(links.unlink, paths[start : start + LINKS_PER_JOB])
            await lane.run(links.remove_directories)
        except (OSError, LaneClosed) as error:
            log.warning("the links of a backup could not be removed; the next start removes them: %s", error)

    def _check(self) -> None:
        self._timer = None
        if self._current is None:
            return
        if self._is_disk_full():
            log.warning("the disk is full: the snapshot for a backup is removed, and the backup fails")
            self._drop(
                "the disk of the server became full, so the server has removed the snapshot; free some space first"
            )
        elif self._clock.monotonic() - self._used_at > IDLE_SECONDS:
            self._drop(f"it was not read for {IDLE_SECONDS:.0f} seconds, so the server has removed it")
        else:
            self._timer = self._call_later(CHECK_SECONDS, self._check)

    def _is_disk_full(self) -> bool:
        return not all(reserve.is_whole for reserve in self._store.reserves)

    async def close(self) -> None:
        """Remove the snapshot, if there is one, when the node stops."""
        if self._current is not None:
            self._drop("the server has stopped")
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._removing)
