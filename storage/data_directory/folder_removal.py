"""Removes the folders of deleted partitions in the background, one after the other.

Folders that cannot be removed stay in :attr:`FolderRemoval.failed`. :meth:`FolderRemoval.retry` and the next start of
the server try to remove them again.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from storage.disk.background import delete_lane
from storage.disk.files import Files
from storage.log.settings import Background

# The data directory is synced after this many removals.
REMOVALS_PER_SYNC: Final = 256
# One job removes at most this many folders. Then other jobs of the lane run.
FOLDERS_PER_JOB: Final = 32


class FolderRemoval:
    """A queue of folders to remove, for any thread. One job runs at a time, so that other threads stay free."""

    def __init__(self, data_dir: str, files: Files, background: Background) -> None:
        self._data_dir = data_dir
        self._files = files
        self._background = delete_lane(background)
        self._lock = threading.Lock()
        self._waiting: deque[str] = deque()
        self._is_running = False
        # Folders that could not be removed, and the error of each.
        self.failed: dict[str, OSError] = {}
        self._taken_count = 0
        # The number of folders added so far, and of those that cannot reappear under their old names after a power cut.
        self.added_count = 0
        self.done_count = 0

    def add(self, paths: Sequence[str]) -> None:
        with self._lock:
            self._waiting.extend(paths)
            self.added_count += len(paths)
            if self._is_running or not self._waiting:
                return
            self._is_running = True
        self._submit()

    def _submit(self) -> None:
        try:
            self._background(self._work)
        except RuntimeError:  # no thread available: the next add, or the next start, removes the rest
            self._is_running = False

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
                self._is_running = False
        if is_more:
            self._submit()
        else:
            self._sync()

    def _sync(self) -> None:
        with suppress(OSError):  # the next sync covers these removals
            taken_count = self._taken_count
            self._files.fsync_dir(self._data_dir)
            self.done_count = max(self.done_count, taken_count)

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            for name in self._files.listdir(path):
                self._files.unlink(os.path.join(path, name))
            self._files.rmdir(path)
