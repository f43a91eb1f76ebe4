"""Writes the output of a compaction: ``<base>.log.new`` and its sealed index, synced before they are returned."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from storage.batch.format import NO_TIMESTAMP
from storage.disk.files import Files
from storage.log.segment_replacement import (
    NewSegment,
    new_index_path,
    new_log_path,
    new_txn_index_path,
    write_new_aborted,
)
from storage.segment.index import NO_MAX_TIMESTAMP, SparseIndex
from storage.segment.txn_index import AbortedEntry

_WRITE_BYTES: Final = 1024 * 1024
# The file is synced in steps: one sync of a whole segment at the end would delay the sync rounds of the server.
_SYNC_BYTES: Final = 8 * 1024 * 1024


def remove_new_files(directory: str, base_offset: int, files: Files) -> None:
    """Remove the files of a compaction that failed. If a file cannot be removed, the next start removes it."""
    for path_of in (new_log_path, new_index_path, new_txn_index_path):
        path = path_of(directory, base_offset)
        with suppress(OSError):
            files.unlink(path)


def has_new_files(directory: str, new: NewSegment, files: Files) -> bool:
    """Whether the files of a new segment exist. Check this before a replacement, which removes the old files."""
    try:
        return (
            files.size_of(new_log_path(directory, new.base_offset)) == new.size_bytes
            and files.exists(new_index_path(directory, new.base_offset))
            and (not new.aborted or files.exists(new_txn_index_path(directory, new.base_offset)))
        )
    except OSError:
        return False


class CleanedSegment:
    """A new segment file. Batches are added in order, by one thread. Raises plain ``OSError``."""

    def __init__(self, directory: str, base_offset: int, index_interval_bytes: int, files: Files) -> None:
        self.base_offset = base_offset
        self.size_bytes = 0
        self._directory = directory
        self._index_interval_bytes = index_interval_bytes
        self._files = files
        self._index = SparseIndex(base_offset)
        self._max_timestamp = self._first_timestamp = NO_MAX_TIMESTAMP
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._written_bytes = self._synced_bytes = 0
        self._fd = files.create(new_log_path(directory, base_offset))

    def add(self, batch: bytes, base_offset: int, max_timestamp: int | None) -> None:
        """Append a batch. ``max_timestamp`` is None if the batch has no records, so that searches by time ignore it."""
        position = self.size_bytes
        if position - self._index.last_position >= self._index_interval_bytes:
            self._index.add(base_offset, position, self._max_timestamp)
        if max_timestamp is not None:
            if self._first_timestamp == NO_MAX_TIMESTAMP:
                self._first_timestamp = max_timestamp
            self._max_timestamp = max(self._max_timestamp, max_timestamp)
        self.size_bytes = position + len(batch)
        self._pieces.append(batch)
        self._pieces_bytes += len(batch)
        if self._pieces_bytes >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        data = b"".join(self._pieces)
        self._files.write_all(self._fd, data, self._written_bytes)
        self._written_bytes += len(data)
        self._pieces, self._pieces_bytes = [], 0
        if self._written_bytes - self._synced_bytes >= _SYNC_BYTES:
            self._files.fdatasync(self._fd)
            self._synced_bytes = self._written_bytes

    def finish(self, next_offset: int, aborted: tuple[AbortedEntry, ...] = ()) -> NewSegment:
        """Write the rest and the sealed index, and make their content durable. The file names are not durable yet.

        ``aborted`` are the transactions that have an ABORT marker in this segment and records that readers must skip.
        """
        self._write()
        self._files.fdatasync(self._fd)
        self.close()
        index_fd = self._files.create(new_index_path(self._directory, self.base_offset))
        try:
            seal = self._index.encode_seal(self.size_bytes, self._max_timestamp)
            self._files.write_all(index_fd, self._index.encode() + seal, 0)
            self._files.fdatasync(index_fd)
        finally:
            self._files.close(index_fd)
        self._index.written_count = len(self._index)
        if aborted:
            write_new_aborted(self._directory, self.base_offset, aborted, self.size_bytes, self._files)
        return NewSegment(
            base_offset=self.base_offset,
            next_offset=next_offset,
            size_bytes=self.size_bytes,
            max_timestamp=self._max_timestamp,
            first_timestamp=max(self._first_timestamp, NO_TIMESTAMP),
            index=self._index,
            aborted=aborted,
        )

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._files.close(fd)
