"""Removing the folders of deleted partitions, off the loop and one after the other.

What cannot be removed stays in :attr:`FolderRemoval.failed` until it can: :meth:`FolderRemoval.retry` tries again, and
so does the next start of the server.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from storage.background import delete_lane
from storage.files import Files
from storage.settings import Background

# While many folders are removed, their directory is synced after this many.
REMOVALS_PER_SYNC: Final = 256
# Folders that one job removes; then other deletions have their turn.
FOLDERS_PER_JOB: Final = 32


class FolderRemoval:
    """May be called from any thread. One job at a time: the other threads are there for other work."""

    def __init__(self, data_dir: str, files: Files, background: Background) -> None:
        self._data_dir = data_dir
        self._files = files
        self._background = delete_lane(background)
        self._lock = threading.Lock()
        self._waiting: deque[str] = deque()
        self._is_at_work = False
        # Folders that are still there, and why.
        self.failed: dict[str, OSError] = {}
        self._taken_count = 0
        # Folders that were added so far, and how many of them cannot come back under their old names.
        self.added_count = 0
        self.done_count = 0

    def add(self, paths: Sequence[str]) -> None:
        with self._lock:
            self._waiting.extend(paths)
            self.added_count += len(paths)
            if self._is_at_work or not self._waiting:
                return
            self._is_at_work = True
        self._submit()

    def _submit(self) -> None:
        try:
            self._background(self._work)
        except RuntimeError:  # no thread to be had: what is left goes with the next addition, or at the next start
            self._is_at_work = False

    def retry(self) -> None:
        self.add(list(self.failed))

    def _work(self) -> None:
        for _ in range(FOLDERS_PER_JOB):
            with self._lock:
                if not self._waiting:
                    break
                path = self._waiting.popleft()
                self._taken_count += 1
                is_sync_due = self._taken_count - self.done_count > REMOVALS_PER_SYNC
            if is_sync_due:
                self._sync()
            try:
                self._remove(path)
            except OSError as error:
                self.failed[path] = error
            else:
                self.failed.pop(path, None)
        with self._lock:
            is_more = bool(self._waiting)
            if not is_more:
                self._is_at_work = False
        if is_more:
            self._submit()
        else:
            self._sync()

    def _sync(self) -> None:
        with suppress(OSError):  # the next one makes up for it
            taken_count = self._taken_count
            self._files.fsync_dir(self._data_dir)
            self.done_count = max(self.done_count, taken_count)

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            for name in self._files.listdir(path):
                self._files.unlink(os.path.join(path, name))
            self._files.rmdir(path)
