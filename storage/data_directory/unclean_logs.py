"""The list of partitions written to since the last clean start. After a crash only those are recovered.

Each data directory has one such file: a header line, then a line per partition folder, each with its own CRC. A folder
is added at the first append of a run, and its line is durable before that append is acknowledged. For that, the log's
first sync calls :meth:`UncleanList.sync`. Concurrent callers share one sync. An incomplete last line is torn and
ignored. If the list is missing or otherwise invalid, all logs are recovered.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from crc32c import crc32c

from storage.disk.files import Files
from storage.disk.line_file import LineFile

WRITTEN_NAME: Final = "written"

_HEAD: Final = b"kwire written 1"
# Deleted folders leave lines in the file. It is rewritten when it has more than 2 * (number of folders) + this many
# lines.
SPARE_LINES_MAX: Final = 1000


class UncleanList:
    """The list of one data directory. :meth:`add` and :meth:`remove` are for the logs' thread, :meth:`sync` for any."""

    def __init__(self, data_dir: str, files: Files) -> None:
        self._path = os.path.join(data_dir, WRITTEN_NAME)
        self._data_dir = data_dir
        self._files = files
        self._file = LineFile(self._path, files)
        # Held while waiting for the disk, so the logs' thread never acquires this lock while the server runs.
        self._sync_lock = threading.Lock()
        self._synced_bytes = 0
        self._is_name_new = False
        self._names: set[str] = set()
        self._failure: OSError | None = None
        self._is_given_up = False

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._names)

    def read(self) -> frozenset[str] | None:
        """The folders that the last run listed, or None if the file is missing or invalid."""
        data = self._files.read_file(self._path)
        return None if data is None else decode_written(data)

    def start(self, names: Iterable[str]) -> None:
        """Begin the list of this run, with the folders that are not recovered yet. The list is durable on return."""
        self._file.close()
        self._names = set(names)
        self._files.replace_file(self._path, _encode(self._names), sync=True)
        self._open()
        self._synced_bytes = self._file.size_bytes

    def disable(self) -> None:
        """Keep no list in this run, because the disk is full. After a crash all logs are recovered."""
        self._file.close()
        with suppress(FileNotFoundError):
            self._files.unlink(self._path)
        self._files.fsync_dir(self._data_dir)
        self._is_given_up = True

    def add(self, folder: str) -> None:
        """Add ``folder`` before it is written to. After an ``OSError`` it is not listed; call again to retry."""
        if folder in self._names or self._is_given_up:
            return
        file = self._file
        with file.lock:
            if file.fd < 0:
                raise OSError(f"{self._path} is closed")
            file.add(_encode_line(folder))
            self._names.add(folder)

    def remove(self, folder: str) -> None:
        """Remove a folder that was deleted. Its line is dropped when the list is next rewritten."""
        self._names.discard(folder)

    def sync(self) -> None:
        """Make all lines so far durable. After a failed sync this and all later calls raise ``OSError``.

        If the sync cannot begin because no descriptor is available, this also raises ``OSError``, but a later call
        tries again.
        """
        file = self._file
        with self._sync_lock:
            self._rewrite_if_long()
            with file.lock:
                if self._failure is not None:
                    raise OSError(*self._failure.args)
                if self._synced_bytes >= file.size_bytes or file.fd < 0:
                    return
                fd, size_bytes = self._files.duplicate(file.fd), file.size_bytes
            folder_fd: int | None = None
            try:
                folder_fd = self._files.open_dir(self._data_dir) if self._is_name_new else None
            except OSError:
                self._files.close(fd)
                raise
            self._is_name_new = False
            try:
                self._files.fdatasync(fd)
                if folder_fd is not None:
                    self._files.fsync_dir(self._data_dir, folder_fd)
            except OSError as error:
                self._failure = error
                raise
            finally:
                self._files.close(fd)
                if folder_fd is not None:
                    self._files.close(folder_fd)
            self._synced_bytes = size_bytes

    def close(self) -> None:
        with self._sync_lock:
            self._file.close()

    def _rewrite_if_long(self) -> None:
        """Rewrite the list without deleted folders, if it is too long. The caller holds ``_sync_lock``.

        Until the new list is synced, a power cut leaves the old list or an invalid one. If the list is invalid,
        all logs are recovered.
        """
        file = self._file
        with file.lock:
            if file.fd < 0 or file.line_count <= 2 * len(self._names) + SPARE_LINES_MAX:
                return
            names, size_bytes, line_count = list(self._names), file.size_bytes, file.line_count
        with suppress(OSError):  # the current list stays valid; it is only longer
            if file.rewrite(_encode(names), len(names), size_bytes, line_count, sync=False):
                self._synced_bytes = 0
                self._is_name_new = True

    def _open(self) -> None:
        file = self._file
        file.fd = self._files.open_write(self._path)
        file.size_bytes = self._files.size(file.fd)
        file.line_count = len(self._names)


def decode_written(data: bytes) -> frozenset[str] | None:
    """The folder names, or None if these bytes are not a valid list."""
    head, *lines = data.split(b"\n")
    if head != _HEAD or not lines:
        return None
    names = set()
    for line in lines[:-1]:  # after the last line break there is nothing, or a torn line
        crc, _, name = line.partition(b" ")
        try:
            if int(crc, 16) != crc32c(name):
                return None
            names.add(name.decode())
        except ValueError:
            return None
    return frozenset(names)


def _encode(names: Iterable[str]) -> bytes:
    return _HEAD + b"\n" + b"".join(map(_encode_line, sorted(names)))


def _encode_line(folder: str) -> bytes:
    name = folder.encode()
    return b"%08x %s\n" % (crc32c(name), name)
