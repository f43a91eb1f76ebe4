"""An append-only file of records. It stores the catalogue. Records are durable when :meth:`Journal.append` returns.

The file is a sequence of frames. A frame is a group of records that is read completely or not at all::

    file    8 bytes of magic, frames
    frame   u32 size of the body | u32 CRC32C of the body | u32 CRC32C of the eight bytes before | body
    body    (u32 size | bytes) for each record

The head of a frame has its own CRC, so that a damaged size is not mistaken for an unfinished frame. A frame that the
end of the file cuts off, or that has a sector that never reached the disk, was never acknowledged. It can only be the
last frame, and opening the journal removes it. Any other invalid frame is damage, which is reported and never skipped.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from typing import Final, NamedTuple

from crc32c import crc32c

from storage.disk.files import Files
from storage.errors import DiskFailure, JournalDamaged, StorageFailed, disk_errors

MAGIC: Final = b"kwjrnl\x00\x01"
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
# The size of the frames of a rewritten journal. The rename makes the rewrite atomic, so several frames may be used.
REWRITTEN_FRAME_BYTES: Final = 1024 * 1024

_HEAD: Final = struct.Struct(">III")
_HEAD_FACTS: Final = struct.Struct(">II")
_SIZE: Final = struct.Struct(">I")
# Writes are torn at sector boundaries.
_SECTOR_BYTES: Final = 512


class Journal:
    """One journal file, used by one thread. :meth:`append` and :meth:`rewrite` wait for the disk."""

    def __init__(self, path: str, files: Files, fd: int, end: int, records: list[bytes]) -> None:
        self._path = path
        self._files = files
        self._fd = fd
        self._end = self._written_end = end
        self._records: list[bytes] = records
        self._failure: StorageFailed | None = None

    @classmethod
    def open(cls, path: str, files: Files) -> Journal:
        """Open or create the journal. An unfinished last frame is removed."""
        path = os.path.abspath(path)
        with disk_errors(f"open {path}"):
            fd = files.open_write(path)
            try:
                # Records that are read here are treated as committed, so they must be on the disk. The sync writes the
                # bytes that a killed process left in the cache. Then the cache is dropped, because after a failed sync
                # it may be wrong.
                files.fsync(fd)
                files.drop_cached_pages(fd, 0, files.size(fd))
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
        """Return the records found at opening, oldest first. A second call returns none."""
        records, self._records = self._records, []
        return iter(records)

    @property
    def records(self) -> Sequence[bytes]:
        """The records found at opening; empty once :meth:`replay` has returned them."""
        return self._records

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return self._end

    def append(self, records: Iterable[bytes]) -> None:
        """Append the records as one group. They are durable when this returns."""
        self.write(encode_frame(records))
        self.sync()

    def write(self, frame: bytes) -> None:
        """Append a frame. :meth:`sync` commits it. Until then :meth:`undo_write` can remove it."""
        self._check_usable()
        try:
            self._files.write_all(self._fd, frame, self._end)
        except OSError as error:
            # Nothing was acknowledged. Remove the part that was written, so that the next frame is directly after the
            # last valid one.
            self.undo_write()
            raise DiskFailure(f"append to {self._path}: {error}", error.errno) from error
        self._written_end = self._end + len(frame)

    def undo_write(self) -> None:
        """Remove the frame that was written last and not synced. Raises :class:`StorageFailed`."""
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

    def keep_unsynced(self) -> None:
        """Keep the frame that was written last without waiting for the disk. The next :meth:`sync` includes it.

        A power cut may then lose any of the frames since the last sync, so that the next opening may find damage. Only
        owners that expect this after an unclean stop use it.
        """
        self._check_usable()
        self._end = self._written_end

    def read(self, position: int, size: int) -> bytes:
        """Read bytes of the file, for owners that know where a record is."""
        with disk_errors(f"read {self._path}"):
            return self._files.pread(self._fd, size, position)

    def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace the whole content by these records, atomically: a crash leaves the old or the new content."""
        self._check_usable()
        content = encode_journal(records)
        temporary, folder = self._path + ".new", os.path.dirname(self._path)
        with ExitStack() as opened:
            try:
                # Open the folder before the rename: if no descriptor is left for its sync, nothing must have changed.
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
                # The current file was not changed and stays in use.
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
            raise copy(self._failure)  # a copy: each raise would extend the traceback of the stored exception

    def refuse_writes(self, failure: StorageFailed) -> None:
        """Refuse writes until the next start, because the other copy of this journal has failed."""
        self._failure = self._failure or failure

    def _poison(self, error: OSError) -> StorageFailed:
        # After a failed sync the state of the disk is unknown until the next start reads it.
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


def encode_journal(records: Iterable[bytes]) -> bytes:
    """The content of a journal with these records."""
    return b"".join([MAGIC, *(encode_frame(group) for group in _grouped(records))])


