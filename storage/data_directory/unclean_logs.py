"""Which partitions were written to since the last clean start, so that a crash makes only those be recovered.

One file per data directory: a first line that says what it is, then a line per partition folder, each with its own
CRC. A folder is noted when its log takes its first append of a run, and the note is durable before that append is
acknowledged; :meth:`WrittenList.sync` is part of that log's first sync and shared by everybody who waits. A last line
without its end was torn and never counted. A list that is missing, or that holds anything else which does not fit, is
no answer: then everything is recovered.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from crc32c import crc32c

from storage.files import Files
from storage.line_file import LineFile

WRITTEN_NAME: Final = "written"

_HEAD: Final = b"kwire written 1"
# Folders that are made and deleted all day leave lines behind; with this many to spare the list is written anew.
SPARE_LINES_MAX: Final = 1000


class WrittenList:
    """:meth:`note` and :meth:`forget` belong to the log's thread, :meth:`sync` to any."""

    def __init__(self, data_dir: str, files: Files) -> None:
        self._path = os.path.join(data_dir, WRITTEN_NAME)
        self._data_dir = data_dir
        self._files = files
        self._file = LineFile(self._path, files)
        # Held while the disk is waited for, so never taken by the log's thread while the server runs.
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
        """What the last run noted, or None when the file gives no answer."""
        data = self._files.read_file(self._path)
        return None if data is None else decode_written(data)

    def start(self, names: Iterable[str]) -> None:
        """Begin the list of this run with what is still to be recovered; durable when this returns."""
        self._file.close()
        self._names = set(names)
        self._files.replace_file(self._path, _encode(self._names), sync=True)
        self._open()
        self._synced_bytes = self._file.size_bytes

    def give_up(self) -> None:
        """Have no list in this run, on a disk without room for one: after a crash everything is recovered."""
        self._file.close()
        with suppress(FileNotFoundError):
            self._files.unlink(self._path)
        self._files.fsync_dir(self._data_dir)
        self._is_given_up = True

    def note(self, folder: str) -> None:
        """``folder`` is about to be written to; when this raises ``OSError`` it is not noted and may come again."""
        if folder in self._names or self._is_given_up:
            return
        file = self._file
        with file.lock:
            if file.fd < 0:
                raise OSError(f"{self._path} is closed")
            file.add(_encode_line(folder))
            self._names.add(folder)

    def forget(self, folder: str) -> None:
        """The folder is gone; its line goes when the list is next written anew."""
        self._names.discard(folder)

    def sync(self) -> None:
        """Make everything noted so far durable. After a failed sync the list is never trusted again: this raises.

        Without a descriptor to be had nothing has been synced: this raises ``OSError`` and may be called again.
        """
        file = self._file
        with self._sync_lock:
            self._shorten()
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

    def _shorten(self) -> None:
        """Drop the lines of folders that are gone, once there are many. The caller holds ``_sync_lock``.

        Until it is synced, a power cut leaves the old list, or one that does not count.
        """
        file = self._file
        with file.lock:
            if file.fd < 0 or file.line_count <= 2 * len(self._names) + SPARE_LINES_MAX:
                return
            names, size_bytes, line_count = list(self._names), file.size_bytes, file.line_count
        with suppress(OSError):  # the list in place is as good, only longer
            if file.shorten(_encode(names), len(names), size_bytes, line_count, sync=False):
                self._synced_bytes = 0
                self._is_name_new = True

    def _open(self) -> None:
        file = self._file
        file.fd = self._files.open_write(self._path)
        file.size_bytes = self._files.size(file.fd)
        file.line_count = len(self._names)


def decode_written(data: bytes) -> frozenset[str] | None:
    """The names, or None when these bytes are not a whole list."""
    head, *lines = data.split(b"\n")
    if head != _HEAD or not lines:
        return None
    names = set()
    for line in lines[:-1]:  # behind the last line break lies nothing, or what was torn
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
