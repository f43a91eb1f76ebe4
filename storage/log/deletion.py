"""Deleting the log of one partition in three steps, so that the logs' thread does not wait for the disk.

:class:`LogDeletion` closes the log. :meth:`LogDeletion.run` renames its folders out of the way, in any thread. Then
:meth:`LogDeletion.finish`, in the logs' thread, forgets them and hands them to the removal of their files. Nothing may
open a log of that partition in between.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from storage.errors import DiskFailure

if TYPE_CHECKING:
    from storage.store import LogStore


class LogDeletion:
    """One deletion in one data directory. Slices that readers hold stay good."""

    def __init__(self, store: LogStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        log = store._logs.pop(folder, None)
        if log is not None:
            log.close(is_clean=False)
        store._unmade.discard(folder)
        self._is_listed = folder in store._folders or folder in store._list.offline
        self._names = [folder] if folder in store._folders or folder in store._left else []
        future = store._futures.pop(folder, None)
        if future is not None:
            self._names.append(os.path.basename(future))
        # The paths that the folders have got, by name.
        self._moved: dict[str, str] = {}
        self._failure: DiskFailure | None = None

    def run(self) -> None:
        """Rename the folders. In any thread; what fails is raised by :meth:`finish`."""
        for name in self._names:
            try:
                moved = self._store.set_deleted(name)
            except DiskFailure as error:
                self._failure = self._failure or error
            else:
                if moved is not None:
                    self._moved[name] = moved

    def finish(self) -> None:
        """Forget what was renamed. Raises :class:`DiskFailure` if a folder could not be: the next start removes it."""
        self._store.forget_deleted(self._folder, self._moved)
        if self._failure is not None:
            raise self._failure
        if self._is_listed:
            self._store._list.forget(self._folder)


class WorkingLog(Protocol):
    """A log, or a handle of one."""

    def end_background_work(self) -> None: ...


def end_background_work(logs: Iterable[WorkingLog]) -> None:
    """Wait until no job is at work on files of these logs, so that closing them does not wait. In any thread."""
    for log in logs:
        log.end_background_work()


def run_all(deletions: Iterable[LogDeletion]) -> None:
    """In any thread."""
    for deletion in deletions:
        deletion.run()
