"""The directories of a snapshot: one per data directory, on the same file system, with hard links and small files.

A link keeps the content of a file after the log has removed or replaced the file. Files of logs change in two ways
only: bytes are appended after the end, and zeros after the end are cut off. So the first ``size_bytes`` bytes of a link
never change. The names of the links are numbers, so that one directory without folders holds the links to all logs.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Final, NamedTuple

from storage.disk.files import Files
from storage.errors import DiskFailure

# The next start removes directories with this suffix.
SNAPSHOT_SUFFIX: Final = ".snapshot"
# Errors of file systems that have no hard links, or no more of them for one file.
_NO_LINK_ERRORS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV, errno.ENOSYS})


class LinkedFile(NamedTuple):
    """A file of a snapshot: its name in the log's folder, the path of the link, and the bytes that belong to it."""

    name: str
    path: str
    size_bytes: int


class SnapshotLinks:
    """The directories of one snapshot. The methods may be called in any thread."""

    def __init__(self, snapshot_id: str, data_dirs: Sequence[str], files: Files) -> None:
        self._files = files
        self._numbers = count(1)
        # The number of links and files so far.
        self.count = 0
        self.directories = {data_dir: os.path.join(data_dir, snapshot_id + SNAPSHOT_SUFFIX) for data_dir in data_dirs}

    def create(self) -> None:
        """Create the directories. Raises ``OSError``."""
        for path in self.directories.values():
            self._files.makedirs(path)

    def link(self, source: str, size_bytes: int | None = None) -> LinkedFile:
        """Link a file of a log. Without ``size_bytes``, all its bytes belong to the snapshot.

        Raises ``FileNotFoundError``, or :class:`DiskFailure` if the file system has no hard links.
        """
        path = self._new_path(source)
        try:
            self._files.link(source, path)
        except OSError as error:
            if error.errno in _NO_LINK_ERRORS:
                raise DiskFailure(
                    f"{source}: the file system cannot make a hard link ({error.strerror}); backups need them",
                    error.errno,
                ) from error
            raise
        return LinkedFile(
            os.path.basename(source), path, self._files.size_of(path) if size_bytes is None else size_bytes
        )

    def write(self, source: str, data: bytes) -> LinkedFile:
        """Write a file that the snapshot has instead of ``source``. Raises ``OSError``."""
        path = self._new_path(source)
        fd = self._files.create(path)
        try:
            self._files.write_all(fd, data, 0)
        finally:
            self._files.close(fd)
        return LinkedFile(os.path.basename(source), path, len(data))

    def _new_path(self, source: str) -> str:
        # A log's folder is in a data directory. Files of the node are in the data directory itself.
        parent = os.path.dirname(source)
        directory = self.directories.get(parent) or self.directories[os.path.dirname(parent)]
        self.count = number = next(self._numbers)
        return os.path.join(directory, str(number))

    def unlink(self, paths: Sequence[str]) -> None:
        """Remove links that exist."""
        for path in paths:
            with suppress(FileNotFoundError):
                self._files.unlink(path)

    def names(self) -> list[str]:
        """The paths of all links. Raises ``OSError``."""
        return [
            os.path.join(path, name)
            for path in self.directories.values()
            if self._files.exists(path)
            for name in self._files.listdir(path)
        ]

    def remove_directories(self) -> None:
        """Remove the empty directories. Raises ``OSError``."""
        for path in self.directories.values():
            with suppress(FileNotFoundError):
                self._files.rmdir(path)
