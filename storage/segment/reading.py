"""Reading one segment file: finds batches by offset, returns slices of them and checks whether they are in memory.

Readers get slices of read-only maps of the file, in which a ``pwrite`` is visible immediately. A map is unmapped only
when nothing refers to it, so a slice stays valid for as long as a reader holds it. Offsets inside a segment rise, but
need not be consecutive: compaction leaves gaps between batches, after the last one and before the first one. A scan
skips bytes that are known to be damaged (:attr:`ReadableSegment.holes`), and a read ends before them.

Thread rule: everything is called by the log's thread, except :meth:`ReadableSegment.warm_up`,
:meth:`ReadableSegment.warm_start` and :meth:`ReadableSegment.preopen`. These methods duplicate the file descriptor
while they hold ``_lock``. The descriptor is closed only under that lock, so that its number cannot be reused for
another file meanwhile. No call that may wait for the disk is made under the lock.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterable, Iterator
from typing import Final

from storage.batch.format import HEADER_BYTES, LENGTH_OVERHEAD, MAX_TIMESTAMP_POSITION, MIN_BATCH_LENGTH, STEP
from storage.disk.files import Files
from storage.errors import DamagedLog, DiskFailure, LogClosed, disk_errors
from storage.segment.index import ENTRY_BYTES, NO_MAX_TIMESTAMP, SparseIndex, decode_sealed, seal_timestamp
from storage.segment.map_windows import EMPTY, MapWindows
from storage.segment.reads import LogRead
from storage.segment.txn_index import AbortedEntry, TransactionIndex, decode_fitting

# At most this many end positions of reads are cached, so that a reader's next read starts without a search.
READ_ENDS_MAX: Final = 128
# The last bytes that this process wrote, up to this many, are assumed to be in memory.
RECENT_BYTES: Final = 8 * 1024 * 1024
_WARM_UP_BYTES: Final = 256 * 1024
_NAME_DIGITS: Final = 20
# The largest offset in an index entry, relative to the segment's base offset. It is the same as in Kafka.
RELATIVE_OFFSET_MAX: Final = 0x7FFFFFFF

_unpack_step = STEP.unpack_from
_unpack_timestamp = struct.Struct(f">{MAX_TIMESTAMP_POSITION}xq").unpack_from


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def index_name(base_offset: int) -> str:
    return f"{base_offset:020d}.index"


def txn_index_name(base_offset: int) -> str:
    return f"{base_offset:020d}.txnindex"


def file_names(base_offset: int) -> tuple[str, str, str]:
    """The names of all files that a segment may have."""
    return segment_name(base_offset), index_name(base_offset), txn_index_name(base_offset)


def base_offsets(names: list[str]) -> list[int]:
    """The base offsets of the segments among these file names."""
    return [
        int(name[:_NAME_DIGITS])
        for name in names
        if len(name) == _NAME_DIGITS + 4 and name.endswith(".log") and name[:_NAME_DIGITS].isdecimal()
    ]


class ReadableSegment:
    """A segment, for reading. ``next_offset`` is the offset after its last record, ``size_bytes`` its end position."""

    __slots__ = (
        "_capacity",
        "_directory",
        "_fd",
        "_files",
        "_index",
        "_index_interval_bytes",
        "_indexed_position",
        "_is_closed",
        "_loaded_index",
        "_lock",
        "_max_timestamp",
        "_read_ends",
        "_spare_fd",
        "_windows",
        "_written_from",
        "aborted",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "holes",
        "is_seal_pending",
        "is_sealed",
        "next_offset",
        "size_bytes",
    )

    def __init__(
        self, directory: str, base_offset: int, files: Files, *, index_interval_bytes: int, created_ms: int
    ) -> None:
        self._directory = directory
        self._files = files
        self._index_interval_bytes = index_interval_bytes
        self._lock = threading.Lock()
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.is_sealed = False
        self.is_seal_pending = False
        self.created_ms = created_ms
        self.first_timestamp = NO_MAX_TIMESTAMP
        # The transactions whose ABORT marker is in this segment. None: there are some on disk, but they are not loaded.
        self.aborted: TransactionIndex | None = TransactionIndex()
        # (position, end) of quarantined bytes, in order.
        self.holes: tuple[tuple[int, int], ...] = ()
        self._max_timestamp: int | None = NO_MAX_TIMESTAMP
        self._index: SparseIndex | None = SparseIndex(base_offset)
        self._indexed_position = 0
        # An index that another thread loaded. The log's thread takes it when it needs the index.
        self._loaded_index: tuple[SparseIndex, int] | None = None
        self._fd = -1
        # A descriptor that another thread opened in advance.
        self._spare_fd = -1
        self._windows = MapWindows(files)
        self._is_closed = False
        # The length of the file, with zeros from size_bytes on.
        self._capacity = 0
        # Bytes from this position on were written by this process.
        self._written_from = 0
        self._read_ends: dict[int, int] = {}

    @property
    def path(self) -> str:
        return os.path.join(self._directory, segment_name(self.base_offset))

    @property
    def index_path(self) -> str:
        return os.path.join(self._directory, index_name(self.base_offset))

    @property
    def txn_index_path(self) -> str:
        return os.path.join(self._directory, txn_index_name(self.base_offset))

    # --- reading

    def read(
        self, offset: int, max_bytes: int, upto: int, at_least_one: bool, ceiling: tuple[int, int] | None = None
    ) -> LogRead:
        """Return batches below offset ``upto``, starting with the batch that holds ``offset``.

        ``ceiling`` is the (position, offset) at which damaged bytes begin: the read ends there at the latest.
        """
        read_ends = self._read_ends
        start = read_ends.get(offset)
        if start is None:
            start = self.position_of(offset)
        if ceiling is not None and upto >= ceiling[1]:
            end, next_offset = ceiling
        elif upto >= self.next_offset:
            end, next_offset = self.size_bytes, self.next_offset
        else:
            end, next_offset = self._boundary_at(upto)
        if end - start > max_bytes:
            end, next_offset = self._boundary_within(start, start + max_bytes, at_least_one)
        if end <= start:
            return LogRead(EMPTY, offset, None, start)
        window_start, view = self._windows.find(start, end) or self._open_window(start, end)
        if next_offset not in read_ends:
            self._cache_read_end(next_offset, end)
        return LogRead(view[start - window_start : end - window_start], next_offset, self, start)

    def cache_end(self) -> None:
        """Cache the end position: a reader that waits for new batches starts its next read there."""
        if self.next_offset not in self._read_ends:
            self._cache_read_end(self.next_offset, self.size_bytes)

    def _cache_read_end(self, offset: int, position: int) -> None:
        read_ends = self._read_ends
        if len(read_ends) >= READ_ENDS_MAX:
            del read_ends[next(iter(read_ends))]
        read_ends[offset] = position

    def position_of(self, offset: int) -> int:
        """The position of the batch that holds ``offset``, or of the first one after it if compaction left a gap."""
        start, known_offset = self.index.find_offset(offset)
        for position, _, _, last_offset in self._scan(start, known_offset):
            if last_offset >= offset:
                return position
        return self.size_bytes

    def end_below(self, offset: int) -> tuple[int, int]:
        """(position, next offset) of the end of the batches that are entirely below ``offset``."""
        start, known_offset = self.index.find_offset(max(offset - 1, self.base_offset))
        boundary: tuple[int, int] | None = None
        while True:
            for _, end, _, last_offset in self._scan(start, known_offset):
                if last_offset >= offset:
                    break
                boundary = end, last_offset + 1
            if boundary is not None or not start:
                return boundary or (0, self.base_offset)
            # The batch at the index entry is already beyond the offset, and the end of the batch before it is not
            # known.
            start, known_offset = self.index.find_position(start - 1)

    def _boundary_at(self, upto: int) -> tuple[int, int]:
        position = self._read_ends.get(upto)
        if position is not None:
            return position, upto
        start, known_offset = self.index.find_offset(upto)
        for position, _, base_offset, last_offset in self._scan(start, known_offset):
            if last_offset >= upto:
                if base_offset < upto:
                    # A batch is returned whole or not at all, so the reader continues at the first offset of the batch.
                    return position, base_offset
                self._cache_read_end(upto, position)
                return position, upto
        return self.size_bytes, upto

    def _boundary_within(self, start: int, limit: int, at_least_one: bool) -> tuple[int, int]:
        """The last batch boundary at or below ``limit``. Scans only if the index has no entry after ``start``."""
        boundary = self.index.find_position(limit)
        if boundary[0] > start:
            return boundary
        boundary = (start, -1)
        for position, end, _, last_offset in self._scan(start):
            if end > limit and not (at_least_one and position == start):
                break
            boundary = (end, last_offset + 1)
            if end >= limit:
                break
        return boundary

    def _scan(self, position: int, known_offset: int | None = None) -> Iterator[tuple[int, int, int, int]]:
        """(position, end, base offset, last offset) of the batches from ``position`` on."""
        size, holes = self.size_bytes, self.holes
        window_start, view, window_end = 0, EMPTY, 0
        while position < size:
            if holes:
                for hole, hole_end in holes:
                    if hole <= position < hole_end:
                        position, known_offset = hole_end, None
                if position >= size:
                    return
            header_end = position + HEADER_BYTES
            if header_end > size:
                raise DamagedLog(f"{self.path}: the file ends inside the batch header at byte {position}")
            if header_end > window_end:
                window_start, view = self._windows.find(position, header_end) or self._open_window(position, header_end)
                window_end = window_start + len(view)
            base_offset, length, delta = _unpack_step(view, position - window_start)
            if known_offset is not None and base_offset != known_offset and position:
                raise DamagedLog(
                    f"{self.path}: the batch at byte {position} has base offset {base_offset}, "
                    f"the index says {known_offset}"
                )
            known_offset = None
            if length < MIN_BATCH_LENGTH or delta < 0:
                raise DamagedLog(f"{self.path}: the batch header at byte {position} is not valid")
            end = position + length + LENGTH_OVERHEAD
            yield position, end, base_offset, base_offset + delta
            position = end

    def batches(self, position: int = 0) -> Iterator[tuple[int, int]]:
        """(position, end) of the batches from ``position`` on, where a batch begins."""
        return ((start, end) for start, end, _, _ in self._scan(position))

    def batches_for_timestamp(self, timestamp_ms: int) -> Iterator[memoryview]:
        """All batches from the first one that may have a record of ``timestamp_ms`` or later."""
        start, known_offset = self.index.find_timestamp(timestamp_ms)
        for position, end, _, _ in self._scan(start, known_offset):
            yield self.view(position, end)

    def view(self, start: int, end: int) -> memoryview:
        """Bytes of this segment, as a slice of the page cache."""
        window_start, view = self._windows.find(start, end) or self._open_window(start, end)
        return view[start - window_start : end - window_start]

    def _open_window(self, start: int, end: int) -> tuple[int, memoryview]:
        file_end = self.size_bytes if self.is_sealed else max(self._capacity, self.size_bytes)
        if end > file_end:
            raise DamagedLog(f"{self.path}: a batch extends beyond the end of the file, {file_end}")
        with disk_errors(f"map {self.path}"):
            self._open_for_read()
            try:
                return self._windows.open(self._fd, start, end, file_end, is_growing=not self.is_sealed)
            except ValueError as error:  # a map cannot extend beyond the end of the file
                raise DamagedLog(f"{self.path} is shorter than {file_end} bytes") from error

    def _open_for_read(self) -> None:
        if self._is_closed:
            raise LogClosed(f"{self.path} is closed")
        if self._fd >= 0:
            return
        with self._lock:
            self._fd, self._spare_fd = self._spare_fd, -1
        if self._fd < 0:
            self._fd = self._files.open_read(self.path) if self.is_sealed else self._files.open_write(self.path)

    def preopen(self) -> None:
        """Open a sealed file and load its index in advance. Called from any thread."""
        with disk_errors(f"open {self.path}"):
            self._preload_index()
            if self._is_closed or not self.is_sealed or self._fd >= 0 or self._spare_fd >= 0:
                return
            fd = self._files.open_read(self.path)
            with self._lock:
                if not self._is_closed and self._spare_fd < 0:
                    self._spare_fd, fd = fd, -1
            if fd >= 0:
                self._files.close(fd)

    # --- page cache

    def is_warm(self, start: int, end: int) -> bool:
        if not self.is_sealed and start >= self._written_from and start >= self.size_bytes - RECENT_BYTES:
            return True
        if self._fd < 0:
            if self._is_closed:
                return True  # the log has closed the segment, and its readers will soon stop
            with disk_errors(f"open {self.path}"):
                self._open_for_read()
        try:  # disk_errors is not used here: this runs once per read, and a context manager costs time
            is_cached = self._files.is_cached(self._fd, start, end)
            return self._files.is_resident(self.view(start, end)) if is_cached is None else is_cached
        except OSError as error:
            raise DiskFailure(f"check the cached pages of {self.path}: {error}", error.errno) from error

    def is_start_warm(self, offset: int) -> bool:
        """Whether a read from ``offset`` finds its first batch without waiting for the disk."""
        if offset in self._read_ends:
            return True
        index = self._known_index()
        if index is None:
            return False
        start, _ = index.find_offset(offset)
        return self.is_warm(start, min(start + self._index_interval_bytes, self.size_bytes))

    def warm_start(self, offset: int) -> None:
        """Load the index and the pages that :meth:`is_start_warm` found missing. Called from any thread."""
        index = self._preload_index()
        if index is not None:
            start, _ = index.find_offset(offset)
            self.warm_up(start, min(start + _WARM_UP_BYTES, self.size_bytes))

    def _preload_index(self) -> SparseIndex | None:
        index = self._known_index()
        if index is None:
            data = self._files.read_file(self.index_path)
            self._loaded_index = decode_sealed(self.base_offset, data, self.size_bytes) if data is not None else None
            index = self._known_index()
        return index

    def _known_index(self) -> SparseIndex | None:
        if self._index is not None:
            return self._index
        loaded = self._loaded_index
        return None if loaded is None else loaded[0]

    def warm_up(self, start: int, end: int) -> None:
        """Read these bytes into the page cache. Called from any thread."""
        with disk_errors(f"read {self.path}"):
            with self._lock:
                if self._is_closed:
                    return
                fd = -1 if self._fd < 0 else self._files.duplicate(self._fd)
            if fd < 0:
                fd = self._open_cold()
            if fd < 0:
                return
            try:
                scratch = memoryview(bytearray(min(_WARM_UP_BYTES, end - start)))
                while start < end:
                    size = self._files.preadv(fd, [scratch[: end - start]], start)
                    if size <= 0:
                        return
                    start += size
            finally:
                self._files.close(fd)

    def _open_cold(self) -> int:
        """A new descriptor for the calling thread; -1 if the segment was closed and its file removed meanwhile."""
        try:
            return self._files.open_read(self.path)
        except FileNotFoundError:
            if self._is_closed:
                return -1
            raise

    # --- index

    @property
    def index(self) -> SparseIndex:
        index = self._index
        if index is None:
            index = self._load_index()
        return index

    @property
    def max_timestamp(self) -> int:
        if self._max_timestamp is None and self.is_sealed:
            # Read only the seal: a search by time checks many segments and skips most of them.
            with disk_errors(f"read {self.index_path}"):
                self._max_timestamp = seal_timestamp(self._files.read_end(self.index_path, ENTRY_BYTES))
        if self._max_timestamp is None:
            self._load_index()
        assert self._max_timestamp is not None
        return self._max_timestamp

    def adopt(self, index: SparseIndex, max_timestamp: int) -> None:
        """Use this index, which the caller has in memory, instead of loading it later."""
        self._index = index
        self._indexed_position = index.last_position
        self._max_timestamp = max_timestamp

    def set_timestamps(self, max_timestamp: int, first_timestamp: int, created_ms: int) -> None:
        """Use the timestamps of a checkpoint or a scan, so that they need not be read from files."""
        self._max_timestamp = max_timestamp
        self.first_timestamp = first_timestamp
        self.created_ms = created_ms

    def _load_index(self) -> SparseIndex:
        found, self._loaded_index = self._loaded_index, None
        if found is None:
            with disk_errors(f"read {self.index_path}"):
                data = self._files.read_file(self.index_path)
            found = decode_sealed(self.base_offset, data, self.size_bytes) if data is not None else None
        index, max_timestamp = found if found is not None else self._rebuild_index()
        self.adopt(index, max_timestamp)
        return index

    def _rebuild_index(self) -> tuple[SparseIndex, int]:
        """Rebuild the index from the batch headers, because its file is missing or not valid."""
        index = SparseIndex(self.base_offset)
        max_timestamp = NO_MAX_TIMESTAMP
        for position, end, base_offset, _ in self._scan(0):
            if not 0 <= base_offset - self.base_offset <= RELATIVE_OFFSET_MAX:
                raise DamagedLog(f"{self.path}: the batch at byte {position} has base offset {base_offset}")
            if position - index.last_position >= self._index_interval_bytes:
                index.add(base_offset, position, max_timestamp)
            max_timestamp = max(max_timestamp, _unpack_timestamp(self.view(position, end))[0])
        return index, max_timestamp

    # --- aborted transactions

    @property
    def has_aborted(self) -> bool:
        return self.aborted is None or len(self.aborted) > 0

    @property
    def is_aborted_on_file(self) -> bool:
        """Whether the transaction index file of the segment, if it has one, is complete and durable."""
        return self.is_sealed and not self.is_seal_pending

    def adopt_aborted(self, entries: Iterable[AbortedEntry]) -> None:
        self.aborted = TransactionIndex(entries)

    def read_aborted(self) -> list[AbortedEntry] | None:
        """The entries of the transaction index file; None if it does not exist or is not valid."""
        with disk_errors(f"read {self.txn_index_path}"):
            return decode_fitting(self._files.read_file(self.txn_index_path), self.size_bytes)

    # --- closing

    def _drop(self) -> None:
        with self._lock:
            fds = (self._fd, self._spare_fd)
            self._fd = self._spare_fd = -1
        self._windows.clear()
        self._read_ends.clear()
        for fd in fds:
            if fd >= 0:
                self._files.close(fd)
