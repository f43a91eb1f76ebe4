"""Facts about the files of segments, for people who look at a log. A thread reads them.

Only the header of the first batch, the seal and the sizes of the files are read, so that a large segment takes as long
as a small one.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from storage.batch.format import HEADER_BYTES, LOG_APPEND_TIME
from storage.batch.record_batch import parse_header
from storage.disk.files import Files
from storage.errors import DamagedLog, DiskFailure, disk_errors
from storage.segment.index import ENTRY_BYTES, seal_timestamp
from storage.segment.read_only_copy import sealed_segment
from storage.segment.segment import LogSegment


class SegmentFacts(NamedTuple):
    """One segment. A timestamp is None if the segment is empty, or if it cannot be read.

    ``first_timestamp`` is that of the first record, ``max_timestamp`` the largest one. The index of the active segment
    is partly in memory, so its file is smaller than it will be.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    first_timestamp: int | None
    max_timestamp: int | None
    is_active: bool
    index_bytes: int
    txn_index_bytes: int


class SegmentSurvey:
    """A segment whose facts are to be read. It is created on the log's thread."""

    __slots__ = ("_files", "_is_active", "_max_timestamp", "_segment")

    def __init__(self, segment: LogSegment, directory: str, files: Files) -> None:
        self._files = files
        self._is_active = not segment.is_sealed
        # A segment without a seal on disk has its max timestamp in memory.
        has_seal = segment.is_sealed and not segment.is_seal_pending
        self._max_timestamp = None if has_seal else segment.max_timestamp
        self._segment = sealed_segment(
            directory, segment.base_offset, segment.next_offset, segment.size_bytes, files, index_interval_bytes=0
        )
        self._segment.holes = segment.holes

    @property
    def base_offset(self) -> int:
        return self._segment.base_offset

    def read(self) -> SegmentFacts | None:
        """Read the facts, in any thread; None if the segment was removed meanwhile. Raises ``DiskFailure``."""
        segment = self._segment
        try:
            first_timestamp = self._first_timestamp()
        except DiskFailure as error:
            if error.error_number == errno.ENOENT:
                return None
            raise
        except DamagedLog:
            first_timestamp = None
        finally:
            segment.close()
        max_timestamp = self._max_timestamp
        if max_timestamp is None:
            with disk_errors(f"read {segment.index_path}"):
                max_timestamp = seal_timestamp(self._files.read_end(segment.index_path, ENTRY_BYTES))
        return SegmentFacts(
            segment.base_offset,
            segment.next_offset,
            segment.size_bytes,
            first_timestamp,
            max_timestamp if max_timestamp is not None and max_timestamp >= 0 else None,
            self._is_active,
            self._size_of(segment.index_path),
            self._size_of(segment.txn_index_path),
        )

    def _first_timestamp(self) -> int | None:
        segment = self._segment
        first = next(segment.batches(), None)
        if first is None:
            return None
        header = parse_header(segment.view(first[0], first[0] + HEADER_BYTES))
        found = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else header.base_timestamp
        return found if found >= 0 else None

    def _size_of(self, path: str) -> int:
        """The size of an index file. Segments without entries have none."""
        try:
            return self._files.size_of(path)
        except FileNotFoundError:
            return 0
