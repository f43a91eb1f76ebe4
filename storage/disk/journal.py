"""A small file of records that are durable when :meth:`Journal.append` returns: what the catalogue is kept in.

The file is a sequence of frames, each a group of records that is there as a whole or not at all::

    file    8 bytes of magic, frames
    frame   u32 size of the body | u32 CRC32C of the body | u32 CRC32C of the eight bytes before | body
    body    (u32 size | bytes) for each record

The head has a CRC of its own, so a damaged size is not mistaken for a frame that was never finished. A frame that is
cut short by the end of the file, or of which a sector never reached the disk, was never acknowledged and is cut off:
it can only be the last. Any other bad frame is damage and is reported, never skipped.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from typing import Final

from crc32c import crc32c

from storage.errors import DiskFailure, JournalDamaged, StorageFailed, disk_errors
from storage.files import Files

MAGIC: Final = b"kwjrnl\x00\x01"
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
# A rewritten journal is frames of about this size: it takes effect as a whole by its rename, so one frame need not.
REWRITTEN_FRAME_BYTES: Final = 1024 * 1024

_HEAD: Final = struct.Struct(">III")
_HEAD_FACTS: Final = struct.Struct(">II")
_SIZE: Final = struct.Struct(">I")
# A torn write is torn at the edge of a disk sector.
_SECTOR_BYTES: Final = 512


class Journal:
    """One journal file, used by one thread; :meth:`append` and :meth:`rewrite` wait for the disk."""

    def __init__(self, path: str, files: Files, fd: int, end: int, records: list[bytes]) -> None:
        self._path = path
        self._files = files
        self._fd = fd
        self._end = self._written_end = end
        self._records: list[bytes] = records
        self._failure: StorageFailed | None = None

    @classmethod
    def open(cls, path: str, files: Files) -> Journal:
        """Open or create the journal; an unfinished last frame is cut off."""
        path = os.path.abspath(path)
        with disk_errors(f"open {path}"):
            fd = files.open_write(path)
            try:
                # What is read counts as committed, so it has to be on the disk: what a killed process left is brought
                # there, and what a failed sync left in the cache only is not believed.
                files.fsync(fd)
                files.forget(fd, 0, files.size(fd))
                data = files.pread(fd, files.size(fd), 0)
                records, end = decode_journal(path, data)
                if end < len(MAGIC):
                    files.truncate(fd, 0)
                    files.write_all(fd, MAGIC, 0)
                    end = len(MAGIC)
                elif end < len(data):
                    files.truncate(fd, end)
                if end != len(data) or not data:
                    files.fsync(fd)
                    files.fsync_dir(os.path.dirname(path))
            except BaseException:
                files.close(fd)
                raise
        return cls(path, files, fd, end, records)

    def replay(self) -> Iterator[bytes]:
        """The records found at opening, oldest first; they are handed out once."""
        records, self._records = self._records, []
        return iter(records)

    @property
    def records(self) -> Sequence[bytes]:
        """The same, as long as they were not handed out."""
        return self._records

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return self._end

    def append(self, records: Iterable[bytes]) -> None:
        """Add the records as one group; they are durable when this returns."""
        self.write(encode_frame(records))
        self.sync()

    def write(self, frame: bytes) -> None:
        """Add a frame that counts once :meth:`sync` has returned; until then :meth:`take_back` removes it."""
        self._check_usable()
        try:
            self._files.write_all(self._fd, frame, self._end)
        except OSError as error:
            # Nothing was acknowledged: take back what went in, so that the next frame follows the last good one.
            self.take_back()
            raise DiskFailure(f"append to {self._path}: {error}", error.errno) from error
        self._written_end = self._end + len(frame)

    def take_back(self) -> None:
        """Remove the frame that was written last and not synced; raises :class:`StorageFailed`."""
        try:
            self._files.truncate(self._fd, self._end)
        except OSError as error:
            raise self._poison(error) from error

    def sync(self) -> None:
        """Wait until the frame that was written last is durable."""
        self._check_usable()
        try:
            self._files.fdatasync(self._fd)
        except OSError as error:
            raise self._poison(error) from error
        self._end = self._written_end

    def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace the whole content by these records, at once: after a crash it is the old or the new one."""
        self._check_usable()
        content = b"".join([MAGIC, *(encode_frame(group) for group in _grouped(records))])
        temporary, folder = self._path + ".new", os.path.dirname(self._path)
        with ExitStack() as opened:
            try:
                # Taken before the rename: without a descriptor for the sync of the folder nothing may change.
                folder_fd = self._files.open_dir(folder)
                opened.callback(self._files.close, folder_fd)
                fd = self._files.create(temporary)
                try:
                    self._files.write_all(fd, content, 0)
                    self._files.fsync(fd)
                    self._files.rename(temporary, self._path)
                except BaseException:
                    self._files.close(fd)
                    raise
            except OSError as error:
                # The file in place was not touched, so the journal goes on with it.
                raise DiskFailure(f"rewrite {self._path}: {error}", error.errno) from error
            old, self._fd = self._fd, fd
            self._end = self._written_end = len(content)
            self._files.close(old)
            try:
                self._files.fsync_dir(folder, folder_fd)
            except OSError as error:
                raise self._poison(error) from error

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._failure = StorageFailed(f"{self._path} is closed")
            self._files.close(fd)

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise copy(self._failure)  # a copy, or each raise would add to the traceback of one object

    def refuse_after(self, failure: StorageFailed) -> None:
        """Take nothing more until the next start: the journal's other copy has failed."""
        self._failure = self._failure or failure

    def _poison(self, error: OSError) -> StorageFailed:
        # After a failed sync nobody knows what is on disk; only a restart, which reads it, does.
        self._failure = StorageFailed(f"sync {self._path}: {error}", error.errno)
        return self._failure