def encode_frame(records: Iterable[bytes]) -> bytes:
    body = b"".join(_SIZE.pack(len(record)) + record for record in records)
    if not body:
        raise ValueError("a frame holds at least one record")
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame holds at most {FRAME_BYTES_MAX} bytes, got {len(body)}")
    facts = _HEAD_FACTS.pack(len(body), crc32c(body))
    return facts + _SIZE.pack(crc32c(facts)) + body


def decode_journal(path: str, data: bytes) -> tuple[list[bytes], int]:
    """Decode all records. Returns them and the end of the last complete frame."""
    if not data.startswith(MAGIC):
        # The first write of a new file may be torn. Any other content must not be overwritten.
        if MAGIC.startswith(data.rstrip(b"\0")) and len(data) <= len(MAGIC):
            return [], 0
        raise JournalDamaged(f"{path} is not a journal: it does not begin with the journal's magic bytes")
    records: list[bytes] = []
    position = len(MAGIC)
    while position < len(data):
        body = _body_at(path, data, position)
        if body is None:
            break
        records.extend(_split(path, body))
        position += _HEAD.size + len(body)
    return records, position


class Frame(NamedTuple):
    """A complete frame: where it is in the file, and its records."""

    start: int
    end: int
    records: list[bytes]


def salvage_frames(data: bytes) -> list[Frame]:
    """Every complete frame, skipping damaged bytes between frames."""
    frames: list[Frame] = []
    position = len(MAGIC) if data.startswith(MAGIC) else 0
    while position <= len(data) - _HEAD.size:
        if _is_frame(data, position):
            (size,) = _SIZE.unpack_from(data, position)
            start = position + _HEAD.size
            frames.append(Frame(position, start + size, list(_split("journal", data[start : start + size]))))
            position = start + size
        else:
            position += 1
    return frames


def salvage(data: bytes) -> list[bytes]:
    """The records of every complete frame, skipping damaged bytes between frames."""
    return [record for frame in salvage_frames(data) for record in frame.records]


def record_positions(frame_start: int, records: Iterable[bytes]) -> Iterator[int]:
    """Where each record of a frame begins in the file, if the frame begins at ``frame_start``."""
    position = frame_start + _HEAD.size
    for record in records:
        position += _SIZE.size
        yield position
        position += len(record)


def _body_at(path: str, data: bytes, position: int) -> bytes | None:
    """The body of the frame at ``position``, or None if the frame was never finished."""
    rest = data[position : position + _HEAD.size]
    if len(rest) < _HEAD.size:
        return None
    size, crc, head_crc = _HEAD.unpack(rest)
    if not any(rest) or crc32c(rest[: _HEAD_FACTS.size]) != head_crc:
        # A power cut may lose any sectors of the frame that was being written. All other frames were durable.
        if any(data[position + _HEAD.size :]) and not _is_unfinished(data, position):
            raise JournalDamaged(f"{path}: the head of the frame at byte {position} is damaged")
        return None
    end = position + _HEAD.size + size
    if end > len(data):
        return None
    body = data[position + _HEAD.size : end]
    if crc32c(body) != crc:
        if not any(data[end:]) and _has_empty_sector(data, position + _HEAD.size, end):
            return None
        raise JournalDamaged(f"{path}: the frame at byte {position} is damaged")
    return body


def _is_unfinished(data: bytes, position: int) -> bool:
    """Whether a part of the frame at ``position`` never reached the disk and no complete frame follows it."""
    if len(data) - position > _HEAD.size + FRAME_BYTES_MAX or not _has_empty_sector(data, position, len(data)):
        return False
    return not any(_is_frame(data, later) for later in range(position + 1, len(data) - _HEAD.size))


def _is_frame(data: bytes, position: int) -> bool:
    size, crc, head_crc = _HEAD.unpack_from(data, position)
    body_start = position + _HEAD.size
    if not 0 < size <= len(data) - body_start or crc32c(data[position : position + _HEAD_FACTS.size]) != head_crc:
        return False
    return crc32c(data[body_start : body_start + size]) == int(crc)


def _has_empty_sector(data: bytes, start: int, end: int) -> bool:
    """Whether a sector is zero, because it never reached the disk although the file was extended for it."""
    edge = start
    while edge < end:
        next_edge = min((edge // _SECTOR_BYTES + 1) * _SECTOR_BYTES, end)
        # Fewer than four zeros at the start may be the high bytes of a size, so they prove nothing. If their sector was
        # lost, another sector of the frame was lost, too.
        is_conclusive = edge % _SECTOR_BYTES == 0 or next_edge - edge >= _SIZE.size
        if is_conclusive and not any(data[edge:next_edge]):
            return True
        edge = next_edge
    return False


def _split(path: str, body: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(body):
        if position + _SIZE.size > len(body):
            raise JournalDamaged(f"{path}: a record has no size")
        (size,) = _SIZE.unpack_from(body, position)
        position += _SIZE.size
        if size > len(body) - position:
            raise JournalDamaged(f"{path}: a record is longer than its frame")
        yield body[position : position + size]
        position += size
