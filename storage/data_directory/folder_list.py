"""The list of partitions that have a folder, so that a lost folder is not mistaken for one that never existed.

The list is one file in the first data directory, for the partitions of all directories. The file has a header line and
then lines with a CRC each. Lines are only appended:

    new BOOT_ID TOPIC_ID FOLDER    the folder was created, and may not be durable
    safe TOPIC_ID FOLDER           the folder is durable
    gone FOLDER                    the partition was deleted

Only the last line about a folder is used. A ``new`` line is used only until the machine boots again, because until then
the page cache is intact. After a power cut, the folder may have been lost before anything in it was acknowledged. So no
line has to be synced when it is written. Damaged lines are skipped and reported. At a start, the server adds folders
that exist and are not in the list.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Final

from crc32c import crc32c

from storage.data_directory.disk_reserve import run_with_reserve
from storage.disk.files import Files
from storage.disk.line_file import LineFile
from storage.errors import PartitionOffline
from storage.log.settings import Background

FOLDERS_NAME: Final = "folders"

_HEAD: Final = b"kwire folders 1"
_CRC_CHARACTERS: Final = 9
# The list is rewritten when it has more than 2 * (number of folders) + this many lines.
SPARE_LINES_MAX: Final = 10_000


class FolderList:
    """The folder list, for the logs' thread. ``offline`` has the error of each partition that is not served.

    Until :meth:`finish_start` the whole list is in memory. Afterwards, only the differences between the list and the
    folders on disk are.
    """

    def __init__(self, data_dir: str, files: Files, background: Background) -> None:
        self._path = os.path.join(data_dir, FOLDERS_NAME)
        self._data_dir = data_dir
        self._files = files
        self._background = background
        self._boot_id = ""
        # All data directories of the node. Error messages name them.
        self.data_dirs: Sequence[str] = (data_dir,)
        self._is_closed = True
        self._file = LineFile(self._path, files)
        self._folder_count = 0
        self._is_rewriting = False
        self._ids: dict[str, bytes] | None = {}
        # Folders created in this boot that may not be durable, and their topic ids.
        self._fresh: dict[str, bytes] = {}
        self._lost: set[str] = set()
        self._unlisted: set[str] = set()
        self.offline: dict[str, PartitionOffline] = {}
        self.is_missing = False
        self.damaged_line_count = 0

    def start(self, boot_id: str) -> None:
        """Read the list of the last run and continue it. Raises ``OSError``."""
        self._boot_id = boot_id
        data = self._files.read_file(self._path)
        self.is_missing = data is None
        found = _DecodedList(data or b"", boot_id)
        self._ids, self._fresh = found.ids, found.fresh
        self._file.line_count, self._folder_count = found.line_count, len(found.ids)
        self.damaged_line_count = found.damaged_count + (data == b"")
        self._is_closed = False
        with suppress(OSError):  # on a full disk the file is created with the first line
            if data is None:
                # The file is durable before any folder is created: after a power cut the list must not seem to be lost.
                run_with_reserve(self._files, self._path, lambda: self._replace({}))
            self._open_file()

    @property
    def path(self) -> str:
        return self._path

    @property
    def is_complete(self) -> bool:
        """Whether the list is intact. Then a folder that is not listed was never in use."""
        return not self.is_missing and not self.damaged_line_count

    @property
    def ids(self) -> Mapping[str, bytes]:
        """The topic ids by folder that the last run listed; empty after :meth:`finish_start`."""
        return self._ids or {}

    def finish_start(
        self, entries: Mapping[str, bytes], lost: Iterable[str], unlisted: Iterable[str], fresh: Iterable[str] = ()
    ) -> None:
        """Set the list of this run, at the end of a start.

        ``entries`` are the partitions that have a folder or have lost it (``lost``). ``unlisted`` are existing folders
        that belong to no partition, ``fresh`` are folders that may not be durable.
        """
        self._lost, self._unlisted = set(lost), set(unlisted)
        self._fresh.update((folder, entries[folder]) for folder in fresh)
        if entries != self._ids or self._file.line_count > len(entries) or self.damaged_line_count:
            # On a full disk the old list stays in use: each of its lines is still true.
            with suppress(OSError):
                run_with_reserve(self._files, self._path, lambda: self._replace(entries))
        self._folder_count = len(entries)
        self._ids = None

    def has(self, folder: str, topic_id: bytes, *, is_there: bool) -> bool:
        """Whether this partition had a folder, according to the list. ``is_there``: a folder of that name exists."""
        if self._ids is not None:
            return self._ids.get(folder) == topic_id
        return folder not in self._unlisted if is_there else folder in self._lost

    def is_fresh(self, folder: str, topic_id: bytes) -> bool:
        """Whether the folder of this topic was created in this boot and may not be durable."""
        return self._fresh.get(folder) == topic_id

    def check_online(self, folder: str) -> None:
        error = self.offline.get(folder)
        if error is not None:
            raise copy(error)  # a copy: each raise would extend the traceback of the stored exception

    def take_offline(self, folder: str, what: str, data_dir: str, *, is_lost: bool) -> PartitionOffline:
        """Take the partition offline until an operator decides. Returns the error to raise."""
        remedy = f"kwire log adopt {shlex.join(self.data_dirs)}" + (f" --accept-loss {folder}" if is_lost else "")
        return self.set_offline(folder, what, f"in {data_dir}; stop the server and run: {remedy}")

    def set_offline(self, folder: str, what: str, details: str) -> PartitionOffline:
        error = self.offline.setdefault(folder, PartitionOffline(f"partition {folder} is offline: {what}", details))
        return copy(error)

    # --- lines

    def record_new(self, folder: str, topic_id: bytes) -> None:
        """Add a folder that was just created. After an ``OSError`` the call may be repeated."""
        self._fresh[folder] = topic_id
        self._write(self._line(folder, topic_id))
        self._folder_count += 1
        self._unlisted.discard(folder)
        if self._ids is not None:
            self._ids[folder] = topic_id

    def record_durable(self, folder: str) -> None:
        """Record that the folder is durable. In any thread. On a full disk, the next start writes the line."""
        topic_id = self._fresh.pop(folder, None)
        if topic_id is not None:
            with suppress(OSError):
                self._write(self._line(folder, topic_id))

    def forget(self, folder: str) -> None:
        """Remove a partition that was deleted."""
        self.offline.pop(folder, None)
        self._lost.discard(folder)
        self._unlisted.discard(folder)
        self._fresh.pop(folder, None)
        if self._ids is not None:
            self._ids.pop(folder, None)
        self._folder_count = max(self._folder_count - 1, 0)
        with suppress(OSError):  # its topic id no longer exists, so the old lines have no effect
            self._write(b"gone %s" % folder.encode())

    def _write(self, text: bytes) -> None:
        file = self._file
        with file.lock:
            self._open_file()
            try:
                file.add(_encode_line(text))
            except OSError:
                with suppress(OSError):  # if a part of the line remains, the next start reads a damaged line
                    self._files.truncate(file.fd, file.size_bytes)
                raise
            is_due = file.line_count > 2 * self._folder_count + SPARE_LINES_MAX and not self._is_rewriting
            self._is_rewriting |= is_due
        if is_due:
            try:
                self._background(self._rewrite)
            except RuntimeError:  # no thread available: the next line tries again
                self._is_rewriting = False

    # --- the file

    def _rewrite(self) -> None:
        """Rewrite the list without outdated lines. Called in a thread. Lines that are added meanwhile are kept."""
        file = self._file
        try:
            with file.lock:
                size_bytes, line_count = file.size_bytes, file.line_count
                fd = self._files.duplicate(file.fd) if file.fd >= 0 else -1
            if fd < 0:
                return
            try:
                lines = _live_lines(self._files.pread(fd, size_bytes, 0))
            finally:
                self._files.close(fd)
            content = _HEAD + b"\n" + b"".join(map(_encode_line, lines))
            file.rewrite(content, len(lines), size_bytes, line_count, sync=True)
        except OSError:
            return  # the current list stays valid; it is only longer
        finally:
            self._is_rewriting = False

    def _replace(self, entries: Mapping[str, bytes]) -> None:
        lines = (self._line(folder, topic_id) for folder, topic_id in entries.items())
        self._files.replace_file(self._path, _HEAD + b"\n" + b"".join(map(_encode_line, lines)), sync=True)
        self._file.close()
        self._open_file()
        self._file.line_count = len(entries)

    def _line(self, folder: str, topic_id: bytes) -> bytes:
        state = f"new {self._boot_id}" if folder in self._fresh else "safe"
        return f"{state} {topic_id.hex()} {folder}".encode()

    def _open_file(self) -> None:
        """Open the file for appends after its last complete line. A new file gets the header. Raises ``OSError``."""
        if self._file.fd >= 0:
            return
        if self._is_closed:
            raise OSError(f"{self._path} is closed")
        fd = self._files.open_write(self._path)
        try:
            data = self._files.pread(fd, self._files.size(fd), 0)
            end = data.rfind(b"\n") + 1
            if end < len(data):
                self._files.truncate(fd, end)
            if not end:
                self._files.write_all(fd, _HEAD + b"\n", 0)
                end = len(_HEAD) + 1
        except OSError:
            self._files.close(fd)
            raise
        self._file.fd, self._file.size_bytes = fd, end

    def sync(self) -> None:
        """Make all lines durable, when the server stops. Raises ``OSError``."""
        if self._file.fd >= 0:
            self._files.fdatasync(self._file.fd)

    def close(self) -> None:
        self._is_closed = True
        self._file.close()


def encode_folder_list(entries: Mapping[str, bytes]) -> bytes:
    """The content of a list of durable folders. ``entries`` has the topic id of each."""
    lines = (b"safe %s %s" % (topic_id.hex().encode(), folder.encode()) for folder, topic_id in entries.items())
    return _HEAD + b"\n" + b"".join(map(_encode_line, lines))


def _encode_line(text: bytes) -> bytes:
    return b"%08x %s\n" % (crc32c(text), text)


def _lines(data: bytes) -> Iterator[bytes | None]:
    """The text of each line; None for a damaged line. A torn line after the last line break is ignored."""
    head, *lines = data.split(b"\n")
    if data and head != _HEAD:
        yield None
    for line in lines[:-1]:
        text = line[_CRC_CHARACTERS:]
        if line[:_CRC_CHARACTERS] == b"%08x " % crc32c(text):
            yield text
        elif b"\0" not in line:  # zeros mean a lost sector, whose lines no acknowledged record needs
            yield None


def _live_lines(data: bytes) -> list[bytes]:
    """The last line about each folder that was not deleted."""
    last: dict[bytes, bytes] = {}
    for text in _lines(data):
        if text is not None:
            folder = text.rpartition(b" ")[2]
            last.pop(folder, None)
            if not text.startswith(b"gone "):
                last[folder] = text
    return list(last.values())


class _DecodedList:
    """A decoded list: the topic id of each folder, and the folders that may not be durable."""

    def __init__(self, data: bytes, boot_id: str) -> None:
        self.ids: dict[str, bytes] = {}
        self.fresh: dict[str, bytes] = {}
        self.damaged_count = 0
        self.line_count = 0
        self._boot_id = boot_id
        for text in _lines(data):
            self.line_count += 1
            try:
                self._take(text.decode().split(" ", 3) if text is not None else [])
            except ValueError:
                self.damaged_count += 1

    def _take(self, words: list[str]) -> None:
        match words:
            case ["safe", topic_id, folder]:
                self.ids[folder] = bytes.fromhex(topic_id)
                self.fresh.pop(folder, None)
            case ["new", boot_id, topic_id, folder]:
                self.ids.pop(folder, None)
                if boot_id == self._boot_id and boot_id:
                    self.ids[folder] = self.fresh[folder] = bytes.fromhex(topic_id)
            case ["gone", folder]:
                self.ids.pop(folder, None)
                self.fresh.pop(folder, None)
            case _:
                raise ValueError("not a line of the list")
