"""A data directory: one folder per partition, one lock, and files that record how the last run ended.

A partition's folder, ``<topic>-<partition>``, is created by the first append. Until then its log exists in memory only.
The file ``partition.metadata`` has the topic id, as in Kafka, so that a folder of an earlier topic with the same name
is recognised and renamed, never served. A deletion renames the folder and then removes its files in the background. The
next start removes files that a stop left.

After a clean stop there is a clean-shutdown file, and every log is opened from its checkpoint on first use. Otherwise
:attr:`LogStore.unclean_folders` has the folders that the last run wrote to, or all folders if the unclean list is lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from storage.data_directory.disk_reserve import DiskReserve
from storage.data_directory.folder_list import FolderList
from storage.data_directory.folder_removal import FolderRemoval
from storage.data_directory.partition_metadata import (
    METADATA_NAME,
    TOPIC_ID_BYTES,
    decode_metadata,
    encode_metadata,
    encode_topic_id,
    partition_folder,
    topic_id_text,
)
from storage.data_directory.set_aside import set_aside
from storage.data_directory.unclean_logs import UncleanList
from storage.disk.files import Files
from storage.errors import (
    DataDirectoryLocked,
    DiskFailure,
    PartitionOffline,
    StorageError,
    StorageFailed,
    disk_errors,
)
from storage.log.deletion import LogDeletion
from storage.log.log import Log
from storage.log.settings import Background, LogSettings
from storage.log.syncing import SYNC_FAILED_NAME, mark_sync_failed
from storage.recovery.crash_recovery import open_log
from storage.relocation.relocation import FUTURE_SUFFIX, MovedLog, check_is_current
from storage.snapshot.links import SNAPSHOT_SUFFIX

LOCK_NAME: Final = ".lock"
CLEAN_NAME: Final = "clean_shutdown"
DELETED_SUFFIX: Final = ".deleted"
STALE_SUFFIX: Final = ".stale"

_PARTITION_FOLDER: Final = re.compile(r".+-\d+")
_FILE_NAME_BYTES_MAX: Final = 255


def make_data_dir(data_dir: str, files: Files) -> None:
    """Create a data directory and its missing parents, durably. `data_dir` is an absolute path."""
    missing = []
    path = data_dir
    while not files.exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    if not missing and files.exists(os.path.join(data_dir, LOCK_NAME)):
        return  # the directory was locked before, so it is durable
    # A start that was killed may have created the lowest existing folder without making its name durable.
    with suppress(PermissionError):  # a parent that cannot be read was not created by kwire
        files.fsync_dir(os.path.dirname(path))
    for path in reversed(missing):
        files.makedirs(path)
        files.fsync_dir(os.path.dirname(path))


class LogStore:
    """The logs of one data directory. Call :meth:`lock` first and :meth:`close` last. Used by one thread."""

    def __init__(
        self,
        data_dir: str,
        files: Files,
        background: Background,
        reserve_bytes: int = 0,
        folder_list: FolderList | None = None,
    ) -> None:
        """``reserve_bytes`` is the size of the disk reserve, see ``disk_reserve``.

        ``folder_list`` is the durable list of the partitions that have a folder. If several directories share one list,
        the caller passes it, starts it and closes it.
        """
        self.data_dir = os.path.abspath(data_dir)
        self.disk_reserve = DiskReserve(self.data_dir, files, reserve_bytes)
        self.was_clean = False
        # Paths of unfinished copies of partitions that were moving here in an earlier run.
        self.unfinished_futures: list[str] = []
        self._files = files
        self._background = background
        self._lock_fd: int | None = None
        self._boot_id = ""
        self._folders: set[str] = set()
        # Folders that the last run did not close cleanly and that were not opened since.
        self._unclean: set[str] = set()
        self._logs: dict[str, Log] = {}
        # Folders of earlier runs that may not be durable.
        self._unsynced_folders: set[str] = set()
        # Logs without a folder. The first append creates the folder.
        self._without_folder: set[str] = set()
        # Partitions that are moving to this directory, and the paths of their copies.
        self._futures: dict[str, str] = {}
        # Folders, not yet removed, of partitions that have moved to another directory.
        self._moved_away: set[str] = set()
        self._has_parked = False
        self._unclean_list = UncleanList(self.data_dir, files)
        self._owns_list = folder_list is None
        self._list = folder_list or FolderList(self.data_dir, files, background)
        self.removal = FolderRemoval(self.data_dir, files, background)

    # --- start

    def lock(self) -> None:
        """Lock the directory for this process, read how the last run ended, and continue the removals of that run.

        Reads only the names in the directory, not the folders.
        """
        with disk_errors(f"open {self.data_dir}"):
            make_data_dir(self.data_dir, self._files)
            lock_fd = self._files.lock(os.path.join(self.data_dir, LOCK_NAME))
            if lock_fd is None:
                raise DataDirectoryLocked(f"{self.data_dir} is in use by another process: stop it, or name another")
            try:
                self._files.watch_file_system(self.data_dir)
                self.disk_reserve.open()
                self._read_last_run()
                if self._owns_list:
                    self._list.start(self._boot_id)
            except BaseException:
                self.disk_reserve.close()
                self._files.unwatch_file_system(self.data_dir)
                self._files.close(lock_fd)
                raise
            self._lock_fd = lock_fd

    def _read_last_run(self) -> None:
        self._boot_id = self._files.boot_id()
        names = self._files.listdir(self.data_dir)
        self._folders = set(filter(_PARTITION_FOLDER.fullmatch, names))
        self.was_clean = CLEAN_NAME in names
        if not self.was_clean:
            written = self._read_unclean_list()
            self._unclean = set(self._folders) if written is None else self._folders & written
        if SYNC_FAILED_NAME in names:
            # A sync of the file system failed. It is unknown which logs lost pages, so all logs that the last run wrote
            # to are checked.
            for folder in self._unclean:
                mark_sync_failed(self._files, os.path.join(self.data_dir, folder))
            self._files.unlink(os.path.join(self.data_dir, SYNC_FAILED_NAME))
        self.unfinished_futures = [os.path.join(self.data_dir, name) for name in names if name.endswith(FUTURE_SUFFIX)]
        # Remove the clean-shutdown file last. If the server is killed before, the next start still finds a clean stop.
        try:
            self._unclean_list.start(self._unclean)
        except OSError:
            self._unclean_list.disable()
        if self.was_clean:
            self._files.unlink(os.path.join(self.data_dir, CLEAN_NAME))
            self._files.fsync_dir(self.data_dir)
        removed = [name for name in names if name.endswith((DELETED_SUFFIX, SNAPSHOT_SUFFIX))]
        self.removal.add([os.path.join(self.data_dir, name) for name in removed])

    def _read_unclean_list(self) -> frozenset[str] | None:
        try:
            return self._unclean_list.read()
        except OSError:
            return None

    def release_reserve(self) -> bool:
        """Release a piece of the disk reserve. Returns False if none is left. May be called in any thread."""
        return self.disk_reserve.release()

    @property
    def data_dirs(self) -> tuple[str, ...]:
        return (self.data_dir,)

    @property
    def unclean_folders(self) -> frozenset[str]:
        """The folders whose logs have to be recovered. The others are opened from their clean checkpoints."""
        return frozenset(self._unclean)

    @property
    def partition_count(self) -> int:
        """The number of partitions in this directory, including those without a folder yet."""
        return len(self._folders) + len(self._without_folder) + len(self._futures)

    def has_partition(self, folder: str) -> bool:
        return folder in self._folders or folder in self._without_folder

    def path_of(self, folder: str) -> str | None:
        """The path of a partition's folder, if there is one."""
        return os.path.join(self.data_dir, folder) if folder in self._folders else None

    @property
    def partition_folders(self) -> frozenset[str]:
        """The partition folders, whether their logs are open or not."""
        return frozenset(self._folders)

    # --- at a start, see storage/data_directory/start_check.py

    def remove_deleted(self, folder: str) -> None:
        """Finish a topic deletion that a kill interrupted."""
        self._delete_folder(folder)

    def set_aside(self, folders: Sequence[str], stamp: str) -> str:
        """Set folders aside: keep them, but do not serve them. Returns the path of the folder that holds them."""
        path = set_aside(self.data_dir, folders, stamp, self._files)
        for folder in folders:
            self._forget_folder(folder)
        return path

    # --- logs

    def open_log(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings) -> Log:
        """Open the log of one partition. Does not read the disk if the partition never had an append."""
        if self._lock_fd is None:
            raise StorageError(f"{self.data_dir} is not locked: call lock() first")
        if len(topic_id) != TOPIC_ID_BYTES:
            raise ValueError(f"a topic id has {TOPIC_ID_BYTES} bytes, got {len(topic_id)}")
        folder = partition_folder(topic, partition)
        log = self._logs.get(folder)
        if log is not None and log.is_closed:  # parked, without a call of forget_log
            self.forget_log(topic, partition)
            log = None
        if log is None:
            log = self._logs[folder] = self._open(folder, topic_id, settings)
        return log

    def truncate_damage(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings) -> Log:
        """Reopen a log and truncate its damaged end. Only for callers that have the removed records elsewhere."""
        folder = partition_folder(topic, partition)
        log = self._logs.pop(folder, None)
        if log is not None:
            log.close(is_clean=False)
        log = self._logs[folder] = self._open(folder, topic_id, settings, truncates_damage=True)
        return log

    def holds(self, folder: str, topic_id: bytes) -> bool:
        """Whether a folder of this name exists here and belongs to this topic."""
        if folder not in self._folders:
            return False
        path = os.path.join(self.data_dir, folder, METADATA_NAME)
        with disk_errors(f"read {path}"):
            return self._files.read_file(path) == encode_metadata(topic_id)

    def _open(self, folder: str, topic_id: bytes, settings: LogSettings, *, truncates_damage: bool = False) -> Log:
        path = os.path.join(self.data_dir, folder)
        note = self._first_append_hook(folder)
        self._list.check_online(folder)
        if folder in self._folders:
            with disk_errors(f"open {path}"):
                found = self._files.read_file(os.path.join(path, METADATA_NAME))
                if decode_metadata(found) is None and self._list.is_fresh(folder, topic_id):
                    # The file's first sync failed, so the file may not be on the disk. The folder list has the id.
                    found = encode_metadata(topic_id)
                    self._files.replace_file(os.path.join(path, METADATA_NAME), found, sync=True)
                if found == encode_metadata(topic_id):
                    check_is_current(path, self._boot_id, self._files)
                    if folder in self._unclean:
                        self._renew_metadata(path, found)
                    log = open_log(
                        path,
                        self._files,
                        self._background,
                        settings,
                        self._boot_id,
                        on_first_append=note,
                        truncates_damage=truncates_damage,
                        was_stopped=folder not in self._unclean,
                    )
                    log.on_folder_durable = partial(self._list.record_durable, folder)
                    if folder in self._unclean and log.synced_offset > log.log_start_offset:
                        # Sealed segments are regarded as durable from now on, so their folder has to be durable, too.
                        self._sync_folder(folder)
                    elif folder in self._unclean or not log.segment_count:
                        self._unsynced_folders.add(folder)
                    self._unclean.discard(folder)
                    return log
                if self._list.has(folder, topic_id, is_there=True):
                    raise self._offline(folder, found)
                self._move_aside(folder, topic_id_text(found), STALE_SUFFIX)
                self._forget_folder(folder)
        elif self._list.has(folder, topic_id, is_there=False):
            raise self._list.take_offline(folder, "its folder is missing", self.data_dir, is_lost=True)
        self._without_folder.add(folder)

        def prepare() -> None:
            self._create_folder(folder, topic_id)

        log = Log(
            path,
            self._files,
            self._background,
            settings,
            self._boot_id,
            prepare_directory=prepare,
            on_first_append=note,
        )
        log.on_folder_durable = partial(self._list.record_durable, folder)
        return log

    def _offline(self, folder: str, metadata: bytes | None) -> PartitionOffline:
        if metadata is None and not self._files.exists(os.path.join(self.data_dir, folder)):
            return self._list.take_offline(folder, "its folder is missing", self.data_dir, is_lost=True)
        is_readable = decode_metadata(metadata) is not None
        state = "missing" if metadata is None else "of another topic" if is_readable else "damaged"
        return self._list.take_offline(folder, f"{METADATA_NAME} is {state}", self.data_dir, is_lost=False)

    def _renew_metadata(self, path: str, content: bytes) -> None:
        """Rewrite ``partition.metadata`` if it is not on the disk: a sync of it may have failed in an earlier run."""
        name = os.path.join(path, METADATA_NAME)
        fd = self._files.open_read(name)
        try:
            self._files.drop_cached_pages(fd, 0, len(content))
            is_there = self._files.pread(fd, len(content), 0) == content
        finally:
            self._files.close(fd)
        if not is_there:
            self._files.replace_file(name, content, sync=True)

    def _first_append_hook(self, folder: str) -> Callable[[], Callable[[], None]]:
        """The ``on_first_append`` function of a log.

        It adds the folder to the unclean list and returns a function that makes the entry and the folder durable.
        """

        def sync() -> None:
            self._unclean_list.sync()
            if folder in self._unsynced_folders:
                self._sync_folder(folder)
                self._unsynced_folders.discard(folder)

        def note() -> Callable[[], None]:
            self._unclean_list.add(folder)
            return sync

        return note

    def _sync_folder(self, folder: str) -> None:
        path = os.path.join(self.data_dir, folder)
        fd = self._files.open_read(os.path.join(path, METADATA_NAME))
        try:
            self._files.fsync(fd)
        finally:
            self._files.close(fd)
        self._files.fsync_dir(path)
        self._files.fsync_dir(self.data_dir)
        self._list.record_durable(folder)

    def _create_folder(self, folder: str, topic_id: bytes) -> None:
        """Create a partition folder before its first segment. The log's first sync makes both durable."""
        path = os.path.join(self.data_dir, folder)
        self._files.makedirs(path)
        # Write the file without a rename, which may wait for the disk. If a kill leaves an incomplete file, the folder
        # is not listed yet, has no records, and is renamed as stale.
        fd = self._files.create(os.path.join(path, METADATA_NAME))
        try:
            self._files.write_all(fd, encode_metadata(topic_id), 0)
        finally:
            self._files.close(fd)
        self._list.record_new(folder, topic_id)
        self._folders.add(folder)
        self._without_folder.discard(folder)

    def forget_log(self, topic: str, partition: int) -> None:
        """Remove a parked log, which is already closed cleanly, from memory. The next use opens it again."""
        folder = partition_folder(topic, partition)
        if self._logs.pop(folder, None) is not None:
            self._has_parked = True
        self._without_folder.discard(folder)

    def begin_deletion(self, topic: str, partition: int) -> LogDeletion:
        """Close the log and begin its deletion; see :mod:`storage.log.deletion`."""
        return LogDeletion(self, partition_folder(topic, partition))

    def delete_log(self, topic: str, partition: int) -> None:
        """Delete the log in one call. Waits for the disk, except for the removal of the files."""
        deletion = self.begin_deletion(topic, partition)
        deletion.run()
        deletion.finish()

    def rename_for_removal(self, name: str) -> str | None:
        """Rename a folder for removal, in any thread. Returns its new path, or None if the folder does not exist."""
        path = os.path.join(self.data_dir, name)
        if name.endswith(FUTURE_SUFFIX):
            if not self._files.exists(path):
                return None
            topic_id = "unfinished"
        else:
            found: bytes | None = None
            with suppress(OSError):  # the topic id in the new name is informational, so a failed read is ignored
                found = self._files.read_file(os.path.join(path, METADATA_NAME))
            topic_id = topic_id_text(found)
        with disk_errors(f"delete {path}"):
            return self._move_aside(name, topic_id, DELETED_SUFFIX)

    def queue_removal(self, folder: str, moved: Mapping[str, str]) -> None:
        """Queue the folders that :meth:`rename_for_removal` has renamed for removal."""
        if folder in moved:
            self._forget_folder(folder)
            self._moved_away.discard(folder)
        self.removal.add(list(moved.values()))

    def _delete_folder(self, folder: str) -> None:
        moved = self.rename_for_removal(folder)
        if moved is not None:
            self.queue_removal(folder, {folder: moved})

    def _forget_folder(self, folder: str) -> None:
        self._folders.discard(folder)
        self._unclean.discard(folder)
        self._unsynced_folders.discard(folder)
        self._unclean_list.remove(folder)

    def _move_aside(self, folder: str, topic_id: str, suffix: str) -> str:
        ending = f".{topic_id}{suffix}"
        target = os.path.join(self.data_dir, folder[: _FILE_NAME_BYTES_MAX - len(ending)] + ending)
        source = os.path.join(self.data_dir, folder)
        number = 0
        while self._files.exists(target):  # a folder with the same topic id was renamed earlier
            number += 1
            ending = f".{topic_id}.{number}{suffix}"
            target = os.path.join(self.data_dir, folder[: _FILE_NAME_BYTES_MAX - len(ending)] + ending)
        self._files.rename(source, target)
        return target

    # --- moves between directories, see storage/relocation/relocation.py

    def register_move(self, folder: str, topic_id: bytes) -> str:
        """Register a partition that will move here. Returns the path for its copy, which does not exist yet."""
        if folder in self._folders:  # an earlier topic of this name was deleted while this directory was offline
            path = os.path.join(self.data_dir, folder)
            with disk_errors(f"rename the folder {path} of an earlier topic"):
                found = self._files.read_file(os.path.join(path, METADATA_NAME))
                self._move_aside(folder, topic_id_text(found), STALE_SUFFIX)
            self._forget_folder(folder)
        ending = f".{encode_topic_id(topic_id)}-{folder.rpartition('-')[2]}{FUTURE_SUFFIX}"
        name = folder[: _FILE_NAME_BYTES_MAX - len(ending)] + ending
        path = self._futures[folder] = os.path.join(self.data_dir, name)
        return path

    def folder_sync(self, folder: str) -> Callable[[], None]:
        """A function that makes the folder of a partition and its ``partition.metadata`` durable.

        The function may be called in any thread. It raises ``OSError`` or :class:`StorageFailed`. After
        :class:`StorageFailed` the log takes no more appends.
        """
        log = self._logs.get(folder)

        def sync() -> None:
            if log is None:
                self._sync_folder(folder)
                return
            try:
                log.gate.sync(f"sync {log.directory}", self._sync_folder, folder)
            except StorageFailed as error:
                log._refuse_appends(error)  # the kernel may not report this error to any other sync
                raise

        return sync

    def write_metadata(self, path: str, topic_id: bytes) -> None:
        """Write ``partition.metadata``, durably. May be called in any thread. Raises ``OSError``."""
        self._files.replace_file(os.path.join(path, METADATA_NAME), encode_metadata(topic_id), sync=True)

    def reserve(self, folder: str) -> None:
        """Assign a partition without a folder to this directory, until :meth:`forget_reservation`."""
        self._without_folder.add(folder)

    def forget_reservation(self, folder: str) -> None:
        self._without_folder.discard(folder)

    def create_empty(self, folder: str, topic_id: bytes) -> None:
        """Create the folder of a partition that has no records yet."""
        path = os.path.join(self.data_dir, folder)
        with disk_errors(f"create {path}"):
            self._create_folder(folder, topic_id)

    def sync_empty(self, folder: str) -> None:
        """Make the folder from :meth:`create_empty` durable. May be called in any thread."""
        with disk_errors(f"sync {folder} of {self.data_dir}"):
            self._sync_folder(folder)

    def adopt(self, folder: str, log: Log) -> None:
        """Register a partition that has moved here. Raises ``OSError``."""
        self._unclean_list.add(folder)
        del self._futures[folder]
        self._folders.add(folder)
        self._logs[folder] = log

    def undo_adopt(self, folder: str, path: str) -> None:
        """Undo :meth:`adopt` after the switch has failed."""
        self._logs.pop(folder, None)
        self._folders.discard(folder)
        self._futures[folder] = path

    def forget_moved(self, folder: str) -> None:
        """Remove from the lists a partition that has moved to another directory. Its folder still exists."""
        self._logs.pop(folder, None)
        self._forget_folder(folder)
        self._moved_away.add(folder)

    def sync_unclean_list(self) -> None:
        """Make the unclean list durable. May be called in any thread. Raises ``OSError``."""
        self._unclean_list.sync()

    def remove_moved(self, folder: str) -> bool:
        """Remove the folder of a partition that has moved to another directory. Returns False if there is none."""
        if folder not in self._moved_away:
            return False
        self._delete_folder(folder)
        return True

    def is_move_committed(self, folder: str) -> bool:
        """Whether the last move of this partition is committed. If so, its earlier folders are not needed."""
        log = self._logs.get(folder)
        return not isinstance(log, MovedLog) or log.is_move_committed

    def remove_future(self, folder: str) -> None:
        """Remove the copy of a partition whose move here was cancelled, if there is one."""
        path = self._futures.pop(folder, None)
        if path is not None:
            self.remove_unfinished(path)

    def remove_unfinished(self, path: str) -> None:
        moved = self.rename_for_removal(os.path.basename(path))
        if moved is not None:
            self.removal.add([moved])

    def sync_names(self) -> None:
        """Sync the data directory, so that the names of its folders are durable. May be called in any thread."""
        with disk_errors(f"sync {self.data_dir}"):
            self._files.fsync_dir(self.data_dir)

    def drop_folder(self, folder: str) -> None:
        """Remove, at a start, a folder whose partition is in another directory."""
        self._delete_folder(folder)
        self.sync_names()

    def metadata(self, folder: str) -> bytes | None:
        path = os.path.join(self.data_dir, folder, METADATA_NAME)
        with disk_errors(f"read {path}"):
            return self._files.read_file(path)

    @property
    def boot_id(self) -> str:
        return self._boot_id

    # --- stop

    def close(self, *, is_clean: bool = True) -> None:
        """Close all logs and unlock the directory. The clean-shutdown file is written if all were closed cleanly."""
        failures: list[DiskFailure] = []
        unclean = set(self._unclean)
        for folder, log in self._logs.items():
            if log.is_closed:
                self._has_parked = True
                continue
            was_sound = log.is_writable
            try:
                log.close(is_clean=is_clean)
            except DiskFailure as error:
                failures.append(error)
            if log.damage is not None:
                unclean.add(folder)  # the next start recovers this log before a client needs it
            elif not was_sound:
                is_clean = False
        self._logs.clear()
        try:
            if is_clean and not failures and self._lock_fd is not None:
                with disk_errors(f"write the clean-shutdown file of {self.data_dir}"):
                    self._mark_clean(unclean)
        finally:
            self._unclean_list.close()
            self.disk_reserve.close()
            if self._owns_list:
                self._list.close()
            if self._lock_fd is not None:
                self._files.unwatch_file_system(self.data_dir)
                self._files.close(self._lock_fd)
                self._lock_fd = None
        if failures:
            raise failures[0]

    def _mark_clean(self, unclean: set[str]) -> None:
        if self._has_parked:
            self._files.syncfs(self.data_dir)  # the checkpoints of parked logs were written without a sync
        if unclean:
            self._unclean_list.start(unclean)
        else:
            self._files.replace_file(os.path.join(self.data_dir, CLEAN_NAME), b"", sync=True)
