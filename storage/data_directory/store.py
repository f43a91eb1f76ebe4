"""The data directory: one folder per partition, one lock for all, and what says how the last run ended.

A partition's folder, ``<topic>-<partition>``, exists only from its first append; until then its log is an object in
memory. ``partition.metadata`` in it names the topic id, in Kafka's own words, so that a folder left over from an
earlier topic of the same name is recognised and moved aside, never served. Deleting renames first and removes the
files off the loop, one folder after the other; what a stop left behind is removed at the next start.

After a clean stop there is a marker, and every log opens from its checkpoint when it is first asked for. Otherwise
:attr:`LogStore.unclean_folders` names those that the last run wrote to, or all of them when that is not known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from storage.disk_reserve import DiskReserve
from storage.errors import (
    DataDirectoryLocked,
    DiskFailure,
    PartitionOffline,
    StorageError,
    StorageFailed,
    disk_errors,
)
from storage.files import Files
from storage.folder_list import FolderList
from storage.folder_removal import FolderRemoval
from storage.log import Log
from storage.log_deletion import LogDeletion
from storage.moving import FUTURE_SUFFIX, MovedLog, check_is_the_log
from storage.partition_metadata import (
    METADATA_NAME,
    TOPIC_ID_BYTES,
    decode_metadata,
    encode_metadata,
    encode_topic_id,
    partition_folder,
    topic_id_text,
)
from storage.recovery import open_log
from storage.set_aside import set_aside
from storage.settings import Background, LogSettings
from storage.syncing import SYNC_FAILED_NAME, mark_sync_failed
from storage.written import WrittenList

LOCK_NAME: Final = ".lock"
CLEAN_NAME: Final = "clean_shutdown"
DELETED_SUFFIX: Final = ".deleted"
STALE_SUFFIX: Final = ".stale"

_PARTITION_FOLDER: Final = re.compile(r".+-\d+")
_FILE_NAME_BYTES_MAX: Final = 255


class LogStore:
    """All logs of one data directory. Call :meth:`lock` first and :meth:`close` last; one thread for everything."""

    def __init__(
        self,
        data_dir: str,
        files: Files,
        background: Background,
        reserve_bytes: int = 0,
        folder_list: FolderList | None = None,
    ) -> None:
        """``reserve_bytes`` are kept free for the work that frees space, see :mod:`storage.disk_reserve`.

        ``folder_list`` is that of several directories, started and closed by the caller.
        """
        self.data_dir = os.path.abspath(data_dir)
        self.disk_reserve = DiskReserve(self.data_dir, files, reserve_bytes)
        self.was_clean = False
        # Folders in which an earlier run was copying a partition that was to move here.
        self.unfinished_futures: list[str] = []
        self._files = files
        self._background = background
        self._lock_fd: int | None = None
        self._boot_id = ""
        self._folders: set[str] = set()
        # Folders that the last run may have left in any state and that were not opened since.
        self._unclean: set[str] = set()
        self._logs: dict[str, Log] = {}
        # Folders of earlier runs that are there for readers, but perhaps not yet on the disk.
        self._loose: set[str] = set()
        # Logs whose folder comes with their first append.
        self._unmade: set[str] = set()
        # Partitions that are on their way to this directory, and the folders in which their copies are made.
        self._futures: dict[str, str] = {}
        # Folders of partitions that have moved away; they are removed soon.
        self._left: set[str] = set()
        self._has_parked = False
        self._written = WrittenList(self.data_dir, files)
        self._owns_list = folder_list is None
        self._list = folder_list or FolderList(self.data_dir, files, background)
        self.removal = FolderRemoval(self.data_dir, files, background)

    # --- start

    def lock(self) -> None:
        """Take the directory for this process, see how the last run ended and remove what it was removing.

        The names in the directory are all that is looked at, however many there are.
        """
        with disk_errors(f"open {self.data_dir}"):
            self._make_data_dir()
            lock_fd = self._files.lock(os.path.join(self.data_dir, LOCK_NAME))
            if lock_fd is None:
                raise DataDirectoryLocked(f"{self.data_dir} is in use by another process")
            try:
                self._files.watch_file_system(self.data_dir)
                self.disk_reserve.open()
                self._look_around()
                if self._owns_list:
                    self._list.start(self._boot_id)
            except BaseException:
                self.disk_reserve.close()
                self._files.unwatch_file_system(self.data_dir)
                self._files.close(lock_fd)
                raise
            self._lock_fd = lock_fd

    def _make_data_dir(self) -> None:
        """With all folders above it; their names have to survive a power cut as well."""
        missing = []
        path = self.data_dir
        while not self._files.exists(path):
            missing.append(path)
            path = os.path.dirname(path)
        if not missing and self._files.exists(os.path.join(self.data_dir, LOCK_NAME)):
            return  # taken before, and so made safe before
        # A start that was killed may have made the lowest folder that is there, and not its name safe.
        with suppress(PermissionError):  # the folder above may be one that is not for us to read, and so not ours
            self._files.fsync_dir(os.path.dirname(path))
        for path in reversed(missing):
            self._files.makedirs(path)
            self._files.fsync_dir(os.path.dirname(path))

    def _look_around(self) -> None:
        self._boot_id = self._files.boot_id()
        names = self._files.listdir(self.data_dir)
        self._folders = set(filter(_PARTITION_FOLDER.fullmatch, names))
        self.was_clean = CLEAN_NAME in names
        if not self.was_clean:
            written = self._read_written()
            self._unclean = set(self._folders) if written is None else self._folders & written
        if SYNC_FAILED_NAME in names:
            # Of which logs it lost something the kernel did not say: each one that was written to is looked at.
            for folder in self._unclean:
                mark_sync_failed(self._files, os.path.join(self.data_dir, folder))
            self._files.unlink(os.path.join(self.data_dir, SYNC_FAILED_NAME))
        self.unfinished_futures = [os.path.join(self.data_dir, name) for name in names if name.endswith(FUTURE_SUFFIX)]
        # The marker goes last: until then the next start finds everything as the clean stop left it.
        try:
            self._written.start(self._unclean)
        except OSError:
            self._written.give_up()
        if self.was_clean:
            self._files.unlink(os.path.join(self.data_dir, CLEAN_NAME))
            self._files.fsync_dir(self.data_dir)
        self.removal.add([os.path.join(self.data_dir, name) for name in names if name.endswith(DELETED_SUFFIX)])

    def _read_written(self) -> frozenset[str] | None:
        try:
            return self._written.read()
        except OSError:
            return None

    def give_up_reserve(self) -> bool:
        """Free some space for a change that leads to more of it; False when nothing is left. In any thread."""
        return self.disk_reserve.give_up()

    @property
    def data_dirs(self) -> tuple[str, ...]:
        return (self.data_dir,)

    @property
    def unclean_folders(self) -> frozenset[str]:
        """The folders whose logs have to be recovered; the others open from their clean checkpoints."""
        return frozenset(self._unclean)

    @property
    def partition_count(self) -> int:
        """Partitions that live here, with a folder or before it."""
        return len(self._folders) + len(self._unmade) + len(self._futures)

    def has_partition(self, folder: str) -> bool:
        return folder in self._folders or folder in self._unmade

    def path_of(self, folder: str) -> str | None:
        """Where the folder of a partition is, if there is one."""
        return os.path.join(self.data_dir, folder) if folder in self._folders else None

    @property
    def partition_folders(self) -> frozenset[str]:
        """The folders of partitions, whether their logs are open or not."""
        return frozenset(self._folders)

    # --- decided at a start, see storage/start_check.py

    def remove_deleted(self, folder: str) -> None:
        """Finish the deletion of a topic that a kill interrupted."""
        self._delete_folder(folder)

    def set_aside(self, folders: Sequence[str], stamp: str) -> str:
        """Move folders to where they are kept and never served; returns the path."""
        path = set_aside(self.data_dir, folders, stamp, self._files)
        for folder in folders:
            self._forget_folder(folder)
        return path

    # --- logs

    def open_log(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings) -> Log:
        """The log of one partition; without a look at the disk when it never had an append."""
        if self._lock_fd is None:
            raise StorageError(f"{self.data_dir} is not locked")
        if len(topic_id) != TOPIC_ID_BYTES:
            raise ValueError(f"a topic id has {TOPIC_ID_BYTES} bytes")
        folder = partition_folder(topic, partition)
        log = self._logs.get(folder)
        if log is not None and log.is_closed:  # parked, and not told to forget_log
            self.forget_log(topic, partition)
            log = None
        if log is None:
            log = self._logs[folder] = self._open(folder, topic_id, settings)
        return log

    def cut_damage(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings) -> Log:
        """Open a log that is damaged at its end anew, without that end: somebody has its records elsewhere."""
        folder = partition_folder(topic, partition)
        log = self._logs.pop(folder, None)
        if log is not None:
            log.close(is_clean=False)
        log = self._logs[folder] = self._open(folder, topic_id, settings, cuts_damage=True)
        return log

    def holds(self, folder: str, topic_id: bytes) -> bool:
        """Whether a folder of this name is here and belongs to this topic."""
        if folder not in self._folders:
            return False
        path = os.path.join(self.data_dir, folder, METADATA_NAME)
        with disk_errors(f"read {path}"):
            return self._files.read_file(path) == encode_metadata(topic_id)

    def _open(self, folder: str, topic_id: bytes, settings: LogSettings, *, cuts_damage: bool = False) -> Log:
        path = os.path.join(self.data_dir, folder)
        note = self._note(folder)
        self._list.check_online(folder)
        if folder in self._folders:
            with disk_errors(f"open {path}"):
                found = self._files.read_file(os.path.join(path, METADATA_NAME))
                if decode_metadata(found) is None and self._list.is_fresh(folder, topic_id):
                    # Its first sync failed, so the disk may not have the file. The list says whose folder it is.
                    found = encode_metadata(topic_id)
                    self._files.replace_file(os.path.join(path, METADATA_NAME), found, sync=True)
                if found == encode_metadata(topic_id):
                    check_is_the_log(path, self._boot_id, self._files)
                    if folder in self._unclean:
                        self._renew_metadata(path, found)
                    log = open_log(
                        path,
                        self._files,
                        self._background,
                        settings,
                        self._boot_id,
                        on_first_append=note,
                        cuts_damage=cuts_damage,
                        was_stopped=folder not in self._unclean,
                    )
                    log.on_folder_durable = partial(self._list.note_safe, folder)
                    if folder in self._unclean and log.synced_offset > log.log_start_offset:
                        # Sealed segments count as durable from now on, so the folder they are in has to be.
                        self._sync_folder(folder)
                    elif folder in self._unclean or not log.segment_count:
                        self._loose.add(folder)
                    self._unclean.discard(folder)
                    return log
                if self._list.has(folder, topic_id, is_there=True):
                    raise self._offline(folder, found)
                self._move_aside(folder, topic_id_text(found), STALE_SUFFIX)
                self._forget_folder(folder)
        elif self._list.has(folder, topic_id, is_there=False):
            raise self._list.take_offline(folder, "its folder is missing", self.data_dir, is_lost=True)
        self._unmade.add(folder)

        def prepare() -> None:
            self._make_folder(folder, topic_id)

        log = Log(
            path,
            self._files,
            self._background,
            settings,
            self._boot_id,
            prepare_directory=prepare,
            on_first_append=note,
        )
        log.on_folder_durable = partial(self._list.note_safe, folder)
        return log

    def _offline(self, folder: str, metadata: bytes | None) -> PartitionOffline:
        if metadata is None and not self._files.exists(os.path.join(self.data_dir, folder)):
            return self._list.take_offline(folder, "its folder is missing", self.data_dir, is_lost=True)
        is_readable = decode_metadata(metadata) is not None
        state = "missing" if metadata is None else "of another topic" if is_readable else "damaged"
        return self._list.take_offline(folder, f"{METADATA_NAME} is {state}", self.data_dir, is_lost=False)

    def _renew_metadata(self, path: str, content: bytes) -> None:
        """Where a sync of it failed in an earlier run, the disk may not have what the cache shows."""
        name = os.path.join(path, METADATA_NAME)
        fd = self._files.open_read(name)
        try:
            self._files.forget(fd, 0, len(content))
            is_there = self._files.pread(fd, len(content), 0) == content
        finally:
            self._files.close(fd)
        if not is_there:
            self._files.replace_file(name, content, sync=True)

    def _note(self, folder: str) -> Callable[[], Callable[[], None]]:
        """What the log does at its first append; its first sync waits for the function that this returns."""

        def sync() -> None:
            self._written.sync()
            if folder in self._loose:
                self._sync_folder(folder)
                self._loose.discard(folder)

        def note() -> Callable[[], None]:
            self._written.note(folder)
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
        self._list.note_safe(folder)

    def _make_folder(self, folder: str, topic_id: bytes) -> None:
        """Called before the first file is made in it; the log's first sync makes the folder and this file durable."""
        path = os.path.join(self.data_dir, folder)
        self._files.makedirs(path)
        # Without a rename, which may wait for the disk: a folder that a kill leaves with half a file is not listed yet,
        # has no records and is moved aside.
        fd = self._files.create(os.path.join(path, METADATA_NAME))
        try:
            self._files.write_all(fd, encode_metadata(topic_id), 0)
        finally:
            self._files.close(fd)
        self._list.note_new(folder, topic_id)
        self._folders.add(folder)
        self._unmade.discard(folder)

    def forget_log(self, topic: str, partition: int) -> None:
        """The log has been parked: it is clean on disk and opened anew when it is asked for again."""
        folder = partition_folder(topic, partition)
        if self._logs.pop(folder, None) is not None:
            self._has_parked = True
        self._unmade.discard(folder)

    def begin_deletion(self, topic: str, partition: int) -> LogDeletion:
        """Close the log and forget the partition; see :mod:`storage.log_deletion`."""
        return LogDeletion(self, partition_folder(topic, partition))

    def delete_log(self, topic: str, partition: int) -> None:
        """The whole deletion at once; waits for the disk, but for the removal of the files."""
        deletion = self.begin_deletion(topic, partition)
        deletion.run()
        deletion.finish()

    def set_deleted(self, name: str) -> str | None:
        """Give a folder the name of one that is to be removed; the new path, None if it is gone. In any thread."""
        path = os.path.join(self.data_dir, name)
        if name.endswith(FUTURE_SUFFIX):
            if not self._files.exists(path):
                return None
            topic_id = "unfinished"
        else:
            found: bytes | None = None
            with suppress(OSError):  # the id is for people: without a descriptor to read it the folder goes as well
                found = self._files.read_file(os.path.join(path, METADATA_NAME))
            topic_id = topic_id_text(found)
        with disk_errors(f"delete {path}"):
            return self._move_aside(name, topic_id, DELETED_SUFFIX)

    def forget_deleted(self, folder: str, moved: Mapping[str, str]) -> None:
        """These folders were renamed by :meth:`set_deleted`: their files are removed."""
        if folder in moved:
            self._forget_folder(folder)
            self._left.discard(folder)
        self.removal.add(list(moved.values()))

    def _delete_folder(self, folder: str) -> None:
        moved = self.set_deleted(folder)
        if moved is not None:
            self.forget_deleted(folder, {folder: moved})

    def _forget_folder(self, folder: str) -> None:
        self._folders.discard(folder)
        self._unclean.discard(folder)
        self._loose.discard(folder)
        self._written.forget(folder)

    def _move_aside(self, folder: str, topic_id: str, suffix: str) -> str:
        ending = f".{topic_id}{suffix}"
        target = os.path.join(self.data_dir, folder[: _FILE_NAME_BYTES_MAX - len(ending)] + ending)
        source = os.path.join(self.data_dir, folder)
        number = 0
        while self._files.exists(target):  # moved aside before, under the same id
            number += 1
            ending = f".{topic_id}.{number}{suffix}"
            target = os.path.join(self.data_dir, folder[: _FILE_NAME_BYTES_MAX - len(ending)] + ending)
        self._files.rename(source, target)
        return target

    # --- moves between directories, see storage/moving.py

    def expect(self, folder: str, topic_id: bytes) -> str:
        """A partition is to move here: the folder for its copy, which is not made yet."""
        if folder in self._folders:  # of an earlier topic of this name, from a time when this directory was offline
            path = os.path.join(self.data_dir, folder)
            with disk_errors(f"move {path} aside"):
                found = self._files.read_file(os.path.join(path, METADATA_NAME))
                self._move_aside(folder, topic_id_text(found), STALE_SUFFIX)
            self._forget_folder(folder)
        ending = f".{encode_topic_id(topic_id)}-{folder.rpartition('-')[2]}{FUTURE_SUFFIX}"
        name = folder[: _FILE_NAME_BYTES_MAX - len(ending)] + ending
        path = self._futures[folder] = os.path.join(self.data_dir, name)
        return path

    def syncing_of(self, folder: str) -> Callable[[], None]:
        """What makes the folder of a partition durable, and whose it is, whatever becomes of its records.

        In any thread; it raises ``OSError`` or :class:`StorageFailed`, and then the log takes no more.
        """
        log = self._logs.get(folder)

        def sync() -> None:
            if log is None:
                self._sync_folder(folder)
                return
            try:
                log.gate.sync(f"sync {log.directory}", self._sync_folder, folder)
            except StorageFailed as error:
                log._refuse_after(error)  # nobody else may have noticed
                raise

        return sync

    def write_metadata(self, path: str, topic_id: bytes) -> None:
        """Say durably whose folder this is. In any thread; raises ``OSError``."""
        self._files.replace_file(os.path.join(path, METADATA_NAME), encode_metadata(topic_id), sync=True)

    def reserve(self, folder: str) -> None:
        """A partition without a folder lives here, unless it is forgotten."""
        self._unmade.add(folder)

    def forget_reservation(self, folder: str) -> None:
        self._unmade.discard(folder)

    def make_empty(self, folder: str, topic_id: bytes) -> None:
        """Make the folder of a partition that has no record yet: from now on it lives here."""
        path = os.path.join(self.data_dir, folder)
        with disk_errors(f"make {path}"):
            self._make_folder(folder, topic_id)

    def sync_empty(self, folder: str) -> None:
        """Make that durable. In any thread."""
        with disk_errors(f"sync {folder} of {self.data_dir}"):
            self._sync_folder(folder)

    def adopt(self, folder: str, log: Log) -> None:
        """The partition has arrived. Raises ``OSError``."""
        self._written.note(folder)
        del self._futures[folder]
        self._folders.add(folder)
        self._logs[folder] = log

    def give_back(self, folder: str, path: str) -> None:
        """It has not arrived after all."""
        self._logs.pop(folder, None)
        self._folders.discard(folder)
        self._futures[folder] = path

    def let_go(self, folder: str) -> None:
        """The partition lives elsewhere from now on; its folder is still here."""
        self._logs.pop(folder, None)
        self._forget_folder(folder)
        self._left.add(folder)

    def sync_written(self) -> None:
        """In any thread; raises ``OSError``."""
        self._written.sync()

    def remove_left(self, folder: str) -> bool:
        """Remove the folder of a partition that has moved away; False if there is none."""
        if folder not in self._left:
            return False
        self._delete_folder(folder)
        return True

    def is_settled(self, folder: str) -> bool:
        """Whether this folder alone is the log of its partition: no earlier one could still be needed."""
        log = self._logs.get(folder)
        return not isinstance(log, MovedLog) or log.is_settled

    def remove_future(self, folder: str) -> None:
        """Remove the copy of a partition that does not move here after all, if there is one."""
        path = self._futures.pop(folder, None)
        if path is not None:
            self.remove_unfinished(path)

    def remove_unfinished(self, path: str) -> None:
        moved = self.set_deleted(os.path.basename(path))
        if moved is not None:
            self.removal.add([moved])

    def sync_names(self) -> None:
        """Make the names of all folders durable. In any thread."""
        with disk_errors(f"sync {self.data_dir}"):
            self._files.fsync_dir(self.data_dir)

    def drop_folder(self, folder: str) -> None:
        """At a start: this folder is not the log of its partition, another directory has it."""
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
        """Close every log and give the directory back; the marker is written only if each of them is safe on disk."""
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
                unclean.add(folder)  # walked again at the next start, before anybody waits for it
            elif not was_sound:
                is_clean = False
        self._logs.clear()
        try:
            if is_clean and not failures and self._lock_fd is not None:
                with disk_errors(f"mark {self.data_dir} clean"):
                    self._mark_clean(unclean)
        finally:
            self._written.close()
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
            self._files.syncfs(self.data_dir)  # parked logs left their checkpoints without waiting for the disk
        if unclean:
            self._written.start(unclean)
        else:
            self._files.replace_file(os.path.join(self.data_dir, CLEAN_NAME), b"", sync=True)
