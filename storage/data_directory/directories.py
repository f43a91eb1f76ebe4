"""Several data directories as one. Each is a ``LogStore`` with its own lock, clean-shutdown file and unclean list.

A partition is in the directory that has its folder. A new partition is placed in the directory with the fewest
partitions. The first directory also holds the catalogue and must be available. Any other directory that cannot be
opened is offline. Partitions that may be in an offline directory raise :class:`DiskFailure`, so that they are not
mistaken for empty ones. All other partitions are served. Moves between directories are described in
:mod:`storage.relocation.relocation`. :meth:`LogDirectories.lock` finishes or undoes moves that a crash interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import combinations

from storage.data_directory.disk_reserve import DiskReserve
from storage.data_directory.folder_list import FolderList
from storage.data_directory.partition_metadata import METADATA_NAME, encode_metadata, partition_folder
from storage.data_directory.start_check import DeletedTopic, StartCheck
from storage.data_directory.store import LogStore
from storage.disk.files import Files
from storage.errors import DiskFailure, PartitionOffline, disk_errors
from storage.log.deletion import LogDeletion
from storage.log.log import Log
from storage.log.settings import Background, LogSettings
from storage.relocation.relocation import (
    FUTURE_NOTE,
    MOVED_NOTE,
    MOVING_NOTE,
    LogMove,
    has_note,
    read_future_note,
    resolve_move,
)


class LogDirectories:
    """All data directories of a node, with the methods of a :class:`LogStore`. Used by one thread.

    Call :meth:`lock` first and :meth:`close` last.
    """

    def __init__(self, data_dirs: Sequence[str], files: Files, background: Background, reserve_bytes: int = 0) -> None:
        if not data_dirs:
            raise ValueError("at least one data directory is needed")
        self._list = FolderList(os.path.abspath(data_dirs[0]), files, background)
        self._stores = [LogStore(data_dir, files, background, reserve_bytes, self._list) for data_dir in data_dirs]
        self._files = files
        self._configured = self._list.data_dirs = tuple(store.data_dir for store in self._stores)
        self._offline: dict[str, DiskFailure] = {}
        # Directories that receive no new partitions.
        self.cordoned_dirs: Collection[str] = ()
        # The target directories of unfinished moves, by folder.
        self.unfinished_moves: dict[str, str] = {}
        # Partitions without a folder in any online directory. Their folders may be in an offline directory.
        self._missing: frozenset[str] = frozenset()

    # --- start

    def lock(self) -> None:
        """Lock all directories. Raises if another process uses one of them, or if the first one is not available."""
        first = self._stores[0]
        online: list[LogStore] = []
        try:
            for store in self._stores:
                try:
                    store.lock()
                    online.append(store)
                    if store is first:
                        with disk_errors(f"read the list of folders of {store.data_dir}"):
                            self._list.start(store.boot_id)
                except DiskFailure as error:
                    if store is first:
                        raise
                    self._offline[store.data_dir] = error
        except BaseException:
            self._stores = online
            self.unlock_unchanged()
            raise
        self._stores = online
        self._resolve_moves()

    def _resolve_moves(self) -> None:
        """Finish or undo the moves that a crash interrupted. If that fails, the moved partition is not served."""
        for store in self._stores:
            for path in store.unfinished_futures:
                with suppress(DiskFailure):
                    with disk_errors(f"read {path}"):
                        note = read_future_note(path, self._files)
                    if note is not None and self.path_of(note.folder) is None:
                        continue  # the source of the copy is lost, so this may be the only copy
                    store.remove_unfinished(path)
                    if note is not None:
                        self.unfinished_moves[note.folder] = store.data_dir
        for one, other in combinations(self._stores, 2):
            for folder in one.partition_folders & other.partition_folders:
                with suppress(DiskFailure), disk_errors(f"finish the interrupted move of {folder}"):
                    self._resolve_move(folder, one, other)

    def _resolve_move(self, folder: str, one: LogStore, other: LogStore) -> None:
        if one.metadata(folder) != other.metadata(folder):
            return  # the folders belong to two topics
        if self._is_from(folder, other, one):
            one, other = other, one
        elif not self._is_from(folder, one, other):
            return
        source, target = (os.path.join(store.data_dir, folder) for store in (one, other))
        if resolve_move(source, target, one.boot_id, self._files):
            one.drop_folder(folder)
        else:
            other.drop_folder(folder)
            self.unfinished_moves[folder] = other.data_dir

    def _is_from(self, folder: str, source: LogStore, target: LogStore) -> bool:
        path = os.path.join(source.data_dir, folder)
        return (
            has_note(path, MOVED_NOTE, self._files)
            or has_note(path, MOVING_NOTE, self._files)
            or has_note(os.path.join(target.data_dir, folder), FUTURE_NOTE, self._files)
        )

    @property
    def data_dir(self) -> str:
        """The first directory, which also holds the files of the node as a whole."""
        return self._stores[0].data_dir

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """The directories that are online."""
        return tuple(store.data_dir for store in self._stores)

    @property
    def configured_dirs(self) -> tuple[str, ...]:
        """All configured directories, in their order."""
        return self._configured

    @property
    def offline_dirs(self) -> Mapping[str, DiskFailure]:
        """The directories that are offline, and the error of each."""
        return self._offline

    @property
    def was_clean(self) -> bool:
        return all(store.was_clean for store in self._stores)

    @property
    def partition_folders(self) -> frozenset[str]:
        return frozenset().union(*(store.partition_folders for store in self._stores))

    @property
    def unclean_folders(self) -> frozenset[str]:
        return frozenset().union(*(store.unclean_folders for store in self._stores))

    def path_of(self, folder: str) -> str | None:
        """The path of a partition's folder, if there is one."""
        return next((path for store in self._stores if (path := store.path_of(folder)) is not None), None)

    def check(self, known: Mapping[str, bytes], deleted: Sequence[DeletedTopic]) -> StartCheck:
        """Compare the folders with the partitions of the catalogue (``known``).

        This is the first half of the check. After it, the caller either refuses to start or calls
        :meth:`StartCheck.update_folder_list`.
        """
        if self._offline:
            self._missing = frozenset(known.keys() - self.partition_folders)
        check = StartCheck(self._stores, self._list, self._files, known, deleted)
        check.find_unknown()
        return check

    def set_aside(self, paths: Sequence[str], stamp: str) -> list[str]:
        """Set folders aside: keep them, but do not serve them. Returns the paths of the new folders that hold them."""
        by_dir: dict[str, list[str]] = {}
        for path in paths:
            by_dir.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
        return [self._store_at(data_dir).set_aside(names, stamp) for data_dir, names in by_dir.items()]

    @property
    def offline_partitions(self) -> Mapping[str, PartitionOffline]:
        """The folders of partitions that are not served, and the error of each."""
        return self._list.offline

    @property
    def folder_list(self) -> FolderList:
        return self._list

    def with_wrong_metadata(self, known: Iterable[tuple[str, bytes]]) -> list[str]:
        """The partitions whose ``partition.metadata`` does not have their topic id. May be called in any thread."""
        return [folder for folder, topic_id in known if self._has_wrong_metadata(folder, topic_id)]

    def _has_wrong_metadata(self, folder: str, topic_id: bytes) -> bool:
        path = self.path_of(folder)
        if path is None:
            return False
        try:
            return self._files.read_file(os.path.join(path, METADATA_NAME)) != encode_metadata(topic_id)
        except OSError:
            return True

    def removal_ticket(self) -> tuple[int, ...]:
        """A ticket for :meth:`is_removed`: for each directory, the number of folders queued for removal so far."""
        return tuple(store.removal.added_count for store in self._stores)

    def is_removed(self, ticket: tuple[int, ...]) -> bool:
        """Whether no power cut can bring back folders deleted before the ticket. False if a directory is offline."""
        return not self._offline and all(
            store.removal.done_count >= count for store, count in zip(self._stores, ticket, strict=True)
        )

    # --- logs

    def open_log(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings) -> Log:
        folder = partition_folder(topic, partition)
        return self._store_for(folder, topic_id).open_log(topic, partition, topic_id, settings)

    def truncate_damage(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings) -> Log:
        folder = partition_folder(topic, partition)
        return self._store_for(folder, topic_id).truncate_damage(topic, partition, topic_id, settings)

    def _store_for(self, folder: str, topic_id: bytes) -> LogStore:
        if len(self._stores) == 1 and not self._offline:
            return self._stores[0]
        found = [store for store in self._stores if store.has_partition(folder)]
        if len(found) > 1:
            # One folder belongs to an earlier topic of that name, which was deleted while its directory was offline.
            found = [store for store in found if store.holds(folder, topic_id)] or found
        if found:
            return found[0]
        if folder in self._missing:
            raise DiskFailure(f"{folder} may be in {', '.join(self._offline)}, which cannot be opened")
        return self._least_loaded()

    def _least_loaded(self) -> LogStore:
        # If all directories are cordoned, one of them is used anyway, because an existing partition needs a directory.
        allowed = [store for store in self._stores if store.data_dir not in self.cordoned_dirs] or self._stores
        return min(allowed, key=lambda store: store.partition_count)

    def forget_log(self, topic: str, partition: int) -> None:
        for store in self._stores:
            store.forget_log(topic, partition)

    def begin_deletion(self, topic: str, partition: int) -> list[LogDeletion]:
        """Begin the deletion in all directories that are online.

        The catalogue records the deletion, so an offline directory removes the folder when it is available again.
        """
        self._missing -= {partition_folder(topic, partition)}
        return [store.begin_deletion(topic, partition) for store in self._stores]

    def delete_log(self, topic: str, partition: int) -> None:
        """Delete the log in one call. Waits for the disk, except for the removal of the files."""
        for deletion in self.begin_deletion(topic, partition):
            deletion.run()
            deletion.finish()

    # --- space

    @property
    def reserves(self) -> tuple[DiskReserve, ...]:
        """The disk reserve of each directory."""
        return tuple(store.disk_reserve for store in self._stores)

    def release_reserve(self) -> bool:
        """Release a piece of the disk reserve of the first directory, which holds the catalogue."""
        return self._stores[0].release_reserve()

    @property
    def failed_removals(self) -> Mapping[str, OSError]:
        """Folders of deleted partitions that could not be removed, and the error of each."""
        return {path: error for store in self._stores for path, error in store.removal.failed.copy().items()}

    def retry_removals(self) -> None:
        for store in self._stores:
            store.removal.retry()

    # --- moves

    def directory_of(self, folder: str, topic_id: bytes) -> str | None:
        """The directory of a partition, or None. Raises :class:`DiskFailure` if the partition may be offline."""
        self._list.check_online(folder)
        if len(self._stores) == 1 and not self._offline:
            return self._stores[0].data_dir
        found = [store for store in self._stores if store.has_partition(folder)]
        if not found and folder not in self._missing:
            return None
        return self._store_for(folder, topic_id).data_dir

    def begin_move(self, folder: str, topic_id: bytes, data_dir: str) -> LogMove:
        """Begin to move a partition, which must have a folder, to ``data_dir``. Next, call ``prepare`` in a thread.

        Remains of an earlier move are removed first: if three directories had a folder of the partition, the next start
        could not decide which folder is the log.
        """
        source = self._store_for(folder, topic_id)
        if not source.is_move_committed(folder):
            raise DiskFailure(f"the last move of {folder}, to {source.data_dir}, is not committed yet; try again later")
        cleared = [store.data_dir for store in self._stores if store.remove_moved(folder)]
        return LogMove(source, self._store_at(data_dir), folder, topic_id, self._files, cleared)

    def assign_directory(self, folder: str, topic_id: bytes) -> str:
        """The directory of a partition, as :meth:`directory_of`. Assigns a directory if the partition has none."""
        data_dir = self.directory_of(folder, topic_id)
        if data_dir is None:
            store = self._least_loaded()
            store.reserve(folder)
            data_dir = store.data_dir
        return data_dir

    def create_empty(self, folder: str, topic_id: bytes, data_dir: str) -> None:
        """Create the folder of a partition that has no folder, in ``data_dir``. Its log is not opened."""
        for store in self._stores:
            store.forget_reservation(folder)
        self._store_at(data_dir).create_empty(folder, topic_id)

    def sync_empty(self, folder: str, data_dir: str) -> None:
        """Make the folder from :meth:`create_empty` durable. May be called in any thread."""
        self._store_at(data_dir).sync_empty(folder)

    def space(self, data_dir: str) -> tuple[int, int]:
        """(size, free bytes) of the volume that holds a directory. May be called in any thread."""
        with disk_errors(f"read the free space of {data_dir}"):
            return self._files.space(data_dir)

    def _store_at(self, data_dir: str) -> LogStore:
        return next(store for store in self._stores if store.data_dir == data_dir)

    # --- stop

    def unlock_unchanged(self) -> None:
        """Unlock the directories after a start that was refused. The next start finds them unchanged."""
        for store in self._stores:
            store.close(is_clean=store.was_clean)
        self._list.close()

    def close(self, *, is_clean: bool = True) -> None:
        """Close all directories, even if one fails. Then raise the first error."""
        failures = []
        for store in self._stores:
            try:
                store.close(is_clean=is_clean)
            except DiskFailure as error:
                failures.append(error)
        with suppress(OSError):  # the next start restores missing lines from the folders
            self._list.sync()
        self._list.close()
        if failures:
            raise failures[0]
