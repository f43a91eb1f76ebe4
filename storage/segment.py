"""One file of a log: batches one behind the other, and the space reserved for the next ones.

A segment owns ``<base offset>.log`` and ``<base offset>.index``. The file exists only from its first append. It is
extended in steps by reserving zeroed space, the next step off the loop while the current one fills up, so appends
neither wait for the file system nor meet a full disk halfway. Everything past :attr:`LogSegment.size_bytes` is zero.

Readers get slices of read-only maps of the file: a ``pwrite`` shows in them at once. Maps are dropped by reference
only, so a slice stays good for as long as somebody holds it. The one cut a segment ever gets, when it is sealed,
removes the zeros above the end, which no slice covers.

Thread rule: everything is called by the log's thread, except the jobs that are handed to ``background`` and
:meth:`LogSegment.warm_up`. Those hold ``_lock`` while they use the file descriptor, and the descriptor is closed only
under that lock, so its number cannot come to mean another file under their hands.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from storage.errors import DamagedLog, DiskFailure, LogClosed, StorageFailed, disk_errors
from storage.files import Files
from storage.format import HEADER_BYTES, LENGTH_OVERHEAD, MAX_TIMESTAMP_POSITION, MIN_BATCH_LENGTH, STEP
from storage.index import BLOCK_ENTRIES, ENTRY_BYTES, NO_MAX_TIMESTAMP, SparseIndex, decode_sealed, seal_timestamp
from storage.reads import LogRead as LogRead
from storage.settings import Background
from storage.windows import EMPTY, MapWindows

STEP_BYTES_MIN: Final = 64 * 1024
STEP_BYTES_MAX: Final = 16 * 1024 * 1024
# Read ends remembered, so that a reader's next read starts without a search.
READ_ENDS_MAX: Final = 128
# What this process wrote this recently is taken as being in memory.
RECENT_BYTES: Final = 8 * 1024 * 1024
_WARM_UP_BYTES: Final = 256 * 1024

_unpack_step = STEP.unpack_from
_unpack_timestamp = struct.Struct(f">{MAX_TIMESTAMP_POSITION}xq").unpack_from


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def index_name(base_offset: int) -> str:
    return f"{base_offset:020d}.index"


class LogSegment:
    """See the module's words. ``next_offset`` follows the last record, ``size_bytes`` is where its batch ends."""

    __slots__ = (
        "_background",
        "_capacity",
        "_directory",
        "_fd",
        "_files",
        "_half_step_bytes",
        "_index",
        "_index_interval_bytes",
        "_indexed_position",
        "_is_closed",
        "_limit_bytes",
        "_loaded_index",
        "_lock",
        "_max_timestamp",
        "_prepared_capacity",
        "_preparing_from",
        "_pwrite",
        "_read_ends",
        "_room",
        "_spoiled_end",
        "_step_bytes",
        "_windows",
        "_written_from",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "is_seal_pending",
        "is_sealed",
        "next_offset",
        "size_bytes",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        files: Files,
        background: Background,
        *,
        limit_bytes: int,
        index_interval_bytes: int,
        created_ms: int = 0,
    ) -> None:
        self._directory = directory
        self._files = files
        self._background = background
        self._pwrite = files.pwrite
        self._limit_bytes = limit_bytes
        self._index_interval_bytes = index_interval_bytes
        self._lock = threading.Lock()
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.is_sealed = False
        self.created_ms = created_ms
        self.first_timestamp = NO_MAX_TIMESTAMP
        self._max_timestamp: int | None = NO_MAX_TIMESTAMP
        self._index: SparseIndex | None = SparseIndex(base_offset)
        self._indexed_position = 0
        # What a thread loaded for us; the log's thread takes it when it needs the index and has none.
        self._loaded_index: tuple[SparseIndex, int] | None = None
        self._fd = -1
        self._windows = MapWindows(files)
        self._is_closed = False
        self.is_seal_pending = False
        # Bytes up to _room are appended without a second thought; beyond it _make_room looks what is to do.
        self._room = 0
        self._capacity = 0
        self._step_bytes = STEP_BYTES_MIN
        self._half_step_bytes = 0
        self._preparing_from = -1
        self._prepared_capacity = 0
        self._spoiled_end = 0
        self._written_from = 0
        self._read_ends: dict[int, int] = {}

    @classmethod
    def existing(
        cls,
        directory: str,
        base_offset: int,
        files: Files,
        background: Background,
        *,
        limit_bytes: int,
        index_interval_bytes: int,
        next_offset: int,
        size_bytes: int,
        is_sealed: bool,
    ) -> LogSegment:
        """A segment whose file ends exactly at ``size_bytes``; nothing is opened or read yet."""
        segment = cls(
            directory,
            base_offset,
            files,
            background,
            limit_bytes=limit_bytes,
            index_interval_bytes=index_interval_bytes,
        )
        segment.next_offset = next_offset
        segment.size_bytes = segment._capacity = segment._written_from = size_bytes
        segment.is_sealed = is_sealed
        segment._index = None
        segment._max_timestamp = None
        return segment

    def __repr__(self) -> str:
        return f"<LogSegment {self.base_offset}..{self.next_offset} {self.size_bytes} bytes>"

    @property
    def path(self) -> str:
        return os.path.join(self._directory, segment_name(self.base_offset))

    @property
    def index_path(self) -> str:
        return os.path.join(self._directory, index_name(self.base_offset))

    # --- appending

    def append(self, batch: memoryview, size: int, offset: int, last_offset: int, timestamp: int) -> None:
        """Write one placed batch behind the last one. When this raises, the segment is as it was."""
        position = self.size_bytes
        end = position + size
        if end > self._room:
            self._make_room(end)
        try:
            written = self._pwrite(self._fd, batch, position)
            if written != size:
                self._files.write_all(self._fd, batch[written:], position + written)
        except OSError as error:
            # Part of the batch may be in the file; it is zeroed before the next append.
            self._spoiled_end = max(self._spoiled_end, end)
            self._room = 0
            raise DiskFailure(f"append to {self.path}: {error}", error.errno) from error
        if position - self._indexed_position >= self._index_interval_bytes:
            self._add_index_entry(offset, position)
        if timestamp > self._max_timestamp:  # type: ignore[operator]  # known once _make_room ran
            self._max_timestamp = timestamp
        self.size_bytes = end
        self.next_offset = last_offset + 1

    def _add_index_entry(self, offset: int, position: int) -> None:
        index = self.index
        index.add(offset, position, self.max_timestamp)
        self._indexed_position = position
        if len(index) - index.written_count >= BLOCK_ENTRIES:
            self.write_index()

    def _make_room(self, end: int) -> None:
        if self._is_closed or self.is_sealed:
            raise LogClosed(f"{self.path} takes no more appends")
        with disk_errors(f"make room in {self.path}"):
            if self._index is None:
                # Appends continue a segment of an earlier run: its index goes on, its timestamps stay known.
                self._load_index()
            if self._fd < 0:
                self._fd = self._files.open_write(self.path) if self.size_bytes else self._files.create(self.path)
            if self._spoiled_end > self.size_bytes:
                self._files.zero(self._fd, self.size_bytes, min(self._spoiled_end, self._capacity))
                self._spoiled_end = 0
            if end > self._capacity:
                self._extend(end)
        if self._capacity >= self._limit_bytes:
            self._room = self._capacity
        elif end <= self._capacity - self._half_step_bytes:
            self._room = self._capacity - self._half_step_bytes
        else:
            self._prepare_next_step()
            self._room = self._capacity

    def _extend(self, end: int) -> None:
        if self._prepared_capacity >= end:
            target = self._prepared_capacity
        else:
            target = self._next_capacity(end)
            self._files.fallocate(self._fd, self._capacity, target - self._capacity)
        self._half_step_bytes = (target - self._capacity) // 2
        self._step_bytes = min(self._step_bytes * 2, STEP_BYTES_MAX)
        self._capacity = target

    def _next_capacity(self, end: int) -> int:
        # One batch may be larger than segment.bytes, so the limit gives way to it.
        return max(end, min(self._limit_bytes, max(self._capacity + self._step_bytes, end)))

    def _prepare_next_step(self) -> None:
        start = self._capacity
        if self._preparing_from == start:
            return
        self._preparing_from = start
        target = min(self._limit_bytes, start + self._step_bytes)

        def prepare() -> None:
            with self._lock:
                if self._is_closed or self.is_sealed or self._fd < 0:
                    return
                try:
                    self._files.fallocate(self._fd, start, target - start)
                except OSError:
                    return  # the append that needs the space asks again and reports it
                self._prepared_capacity = target

        with suppress(RuntimeError):  # no thread to be had: the append that needs the space makes it
            self._background(prepare)

    def set_limits(self, limit_bytes: int, index_interval_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._index_interval_bytes = index_interval_bytes

    # --- reading

    def read(self, offset: int, max_bytes: int, upto: int, at_least_one: bool) -> LogRead:
        """Batches from the one holding ``offset``, which is in this segment, up to and without offset ``upto``."""
        read_ends = self._read_ends
        start = read_ends.get(offset)
        if start is None:
            start = self.position_of(offset)
        if upto >= self.next_offset:
            end, next_offset = self.size_bytes, self.next_offset
        else:
            end, next_offset = self._boundary_at(upto)
        if end - start > max_bytes:
            end, next_offset = self._boundary_within(start, start + max_bytes, at_least_one)
        if end <= start:
            return LogRead(EMPTY, offset, None, start)
        window_start, view = self._windows.find(start, end) or self._open_window(start, end)
        if next_offset not in read_ends:
            self._remember(next_offset, end)
        return LogRead(view[start - window_start : end - window_start], next_offset, self, start)

    def remember_end(self) -> None:
        """A reader waits at the end: its next read starts here."""
        if self.next_offset not in self._read_ends:
            self._remember(self.next_offset, self.size_bytes)

    def _remember(self, offset: int, position: int) -> None:
        read_ends = self._read_ends
        if len(read_ends) >= READ_ENDS_MAX:
            del read_ends[next(iter(read_ends))]
        read_ends[offset] = position

    def position_of(self, offset: int) -> int:
        """Where the batch that holds ``offset`` begins (or the first one after it, where compaction left a gap)."""
        start, known_offset = self.index.place_for_offset(offset)
        for position, _, _, last_offset in self._steps(start, known_offset):
            if last_offset >= offset:
                return position
        return self.size_bytes

    def _boundary_at(self, upto: int) -> tuple[int, int]:
        position = self._read_ends.get(upto)
        if position is not None:
            return position, upto
        start, known_offset = self.index.place_for_offset(upto)
        for position, _, base_offset, last_offset in self._steps(start, known_offset):
            if last_offset >= upto:
                if base_offset < upto:
                    # The whole batch is held back, so its first offset is where the reader goes on.
                    return position, base_offset
                self._remember(upto, position)
                return position, upto
        return self.size_bytes, upto

    def _boundary_within(self, start: int, limit: int, at_least_one: bool) -> tuple[int, int]:
        """The last known batch boundary at or below ``limit``; walks only when the index knows none behind start."""
        boundary = self.index.boundary_before(limit)
        if boundary[0] > start:
            return boundary
        boundary = (start, -1)
        for position, end, _, last_offset in self._steps(start):
            if end > limit and not (at_least_one and position == start):
                break
            boundary = (end, last_offset + 1)
            if end >= limit:
                break
        return boundary

    def _steps(self, position: int, known_offset: int | None = None) -> Iterator[tuple[int, int, int, int]]:
        """(position, end, base offset, last offset) of the batches from ``position`` on."""
        size = self.size_bytes
        window_start, view, window_end = 0, EMPTY, 0
        while position < size:
            header_end = position + HEADER_BYTES
            if header_end > size:
                raise DamagedLog(f"{self.path}: no batch at {position}")
            if header_end > window_end:
                window_start, view = self._windows.find(position, header_end) or self._open_window(position, header_end)
                window_end = window_start + len(view)
            base_offset, length, delta = _unpack_step(view, position - window_start)
            if known_offset is not None and base_offset != known_offset and position:
                raise DamagedLog(f"{self.path}: the index says {known_offset} at {position}, there is {base_offset}")
            known_offset = None
            if length < MIN_BATCH_LENGTH or delta < 0:
                raise DamagedLog(f"{self.path}: no batch at {position}")
            end = position + length + LENGTH_OVERHEAD
            yield position, end, base_offset, base_offset + delta
            position = end

    def batches_for_timestamp(self, timestamp_ms: int) -> Iterator[memoryview]:
        """The batches from the first one on that may hold a record of ``timestamp_ms`` or later."""
        start, known_offset = self.index.place_for_timestamp(timestamp_ms)
        for position, end, _, _ in self._steps(start, known_offset):
            yield self._view(position, end)

    def _view(self, start: int, end: int) -> memoryview:
        window_start, view = self._windows.find(start, end) or self._open_window(start, end)
        return view[start - window_start : end - window_start]

    def _open_window(self, start: int, end: int) -> tuple[int, memoryview]:
        file_end = self.size_bytes if self.is_sealed else max(self._capacity, self.size_bytes)
        if end > file_end:
            raise DamagedLog(f"{self.path}: a batch goes on behind the end")
        with disk_errors(f"map {self.path}"):
            self._open_for_read()
            return self._windows.open(self._fd, start, end, file_end, is_growing=not self.is_sealed)

    def _open_for_read(self) -> None:
        if self._is_closed:
            raise LogClosed(f"{self.path} is closed")
        if self._fd < 0:
            self._fd = self._files.open_read(self.path) if self.is_sealed else self._files.open_write(self.path)

    # --- warmth

    def is_warm(self, start: int, end: int) -> bool:
        if not self.is_sealed and start >= self._written_from and start >= self.size_bytes - RECENT_BYTES:
            return True
        window_start, view = self._windows.find(start, end) or self._open_window(start, end)
        try:  # once per read, so without the frames of disk_errors
            return self._files.is_resident(view[start - window_start : end - window_start])
        except OSError as error:
            raise DiskFailure(f"look at the pages of {self.path}: {error}", error.errno) from error

    def is_start_warm(self, offset: int) -> bool:
        """Whether a read from ``offset`` on finds its first batch without waiting for the disk."""
        if offset in self._read_ends:
            return True
        index = self._known_index()
        if index is None:
            return False
        start, _ = index.place_for_offset(offset)
        return self.is_warm(start, min(start + self._index_interval_bytes, self.size_bytes))

    def warm_start(self, offset: int) -> None:
        """Load what :meth:`is_start_warm` found missing; called from a thread."""
        index = self._known_index()
        if index is None:
            data = self._files.read_file(self.index_path)
            self._loaded_index = decode_sealed(self.base_offset, data, self.size_bytes) if data is not None else None
            index = self._known_index()
        if index is not None:
            start, _ = index.place_for_offset(offset)
            self.warm_up(start, min(start + _WARM_UP_BYTES, self.size_bytes))

    def _known_index(self) -> SparseIndex | None:
        if self._index is not None:
            return self._index
        loaded = self._loaded_index
        return None if loaded is None else loaded[0]

    def warm_up(self, start: int, end: int) -> None:
        """Called from a thread."""
        with disk_errors(f"read {self.path}"):
            with self._lock:
                if self._is_closed:
                    return
                fd = self._files.open_read(self.path) if self._fd < 0 else self._files.duplicate(self._fd)
            try:
                scratch = memoryview(bytearray(min(_WARM_UP_BYTES, end - start)))
                while start < end:
                    size = self._files.preadv(fd, [scratch[: end - start]], start)
                    if size <= 0:
                        return
                    start += size
            finally:
                self._files.close(fd)

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
            # Just the seal: a search by time goes over many segments, and most of them it passes by.
            with disk_errors(f"read {self.index_path}"):
                self._max_timestamp = seal_timestamp(self._files.read_end(self.index_path, ENTRY_BYTES))
        if self._max_timestamp is None:
            self._load_index()
        assert self._max_timestamp is not None
        return self._max_timestamp

    def adopt(self, index: SparseIndex, max_timestamp: int) -> None:
        """Take what recovery found, instead of loading it later."""
        self._index = index
        self._indexed_position = index.last_position
        self._max_timestamp = max_timestamp

    def know_timestamps(self, max_timestamp: int, first_timestamp: int, created_ms: int) -> None:
        """Take what a clean checkpoint says, so that nothing needs to be read."""
        self._max_timestamp = max_timestamp
        self.first_timestamp = first_timestamp
        self.created_ms = created_ms

    def _load_index(self) -> SparseIndex:
        found, self._loaded_index = self._loaded_index, None
        if found is None:
            with disk_errors(f"read {self.index_path}"):
                data = self._files.read_file(self.index_path)
            found = decode_sealed(self.base_offset, data, self.size_bytes) if data is not None else None
        index, max_timestamp = found if found is not None else self._walk_for_index()
        self.adopt(index, max_timestamp)
        return index

    def _walk_for_index(self) -> tuple[SparseIndex, int]:
        """Build the index anew from the batch headers: its file is missing or does not fit."""
        index = SparseIndex(self.base_offset)
        max_timestamp = NO_MAX_TIMESTAMP
        for position, end, base_offset, _ in self._steps(0):
            if position - index.last_position >= self._index_interval_bytes:
                index.add(base_offset, position, max_timestamp)
            max_timestamp = max(max_timestamp, _unpack_timestamp(self._view(position, end))[0])
        return index, max_timestamp

    def write_index(self) -> None:
        """Write the entries that are not on file yet. A failure costs time after a kill, not data: it is retried."""
        index = self._index
        if index is None or index.written_count == len(index):
            return
        count = len(index)
        try:
            fd = self._files.open_write(self.index_path)
            try:
                self._files.write_all(fd, index.encode(index.written_count), index.written_count * ENTRY_BYTES)
            finally:
                self._files.close(fd)
        except OSError:
            return
        index.written_count = count

    # --- the end of its life

    def seal(self) -> Callable[[], None]:
        """Take no more appends. Returns the slow rest (cut, sync, index seal), to be run in any thread.

        It raises :class:`StorageFailed` when a sync failed and :class:`DiskFailure` when it got no further for another
        reason: then the segment is whole, stays pending and may be tried again.
        """
        index, max_timestamp = self.load_for_seal()
        self.is_sealed = self.is_seal_pending = True
        self._room = 0

        def finish() -> None:
            self._finish_seal(index, max_timestamp)
            self.is_seal_pending = False

        return finish

    def load_for_seal(self) -> tuple[SparseIndex, int]:
        """Read what :meth:`seal` needs; when this has worked, that cannot fail."""
        return self.index, self.max_timestamp

    def _finish_seal(self, index: SparseIndex, max_timestamp: int) -> None:
        with disk_errors(f"seal {self.path}"):
            with self._lock:
                if self._is_closed:
                    return
                fd = self._files.open_write(self.path)
                try:
                    self._files.truncate(fd, self.size_bytes)
                    index_fd = self._files.open_write(self.index_path)
                except OSError:
                    self._files.close(fd)
                    raise
            try:
                self._sync(fd)
                entries = index.encode() + index.encode_seal(self.size_bytes, max_timestamp)
                self._files.write_all(index_fd, entries, 0)
                self._files.truncate(index_fd, len(entries))
                self._sync(index_fd)
            finally:
                self._files.close(fd)
                self._files.close(index_fd)

    def flush(self) -> None:
        """Make what is appended durable; waits for the disk, so it may be called from a thread."""
        with disk_errors(f"sync {self.path}"):
            with self._lock:
                if self._fd < 0:
                    return
                fd = self._files.duplicate(self._fd)
            try:
                self._sync(fd)
            finally:
                self._files.close(fd)

    def _sync(self, fd: int) -> None:
        try:
            self._files.fdatasync(fd)
        except OSError as error:
            raise StorageFailed(f"sync {self.path}: {error}", error.errno) from error

    def release(self) -> None:
        """Give back descriptor, map and index; all come back when they are needed."""
        if not self.is_sealed or self.is_seal_pending:
            return
        self._drop()
        self._index = self._loaded_index = None

    def close(self) -> None:
        """No more use of any kind; slices that are out stay good."""
        self._is_closed = True
        self._room = 0
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            fd, self._fd = self._fd, -1
        self._windows.clear()
        self._read_ends.clear()
        if fd >= 0:
            self._files.close(fd)

    def discard(self) -> None:
        """Forget a segment whose first append failed: its file must not stay."""
        self.close()
        for path in (self.path, self.index_path):
            try:
                self._files.unlink(path)
            except OSError:
                continue  # the next first append starts it anew
