"""Several data directories as one: each is a :class:`~storage.store.LogStore` with its own lock, marker and list.

A partition lives where its folder is; a new one goes where the fewest partitions are. The first directory holds the
catalogue too and has to be there. Any other that cannot be opened is offline: the partitions that may be in it answer
with :class:`DiskFailure`, so nobody mistakes them for empty, and all others are served. How a partition gets from one
directory to another is told in :mod:`storage.moving`; what a crash left of that is sorted out when they are locked.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import combinations

from storage.disk_reserve import DiskReserve
from storage.errors import DiskFailure, PartitionOffline, disk_errors
from storage.files import Files
from storage.folder_list import FolderList
from storage.log import Log
from storage.log_deletion import LogDeletion
from storage.moving import FUTURE_NOTE, MOVED_NOTE, MOVING_NOTE, LogMove, arrived, has_note, read_future_note
from storage.partition_metadata import METADATA_NAME, encode_metadata, partition_folder
from storage.settings import Background, LogSettings
from storage.start_check import DeletedTopic, StartCheck
from storage.store import LogStore


class LogDirectories:
    """The same calls as a single store has: :meth:`lock` first, :meth:`close` last, one thread for everything."""

    def __init__(self, data_dirs: Sequence[str], files: Files, background: Background, reserve_bytes: int = 0) -> None:
        if not data_dirs:
            raise ValueError("at least one data directory is needed")
        self._list = FolderList(os.path.abspath(data_dirs[0]), files, background)
        self._stores = [LogStore(data_dir, files, background, reserve_bytes, self._list) for data_dir in data_dirs]
        self._files = files
        self._configured = self._list.data_dirs = tuple(store.data_dir for store in self._stores)
        self._offline: dict[str, DiskFailure] = {}
        # Directories that get no new partitions.
        self.cordoned_dirs: Collection[str] = ()
        # Partitions that were to move, by their folder, and the directory that they were to move to.
        self.unfinished_moves: dict[str, str] = {}
        # While a directory is offline: partitions that are in none of the others. They may be in that one.
        self._missing: frozenset[str] = frozenset()

    # --- start

    def lock(self) -> None:
        """Take all directories. Another process in one of them, or no first one, is an error of the whole start."""
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
            self.leave_as_found()
            raise
        self._stores = online
        self._sort_out_moves()

    def _sort_out_moves(self) -> None:
        """Finish, or take back, what a crash left of moves. Where that fails the partition is not served."""
        for store in self._stores:
            for path in store.unfinished_futures:
                with suppress(DiskFailure):
                    with disk_errors(f"read {path}"):
                        note = read_future_note(path, self._files)
                    if note is not None and self.path_of(note.folder) is None:
                        continue  # the log that it was copied from is lost: this may be all that is left of it
                    store.remove_unfinished(path)
                    if note is not None:
                        self.unfinished_moves[note.folder] = store.data_dir
        for one, other in combinations(self._stores, 2):
            for folder in one.partition_folders & other.partition_folders:
                with suppress(DiskFailure), disk_errors(f"sort out {folder}"):
                    self._sort_out(folder, one, other)

    def _sort_out(self, folder: str, one: LogStore, other: LogStore) -> None:
        if one.metadata(folder) != other.metadata(folder):
            return  # of two topics
        if self._is_from(folder, other, one):
            one, other = other, one
        elif not self._is_from(folder, one, other):
            return
        source, target = (os.path.join(store.data_dir, folder) for store in (one, other))
        if arrived(source, target, one.boot_id, self._files):
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
        """The first directory, which holds what belongs to the node as a whole."""
        return self._stores[0].data_dir

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """Those that are served."""
        return tuple(store.data_dir for store in self._stores)

    @property
    def configured_dirs(self) -> tuple[str, ...]:
        """All of them, in the order in which they were named."""
        return self._configured

    @property
    def offline_dirs(self) -> Mapping[str, DiskFailure]:
        """Those that are not, and why."""
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
        """Where the folder of a partition is, if there is one."""
        return next((path for store in self._stores if (path := store.path_of(folder)) is not None), None)

    def check(self, known: Mapping[str, bytes], deleted: Sequence[DeletedTopic]) -> StartCheck:
        """Compare the folders with the catalogue. ``known`` also says which partitions may be in an offline directory.

        Only the first half is done: the caller refuses to start on unknown folders, or calls :meth:`StartCheck.settle`.
        """
        if self._offline:
            self._missing = frozenset(known.keys() - self.partition_folders)
        check = StartCheck(self._stores, self._list, self._files, known, deleted)
        check.find_unknown()
        return check

    def set_aside(self, paths: Sequence[str], stamp: str) -> list[str]:
        """Keep folders, and never serve them; returns where they are now."""
        by_dir: dict[str, list[str]] = {}
        for path in paths:
            by_dir.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
        return [self._store_at(data_dir).set_aside(names, stamp) for data_dir, names in by_dir.items()]

    @property
    def offline_partitions(self) -> Mapping[str, PartitionOffline]:
        """The folders of partitions that are not served, and why."""
        return self._list.offline

    @property
    def folder_list(self) -> FolderList:
        return self._list

    def with_odd_metadata(self, known: Iterable[tuple[str, bytes]]) -> list[str]:
        """Those of these partitions whose folder does not say that it is theirs. In any thread."""
        return [folder for folder, topic_id in known if self._is_odd(folder, topic_id)]

    def _is_odd(self, folder: str, topic_id: bytes) -> bool:
        path = self.path_of(folder)
        if path is None:
            return False
        try:
            return self._files.read_file(os.path.join(path, METADATA_NAME)) != encode_metadata(topic_id)
        except OSError:
            return True

    def removal_ticket(self) -> tuple[int, ...]:
        """What :meth:`is_removed` needs to say whether everything deleted until now is gone."""
        return tuple(store.removal.added_count for store in self._stores)

    def is_removed(self, ticket: tuple[int, ...]) -> bool:
        """Whether no folder that was deleted before the ticket can come back. Never while a directory is offline."""
        return not self._offline and all(
            store.removal.done_count >= count for store, count in zip(self._stores, ticket, strict=True)
        )

    # --- logs

    def open_log(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings) -> Log:
        folder = partition_folder(topic, partition)
        return self._store_for(folder, topic_id).open_log(topic, partition, topic_id, settings)

    def cut_damage(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings) -> Log:
        folder = partition_folder(topic, partition)
        return self._store_for(folder, topic_id).cut_damage(topic, partition, topic_id, settings)

    def _store_for(self, folder: str, topic_id: bytes) -> LogStore:
        if len(self._stores) == 1 and not self._offline:
            return self._stores[0]
        found = [store for store in self._stores if store.has_partition(folder)]
        if len(found) > 1:
            # One of them is of an earlier topic of that name, from a time when its directory was offline.
            found = [store for store in found if store.holds(folder, topic_id)] or found
        if found:
            return found[0]
        if folder in self._missing:
            raise DiskFailure(f"{folder} may be in {', '.join(self._offline)}, which cannot be opened")
        return self._roomiest()

    def _roomiest(self) -> LogStore:
        # With all of them cordoned somebody has to take it: a partition that exists has to be somewhere.
        allowed = [store for store in self._stores if store.data_dir not in self.cordoned_dirs] or self._stores
        return min(allowed, key=lambda store: store.partition_count)

    def forget_log(self, topic: str, partition: int) -> None:
        for store in self._stores:
            store.forget_log(topic, partition)

    def begin_deletion(self, topic: str, partition: int) -> list[LogDeletion]:
        """Also in a directory that is offline: there the folder goes when it is back, by the note of the deletion."""
        self._missing -= {partition_folder(topic, partition)}
        return [store.begin_deletion(topic, partition) for store in self._stores]

    def delete_log(self, topic: str, partition: int) -> None:
        """The whole deletion at once; waits for the disk, but for the removal of the files."""
        for deletion in self.begin_deletion(topic, partition):
            deletion.run()
            deletion.finish()

    # --- space

    @property
    def reserves(self) -> tuple[DiskReserve, ...]:
        """The space that is kept in each directory for the work that frees space."""
        return tuple(store.disk_reserve for store in self._stores)

    def give_up_reserve(self) -> bool:
        """As in a single store, of the first directory, which holds the catalogue."""
        return self._stores[0].give_up_reserve()

    @property
    def failed_removals(self) -> Mapping[str, OSError]:
        """Folders of deleted partitions that are still there, and why."""
        return {path: error for store in self._stores for path, error in store.removal.failed.copy().items()}

    def retry_removals(self) -> None:
        for store in self._stores:
            store.removal.retry()

    # --- moves

    def directory_of(self, folder: str, topic_id: bytes) -> str | None:
        """Where a partition lives; None if nobody has used it yet. Raises :class:`DiskFailure` if it may be offline."""
        self._list.check_online(folder)
        if len(self._stores) == 1 and not self._offline:
            return self._stores[0].data_dir
        found = [store for store in self._stores if store.has_partition(folder)]
        if not found and folder not in self._missing:
            return None
        return self._store_for(folder, topic_id).data_dir

    def begin_move(self, folder: str, topic_id: bytes, data_dir: str) -> LogMove:
        """Its ``prepare`` comes next, in a thread. The partition has a folder, and ``data_dir`` is another one.

        What an earlier move has left goes first: of three folders nobody could tell after a crash which one counts.
        """
        source = self._store_for(folder, topic_id)
        if not source.is_settled(folder):
            raise DiskFailure(f"{folder} has not settled in {source.data_dir} yet, and stays there until it has")
        cleared = [store.data_dir for store in self._stores if store.remove_left(folder)]
        return LogMove(source, self._store_at(data_dir), folder, topic_id, self._files, cleared)

    def place(self, folder: str, topic_id: bytes) -> str:
        """As :meth:`directory_of`; one that nobody has used yet gets its place now."""
        data_dir = self.directory_of(folder, topic_id)
        if data_dir is None:
            store = self._roomiest()
            store.reserve(folder)
            data_dir = store.data_dir
        return data_dir

    def make_empty(self, folder: str, topic_id: bytes, data_dir: str) -> None:
        """Let a partition that has no folder live there; its log is not open."""
        for store in self._stores:
            store.forget_reservation(folder)
        self._store_at(data_dir).make_empty(folder, topic_id)

    def sync_empty(self, folder: str, data_dir: str) -> None:
        """Make that durable. In any thread."""
        self._store_at(data_dir).sync_empty(folder)

    def space(self, data_dir: str) -> tuple[int, int]:
        """Bytes of the volume a directory is on, and how many of them can still be used. In any thread."""
        with disk_errors(f"look at {data_dir}"):
            return self._files.space(data_dir)

    def _store_at(self, data_dir: str) -> LogStore:
        return next(store for store in self._stores if store.data_dir == data_dir)

    # --- stop

    def leave_as_found(self) -> None:
        """Give the directories back after a start that was refused: the next one finds them as this one did."""
        for store in self._stores:
            store.close(is_clean=store.was_clean)
        self._list.close()

    def close(self, *, is_clean: bool = True) -> None:
        """Close them all, whatever becomes of one; then the first failure is told."""
        failures = []
        for store in self._stores:
            try:
                store.close(is_clean=is_clean)
            except DiskFailure as error:
                failures.append(error)
        with suppress(OSError):  # what it would have said is read off the folders at the next start
            self._list.sync()
        self._list.close()
        if failures:
            raise failures[0]
