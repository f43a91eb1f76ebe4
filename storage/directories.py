"""Several data directories as one: each is a :class:`~storage.store.LogStore` with its own lock, marker and list.

A partition lives where its folder is; a new one goes where the fewest partitions are. The first directory holds the
catalogue too and has to be there. Any other that cannot be opened is offline: the partitions that may be in it answer
with :class:`DiskFailure`, so nobody mistakes them for empty, and all others are served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.errors import DiskFailure
from storage.files import Files
from storage.log import Log
from storage.settings import Background, LogSettings
from storage.store import LogStore, partition_folder


class LogDirectories:
    """The same calls as a single store has: :meth:`lock` first, :meth:`close` last, one thread for everything."""

    def __init__(self, data_dirs: Sequence[str], files: Files, background: Background) -> None:
        if not data_dirs:
            raise ValueError("at least one data directory is needed")
        self._stores = [LogStore(data_dir, files, background) for data_dir in data_dirs]
        self._offline: dict[str, DiskFailure] = {}
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
                except DiskFailure as error:
                    if store is first:
                        raise
                    self._offline[store.data_dir] = error
        except BaseException:
            for store in online:
                store.close(is_clean=store.was_clean)
            raise
        self._stores = online

    @property
    def data_dir(self) -> str:
        """The first directory, which holds what belongs to the node as a whole."""
        return self._stores[0].data_dir

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """Those that are served."""
        return tuple(store.data_dir for store in self._stores)

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

    def remove_unknown(self, known: set[str]) -> list[str]:
        """As in a single store. ``known`` also tells which partitions may be in a directory that is offline."""
        if self._offline:
            self._missing = frozenset(known - self.partition_folders)
        return sorted(name for store in self._stores for name in store.remove_unknown(known))

    # --- logs

    def open_log(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings) -> Log:
        folder = partition_folder(topic, partition)
        return self._store_for(folder, topic_id).open_log(topic, partition, topic_id, settings)

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
        return min(self._stores, key=lambda store: store.partition_count)

    def forget_log(self, topic: str, partition: int) -> None:
        for store in self._stores:
            store.forget_log(topic, partition)

    def delete_log(self, topic: str, partition: int) -> None:
        """Also in a directory that is offline: there the folder goes when it is back, as unknown."""
        self._missing -= {partition_folder(topic, partition)}
        for store in self._stores:
            store.delete_log(topic, partition)

    # --- stop

    def close(self, *, is_clean: bool = True) -> None:
        """Close them all, whatever becomes of one; then the first failure is told."""
        failures = []
        for store in self._stores:
            try:
                store.close(is_clean=is_clean)
            except DiskFailure as error:
                failures.append(error)
        if failures:
            raise failures[0]
