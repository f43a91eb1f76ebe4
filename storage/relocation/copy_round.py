"""Copies the segments of a log to another folder, in rounds, while the log takes appends.

A round copies the bytes that the log has at one moment and the copy lacks; see :mod:`storage.relocation.relocation`. A
round is planned on the log's thread, and its jobs run in another thread.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from storage.disk.files import Files
from storage.errors import StorageError
from storage.log.quarantine import Quarantine, write_quarantine
from storage.segment.read_only_copy import sealed_segment
from storage.segment.reading import file_names, txn_index_name
from storage.segment.segment import LogSegment, index_name, segment_name
from storage.segment.txn_index import encode_file

# Bytes per job of a thread. Between two jobs the caller checks whether the move was cancelled.
PIECE_BYTES: Final = 4 * 1024 * 1024
# The log's thread copies at most this many bytes itself, without waiting for the disk. That takes half a millisecond.
REST_BYTES_MAX: Final = 1024 * 1024
# The limit if producers append so fast that more than REST_BYTES_MAX always remains. That copy takes ten milliseconds.
LARGE_REST_BYTES_MAX: Final = 16 * 1024 * 1024
REST_FILES_MAX: Final = 8
_CHUNK_BYTES: Final = 1024 * 1024


class SegmentCopy:
    """The progress of copying one segment. If the log now has another object than ``segment``, it was replaced."""

    __slots__ = ("copied_bytes", "is_indexed", "segment", "synced_bytes")

    def __init__(self, segment: LogSegment) -> None:
        self.segment = segment
        self.copied_bytes = 0
        self.synced_bytes = 0
        self.is_indexed = False


class SegmentCopyJob(NamedTuple):
    """One segment of a round: the bytes to copy, as of the moment at which the round was planned."""

    copy: SegmentCopy
    source_dir: str
    base_offset: int
    next_offset: int
    end: int
    is_sealed: bool
    # The index with its seal, if the seal of the segment is not on disk yet; else None.
    sealed_index: bytes | None
    has_aborted: bool
    # The content of the transaction index file. None: copy the file of the source.
    aborted: bytes | None
    holes: tuple[tuple[int, int], ...]


class CopyRound:
    """One round: copies the bytes that a log has at one moment and its copy lacks. Created on the log's thread."""

    def __init__(
        self,
        path: str,
        files: Files,
        work: Sequence[SegmentCopyJob],
        stale: set[int],
        damage: tuple[Quarantine, ...] | None,
        on_damage_written: Callable[[tuple[Quarantine, ...]], None],
    ) -> None:
        """``damage`` are the quarantined ranges to write; None if they have not changed.

        ``stale`` are segments whose files are in the copy, but no longer in the log. The round removes the files, and
        then deletes the segment from this set.
        """
        self._path = path
        self._files = files
        self._work = work
        self._stale = stale
        self._damage = damage
        self._on_damage_written = on_damage_written
        self.size_bytes = sum(one.end - one.copy.copied_bytes for one in work)

    def is_small(self, size_bytes_max: int = REST_BYTES_MAX) -> bool:
        """Whether the round is small enough for the log's thread to copy it itself."""
        file_count = len(self._work) + len(self._stale)
        return self.size_bytes <= size_bytes_max and file_count <= REST_FILES_MAX and self._damage is None

    def jobs(self) -> Iterator[Callable[[], int]]:
        """Jobs for a thread, in order. Each returns the number of bytes it copied. They raise ``OSError``."""
        yield self._remove_stale
        for one in self._work:
            yield from self._jobs_of(one)
        yield self._finish

    def run_unsynced(self) -> None:
        """Copy the whole round without syncs. Raises ``OSError``."""
        self._remove_stale()
        for one in self._work:
            self._copy(one, one.end)
            if one.is_sealed:
                self._write_index(one, is_synced=False)

    def _jobs_of(self, one: SegmentCopyJob) -> Iterator[Callable[[], int]]:
        while one.copy.copied_bytes < one.end:
            before = one.copy.copied_bytes
            yield lambda: self._copy(one, min(one.end, one.copy.copied_bytes + PIECE_BYTES), is_synced=True)
            if one.copy.copied_bytes == before:
                return  # the caller has not run the job, so the move has ended
        if one.is_sealed and not one.copy.is_indexed:
            yield lambda: self._write_index(one, is_synced=True)

    def _remove_stale(self) -> int:
        for base_offset in sorted(self._stale):
            for name in file_names(base_offset):
                path = os.path.join(self._path, name)
                if self._files.exists(path):
                    self._files.unlink(path)
            self._stale.discard(base_offset)
        return 0

    def _copy(self, one: SegmentCopyJob, end: int, *, is_synced: bool = False) -> int:
        files, start = self._files, one.copy.copied_bytes
        if start >= end:
            return 0
        name = segment_name(one.base_offset)
        source = files.open_read(os.path.join(one.source_dir, name))
        try:
            path = os.path.join(self._path, name)
            target = files.open_write(path) if start else files.create(path)
            try:
                position = start
                while position < end:
                    data = files.pread(source, min(_CHUNK_BYTES, end - position), position)
                    if not data:
                        raise OSError(errno.EIO, f"{name} of {one.source_dir} ends at {position}")
                    files.write_all(target, data, position)
                    position += len(data)
                if is_synced:
                    files.fdatasync(target)
            finally:
                files.close(target)
        finally:
            files.close(source)
        one.copy.copied_bytes = end
        if is_synced:
            one.copy.synced_bytes = end
        return end - start

    def _write_index(self, one: SegmentCopyJob, *, is_synced: bool) -> int:
        """Write the index with its seal, after the batches, because the seal states that the segment is complete."""
        if one.has_aborted:
            self._write_aborted(one, is_synced=is_synced)
        data = one.sealed_index if one.sealed_index is not None else self._sealed_index(one)
        self._write(index_name(one.base_offset), data, is_synced=is_synced)
        one.copy.is_indexed = True
        return len(data)

    def _write_aborted(self, one: SegmentCopyJob, *, is_synced: bool) -> None:
        name = txn_index_name(one.base_offset)
        data = one.aborted if one.aborted is not None else self._files.read_file(os.path.join(one.source_dir, name))
        if data is None:
            # A sealed copy without this file would be read as a segment without ABORT markers.
            raise OSError(errno.EIO, f"{name} of {one.source_dir} does not exist")
        self._write(name, data, is_synced=is_synced)

    def _write(self, name: str, data: bytes, *, is_synced: bool) -> None:
        fd = self._files.create(os.path.join(self._path, name))
        try:
            self._files.write_all(fd, data, 0)
            if is_synced:
                self._files.fdatasync(fd)
        finally:
            self._files.close(fd)

    def _sealed_index(self, one: SegmentCopyJob) -> bytes:
        # A segment object rebuilds its index if the index file is missing or not valid.
        segment = sealed_segment(
            one.source_dir, one.base_offset, one.next_offset, one.end, self._files, index_interval_bytes=4096
        )
        segment.holes = one.holes
        try:
            return segment.index.encode() + segment.index.encode_seal(one.end, segment.max_timestamp)
        except StorageError as error:
            raise OSError(errno.EIO, str(error)) from error
        finally:
            segment.close()

    def _finish(self) -> int:
        if self._damage is not None:
            write_quarantine(self._path, self._files, self._damage)
            self._on_damage_written(self._damage)
        self._files.fsync_dir(self._path)
        return 0


def plan_copy(copy: SegmentCopy, directory: str) -> SegmentCopyJob:
    segment = copy.segment
    index: bytes | None = None
    if segment.is_sealed and segment.is_seal_pending:
        index = segment.index.encode() + segment.index.encode_seal(segment.size_bytes, segment.max_timestamp)
    return SegmentCopyJob(
        copy,
        directory,
        segment.base_offset,
        segment.next_offset,
        segment.size_bytes,
        segment.is_sealed,
        index,
        segment.is_sealed and segment.has_aborted,
        encode_file(segment.aborted, segment.size_bytes) if segment.aborted else None,
        segment.holes,
    )