def _grouped(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record)
        if size >= REWRITTEN_FRAME_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def encode_frame(records: Iterable[bytes]) -> bytes:
    body = b"".join(_SIZE.pack(len(record)) + record for record in records)
    if not body:
        raise ValueError("a frame holds at least one record")
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"{len(body)} bytes are more than a frame may hold")
    facts = _HEAD_FACTS.pack(len(body), crc32c(body))
    return facts + _SIZE.pack(crc32c(facts)) + body


def decode_journal(path: str, data: bytes) -> tuple[list[bytes], int]:
    """All records and the end of the last whole frame."""
    if not data.startswith(MAGIC):
        # A new file whose first bytes were torn; anything else is not ours to overwrite.
        if MAGIC.startswith(data.rstrip(b"\0")) and len(data) <= len(MAGIC):
            return [], 0
        raise JournalDamaged(f"{path} is not a journal")
    records: list[bytes] = []
    position = len(MAGIC)
    while position < len(data):
        body = _body_at(path, data, position)
        if body is None:
            break
        records.extend(_split(path, body))
        position += _HEAD.size + len(body)
    return records, position


def salvage(data: bytes) -> list[bytes]:
    """All records of every frame that is whole, however much between them is damaged."""
    records: list[bytes] = []
    position = len(MAGIC) if data.startswith(MAGIC) else 0
    while position <= len(data) - _HEAD.size:
        if _is_frame(data, position):
            (size,) = _SIZE.unpack_from(data, position)
            start = position + _HEAD.size
            records.extend(_split("journal", data[start : start + size]))
            position = start + size
        else:
            position += 1
    return records


def _body_at(path: str, data: bytes, position: int) -> bytes | None:
    """The body of the frame at ``position``, or None when the frame was never finished."""
    rest = data[position : position + _HEAD.size]
    if len(rest) < _HEAD.size:
        return None
    size, crc, head_crc = _HEAD.unpack(rest)
    if not any(rest) or crc32c(rest[: _HEAD_FACTS.size]) != head_crc:
        # A power cut may lose any sectors of the frame that was being written; anything else was a good frame once.
        if any(data[position + _HEAD.size :]) and not _is_unfinished(data, position):
            raise JournalDamaged(f"{path}: unreadable frame at {position}")
        return None
    end = position + _HEAD.size + size
    if end > len(data):
        return None
    body = data[position + _HEAD.size : end]
    if crc32c(body) != crc:
        if not any(data[end:]) and _has_empty_sector(data, position + _HEAD.size, end):
            return None
        raise JournalDamaged(f"{path}: damaged frame at {position}")
    return body


def _is_unfinished(data: bytes, position: int) -> bool:
    """Whether a part of what begins here never reached the disk, and nothing that was finished stands behind it."""
    if len(data) - position > _HEAD.size + FRAME_BYTES_MAX or not _has_empty_sector(data, position, len(data)):
        return False
    return not any(_is_frame(data, behind) for behind in range(position + 1, len(data) - _HEAD.size))


def _is_frame(data: bytes, position: int) -> bool:
    size, crc, head_crc = _HEAD.unpack_from(data, position)
    body_start = position + _HEAD.size
    if not 0 < size <= len(data) - body_start or crc32c(data[position : position + _HEAD_FACTS.size]) != head_crc:
        return False
    return crc32c(data[body_start : body_start + size]) == int(crc)


def _has_empty_sector(data: bytes, start: int, end: int) -> bool:
    """Whether a sector never reached the disk, although the file was made long enough for it."""
    edge = start
    while edge < end:
        next_edge = min((edge // _SECTOR_BYTES + 1) * _SECTOR_BYTES, end)
        # At the front a few zeros are the front of a size; if more than those were lost, more is missing.
        is_telling = edge % _SECTOR_BYTES == 0 or next_edge - edge >= _SIZE.size
        if is_telling and not any(data[edge:next_edge]):
            return True
        edge = next_edge
    return False


def _split(path: str, body: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(body):
        if position + _SIZE.size > len(body):
            raise JournalDamaged(f"{path}: a record without its size")
        (size,) = _SIZE.unpack_from(body, position)
        position += _SIZE.size
        if size > len(body) - position:
            raise JournalDamaged(f"{path}: a record longer than its frame")
        yield body[position : position + size]
        position += size
