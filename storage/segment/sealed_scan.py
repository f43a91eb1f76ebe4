"""Scans the batches of a sealed segment file, headers only or with their bytes, outside of the server process.

If a scan finds an invalid batch, it raises :class:`DamagedLog` with the position of the batch. Bytes are read with
``pread``, not through a map, so that a disk error is an exception and not a signal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from storage.batch.format import HEADER_BYTES, MAGIC, MIN_BATCH_LENGTH, NO_TIMESTAMP
from storage.batch.record_batch import BatchHeader, parse_header
from storage.disk.files import Files
from storage.errors import DamagedLog, disk_errors
from storage.segment.segment import segment_name

CHUNK_BYTES: Final = 4 * 1024 * 1024
# Bytes per read of headers. One read covers several small batches. The bytes of large batches are skipped.
_HEADERS_BYTES: Final = 16 * 1024

# Called with the number of bytes read or written; may block to limit the disk bandwidth of the scan.
Throttle = Callable[[int], None]


class SealedSegment(NamedTuple):
    """A sealed segment, as its log describes it."""

    base_offset: int
    next_offset: int
    size_bytes: int


class StoredBatch(NamedTuple):
    """One batch: ``chunk[start:end]`` are its bytes, ``position`` is its position in the file."""

    header: BatchHeader
    chunk: bytes
    start: int
    end: int
    position: int


class SegmentFile:
    """A context manager that opens one sealed segment file for reading."""

    def __init__(self, directory: str, segment: SealedSegment, files: Files) -> None:
        self.path = os.path.join(directory, segment_name(segment.base_offset))
        self._segment = segment
        self._files = files
        self._fd = -1

    def __enter__(self) -> SegmentFile:
        self._fd = self._files.open_read(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close(self._fd)

    def damage(self, position: int, reason: str) -> DamagedLog:
        return DamagedLog(f"{self.path} at {position}: {reason}")

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch. Reads little more than the headers."""
        size_bytes = self._segment.size_bytes
        position = window_start = 0
        window = b""
        expected = self._segment.base_offset
        while position < size_bytes:
            if position + HEADER_BYTES > window_start + len(window):
                window_start = position
                window = self._files.pread(self._fd, min(_HEADERS_BYTES, size_bytes - position), position)
            header = self._header(window, position - window_start, position, expected)
            yield position, header
            position += header.size_bytes
            expected = header.last_offset + 1

    def read(self, position: int, size_bytes: int) -> bytes:
        return self._files.pread(self._fd, size_bytes, position)

    def batches(self, throttle: Throttle) -> Iterator[StoredBatch]:
        """Each batch with its bytes. The CRC is not checked."""
        size_bytes = self._segment.size_bytes
        position = 0
        expected = self._segment.base_offset
        while position < size_bytes:
            chunk = self._files.pread(self._fd, min(CHUNK_BYTES, size_bytes - position), position)
            header = self._header(chunk, 0, position, expected)
            if header.size_bytes > len(chunk):
                chunk = self._files.pread(self._fd, header.size_bytes, position)
                if len(chunk) < header.size_bytes:
                    raise self.damage(position, "the file ends inside a batch")
            throttle(len(chunk))
            start = 0
            while start + HEADER_BYTES <= len(chunk):
                header = self._header(chunk, start, position, expected)
                end = start + header.size_bytes
                if end > len(chunk):
                    break
                yield StoredBatch(header, chunk, start, end, position)
                position += header.size_bytes
                expected = header.last_offset + 1
                start = end

    def _header(self, window: bytes, at: int, position: int, expected: int) -> BatchHeader:
        segment = self._segment
        if at + HEADER_BYTES > len(window):
            raise self.damage(position, "the file ends inside a batch")
        header = parse_header(window, at)
        if header.magic != MAGIC or header.batch_length < MIN_BATCH_LENGTH or header.last_offset_delta < 0:
            raise self.damage(position, "the batch header is not valid")
        if header.base_offset < expected or header.last_offset >= segment.next_offset:
            raise self.damage(position, f"offset {header.base_offset} is out of order")
        if position + header.size_bytes > segment.size_bytes:
            raise self.damage(position, "the batch extends beyond the end of the segment")
        return header


def first_timestamp(path: str, files: Files) -> int:
    """The max timestamp of the first batch in a segment file; -1 if there is none. Raises :class:`DiskFailure`."""
    with disk_errors(f"read {path}"):
        fd = files.open_read(path)
        try:
            data = files.pread(fd, HEADER_BYTES, 0)
        finally:
            files.close(fd)
    return parse_header(data).max_timestamp if len(data) == HEADER_BYTES else NO_TIMESTAMP
