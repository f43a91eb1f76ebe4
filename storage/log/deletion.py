"""Deletes the log of one partition in three steps, so that the logs' thread does not wait for the disk.

Creating a :class:`LogDeletion` closes the log. :meth:`LogDeletion.run` renames the log's folders, in any thread. Then
:meth:`LogDeletion.finish`, on the logs' thread, removes them from the store's lists and queues them for removal. No log
of that partition may be opened in between.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from storage.errors import DiskFailure

if TYPE_CHECKING:
    from storage.data_directory.store import LogStore


class LogDeletion:
    """One deletion in one data directory. Slices that readers hold stay valid."""

    def __init__(self, store: LogStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        log = store._logs.pop(folder, None)
        if log is not None:
            log.close(is_clean=False)
        store._without_folder.discard(folder)
        self._is_listed = folder in store._folders or folder in store._list.offline
        self._names = [folder] if folder in store._folders or folder in store._moved_away else []
        future = store._futures.pop(folder, None)
        if future is not None:
            self._names.append(os.path.basename(future))
        # The new paths of the renamed folders, by old name.
        self._moved: dict[str, str] = {}
        self._failure: DiskFailure | None = None

    def run(self) -> None:
        """Rename the folders. May be called in any thread. :meth:`finish` raises the first error."""
        for name in self._names:
            try:
                moved = self._store.rename_for_removal(name)
            except DiskFailure as error:
                self._failure = self._failure or error
            else:
                if moved is not None:
                    self._moved[name] = moved

    def finish(self) -> None:
        """Remove the renamed folders from the store's lists. Raises :class:`DiskFailure` if a folder was not renamed.

        The next start removes a folder that was not renamed.
        """
        self._store.queue_removal(self._folder, self._moved)
        if self._failure is not None:
            raise self._failure
        if self._is_listed:
            self._store._list.forget(self._folder)


class WorkingLog(Protocol):
    """A log, or an object that wraps one."""

    def end_background_work(self) -> None: ...


def end_background_work(logs: Iterable[WorkingLog]) -> None:
    """Wait for the background jobs of these logs, so that closing them does not wait. May be called in any thread."""
    for log in logs:
        log.end_background_work()


def run_all(deletions: Iterable[LogDeletion]) -> None:
    """Run all deletions. May be called in any thread."""
    for deletion in deletions:
        deletion.run()
