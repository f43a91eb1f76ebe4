"""The data directory: one folder per partition, one lock for all, and a marker that says how the last run ended.

A partition's folder, ``<topic>-<partition>``, exists only from its first append; until then its log is an object in
memory. ``partition.metadata`` in it names the topic id, in Kafka's own words, so that a folder left over from an
earlier topic of the same name is recognised and moved aside, never served. Deleting renames first and removes the
files off the loop; what a stop left behind is removed at the next start.
"""

from __future__ import annotations

import base64
import os
import re
from contextlib import suppress
from typing import Final

from storage.errors import DataDirectoryLocked, DiskFailure, StorageError, disk_errors
from storage.files import Files
from storage.log import Log
from storage.recovery import open_log
from storage.settings import Background, LogSettings

LOCK_NAME: Final = ".lock"
CLEAN_NAME: Final = "clean_shutdown"
METADATA_NAME: Final = "partition.metadata"
DELETED_SUFFIX: Final = ".deleted"
STALE_SUFFIX: Final = ".stale"

# Kafka's rule for topic names; anything else could leave the data directory.
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION_FOLDER: Final = re.compile(r".+-\d+")
_FILE_NAME_BYTES_MAX: Final = 255
_TOPIC_ID_BYTES: Final = 16


def encode_topic_id(topic_id: bytes) -> str:
    """A topic id as Kafka prints it."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def partition_folder(topic: str, partition: int) -> str:
    if not _TOPIC.fullmatch(topic) or topic in (".", "..") or partition < 0:
        raise ValueError(f"no folder for partition {partition} of topic {topic!r}")
    return f"{topic}-{partition}"


class LogStore:
    """All logs of one data directory. Call :meth:`lock` first and :meth:`close` last; one thread for everything."""

    def __init__(self, data_dir: str, files: Files, background: Background) -> None:
        self.data_dir = os.path.abspath(data_dir)
        self.was_clean = False
        self._files = files
        self._background = background
        self._lock_fd: int | None = None
        self._boot_id = ""
        self._folders: set[str] = set()
        self._logs: dict[str, Log] = {}

    # --- start

    def lock(self) -> None:
        """Take the directory for this process, see how the last run ended and remove what it was removing."""
        with disk_errors(f"open {self.data_dir}"):
            self._files.makedirs(self.data_dir)
            self._lock_fd = self._files.lock(os.path.join(self.data_dir, LOCK_NAME))
            if self._lock_fd is None:
                raise DataDirectoryLocked(f"{self.data_dir} is in use by another process")
            self._boot_id = self._files.boot_id()
            names = self._files.listdir(self.data_dir)
            self.was_clean = CLEAN_NAME in names
            if self.was_clean:
                self._files.unlink(os.path.join(self.data_dir, CLEAN_NAME))
                self._files.fsync_dir(self.data_dir)
        self._folders = {name for name in names if _PARTITION_FOLDER.fullmatch(name)}
        for name in names:
            if name.endswith(DELETED_SUFFIX):
                self._remove_later(os.path.join(self.data_dir, name))

    @property
    def partition_folders(self) -> frozenset[str]:
        """The folders of partitions, whether their logs are open or not."""
        return frozenset(self._folders)

    def remove_unknown(self, known: set[str]) -> list[str]:
        """Delete the folders of partitions that are not known any more; a kill came before their deletion was done.

        Only what says of itself that it is a partition is touched. Returns the names; call it before any log is open.
        """
        removed = []
        for folder in sorted(self._folders - known):
            path = os.path.join(self.data_dir, folder)
            with disk_errors(f"delete {path}"):
                found = self._files.read_file(os.path.join(path, METADATA_NAME))
                if not _names_topic(found):
                    continue
                moved = self._move_aside(folder, _topic_id_text(found), DELETED_SUFFIX)
            self._folders.discard(folder)
            self._remove_later(moved)
            removed.append(folder)
        return removed

    # --- logs

    def open_log(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings) -> Log:
        """The log of one partition; without a look at the disk when it never had an append."""
        if self._lock_fd is None:
            raise StorageError(f"{self.data_dir} is not locked")
        if len(topic_id) != _TOPIC_ID_BYTES:
            raise ValueError(f"a topic id has {_TOPIC_ID_BYTES} bytes")
        folder = partition_folder(topic, partition)
        log = self._logs.get(folder)
        if log is None:
            log = self._logs[folder] = self._open(folder, topic_id, settings)
        return log

    def _open(self, folder: str, topic_id: bytes, settings: LogSettings) -> Log:
        path = os.path.join(self.data_dir, folder)
        if folder in self._folders:
            with disk_errors(f"open {path}"):
                found = self._files.read_file(os.path.join(path, METADATA_NAME))
                if found == _metadata(topic_id):
                    return open_log(path, self._files, self._background, settings, self._boot_id)
                self._move_aside(folder, _topic_id_text(found), STALE_SUFFIX)
                self._folders.discard(folder)

        def prepare() -> None:
            self._make_folder(folder, topic_id)

        return Log(path, self._files, self._background, settings, self._boot_id, prepare_directory=prepare)

    def _make_folder(self, folder: str, topic_id: bytes) -> None:
        path = os.path.join(self.data_dir, folder)
        self._files.makedirs(path)
        self._files.replace_file(os.path.join(path, METADATA_NAME), _metadata(topic_id), sync=False)
        self._folders.add(folder)

        def sync() -> None:
            with suppress(OSError):  # the folder may be deleted again by now
                fd = self._files.open_read(os.path.join(path, METADATA_NAME))
                try:
                    self._files.fsync(fd)
                finally:
                    self._files.close(fd)
                self._files.fsync_dir(path)
                self._files.fsync_dir(self.data_dir)

        self._background(sync)

    def delete_log(self, topic: str, partition: int) -> None:
        """Forget the partition. Slices that readers hold stay good; the files go off the loop."""
        folder = partition_folder(topic, partition)
        log = self._logs.pop(folder, None)
        if log is not None:
            log.close(is_clean=False)
        if folder not in self._folders:
            return
        path = os.path.join(self.data_dir, folder)
        with disk_errors(f"delete {path}"):
            found = self._files.read_file(os.path.join(path, METADATA_NAME))
            moved = self._move_aside(folder, _topic_id_text(found), DELETED_SUFFIX)
        self._folders.discard(folder)
        self._remove_later(moved)

    def _move_aside(self, folder: str, topic_id: str, suffix: str) -> str:
        ending = f".{topic_id}{suffix}"
        target = os.path.join(self.data_dir, folder[: _FILE_NAME_BYTES_MAX - len(ending)] + ending)
        source = os.path.join(self.data_dir, folder)
        number = 0
        while self._files.exists(target):  # moved aside before, under the same id
            number += 1
            ending = f".{topic_id}.{number}{suffix}"
            target = os.path.join(self.data_dir, folder[: _FILE_NAME_BYTES_MAX - len(ending)] + ending)
        self._files.rename(source, target)
        return target

    def _remove_later(self, path: str) -> None:
        def remove() -> None:
            with suppress(OSError):  # what is left is removed at the next start
                for name in self._files.listdir(path):
                    self._files.unlink(os.path.join(path, name))
                self._files.rmdir(path)
                self._files.fsync_dir(self.data_dir)

        self._background(remove)

    # --- stop

    def close(self, *, is_clean: bool = True) -> None:
        """Close every log and give the directory back; the marker is written only if each of them is safe on disk."""
        failures: list[DiskFailure] = []
        for log in self._logs.values():
            was_sound = log.is_writable
            try:
                log.close(is_clean=is_clean)
            except DiskFailure as error:
                failures.append(error)
            if not was_sound and log.damage is None:
                is_clean = False
        self._logs.clear()
        try:
            if is_clean and not failures and self._lock_fd is not None:
                with disk_errors(f"mark {self.data_dir} clean"):
                    self._files.replace_file(os.path.join(self.data_dir, CLEAN_NAME), b"", sync=True)
        finally:
            if self._lock_fd is not None:
                self._files.close(self._lock_fd)
                self._lock_fd = None
        if failures:
            raise failures[0]


def _metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {encode_topic_id(topic_id)}".encode()


def _names_topic(metadata: bytes | None) -> bool:
    return metadata is not None and metadata.startswith(b"version: 0\ntopic_id: ")


def _topic_id_text(metadata: bytes | None) -> str:
    match = re.search(rb"topic_id: ([A-Za-z0-9_-]{1,64})", metadata or b"")
    return match[1].decode() if match else "unknown"
