"""Removing the folders of deleted partitions, off the loop and one after the other.

What cannot be removed stays in :attr:`FolderRemoval.failed` until it can: :meth:`FolderRemoval.retry` tries again, and
so does the next start of the server.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from storage.files import Files
from storage.settings import Background


class FolderRemoval:
    """May be called from any thread. One job at a time: the other threads are there for other work."""

    def __init__(self, data_dir: str, files: Files, background: Background) -> None:
        self._data_dir = data_dir
        self._files = files
        self._background = background
        self._lock = threading.Lock()
        self._waiting: deque[str] = deque()
        self._is_at_work = False
        # Folders that are still there, and why.
        self.failed: dict[str, OSError] = {}

    def add(self, paths: Iterable[str]) -> None:
        with self._lock:
            self._waiting.extend(paths)
            if self._is_at_work or not self._waiting:
                return
            self._is_at_work = True
        try:
            self._background(self._work)
        except RuntimeError:  # no thread to be had: what is left is removed at the next start
            self._is_at_work = False

    def retry(self) -> None:
        self.add(list(self.failed))

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_at_work = False
                    break
                path = self._waiting.popleft()
            try:
                self._remove(path)
            except OSError as error:
                self.failed[path] = error
            else:
                self.failed.pop(path, None)
        with suppress(OSError):
            self._files.fsync_dir(self._data_dir)

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            for name in self._files.listdir(path):
                self._files.unlink(os.path.join(path, name))
            self._files.rmdir(path)
