"""A segment: one file of a log, with its batches and the space reserved for the next ones.

A segment owns ``<base offset>.log``, ``<base offset>.index`` and, once it is closed and has ABORT markers,
``<base offset>.txnindex``. The log file is created by the first append. It is extended in steps, before batches are
written there, and everything after :attr:`LogSegment.size_bytes` is zero. A background thread reserves the next step
while the current one fills up, so that appends neither wait for the file system nor fail halfway on a full disk. An
append that needs the next step before it is reserved extends the file without reserving space.

A segment file is truncated when it is sealed or parked, and after a failed write. It is always truncated at the end of
its last batch, and no slice reaches beyond that position. Reading is in :mod:`storage.segment.reading`.

Thread rule: everything is called by the log's thread, except the jobs passed to ``background``, the function that
:meth:`LogSegment.seal` returns, :meth:`LogSegment.stop_work` and :meth:`LogSegment.delete_files`. These hold
``_work_lock`` while they change the length of files or use file names. That may wait for the disk, so the log's thread
does not acquire this lock while it serves requests. ``_lock`` guards the descriptor. No call that may wait for the disk
is made under ``_lock``.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from storage.data_directory.disk_reserve import is_full
from storage.disk.background import allocate_lane
from storage.disk.files import Files
from storage.errors import DiskFailure, LogClosed, disk_errors
from storage.log.settings import Background
from storage.log.syncing import SyncGate
from storage.segment.index import BLOCK_ENTRIES, ENTRY_BYTES, SparseIndex
from storage.segment.reading import ReadableSegment
from storage.segment.reading import index_name as index_name
from storage.segment.reading import segment_name as segment_name
from storage.segment.reads import LogRead as LogRead
from storage.segment.txn_index import encode_file

STEP_BYTES_MIN: Final = 64 * 1024
STEP_BYTES_MAX: Final = 16 * 1024 * 1024


class _Reservation:
    """Space up to ``target`` that a thread reserves. The thread sets the other fields, ``is_done`` last."""

    __slots__ = ("failure", "is_done", "is_made", "target")

    def __init__(self, target: int) -> None:
        self.target = target
        self.is_done = False
        self.is_made = False
        self.failure: OSError | None = None


class LogSegment(ReadableSegment):
    """A segment, for appending and reading. Bytes below ``synced_bytes`` are durable."""

    __slots__ = (
        "_append_limit",
        "_bad_end",
        "_can_reserve",
        "_half_step_bytes",
        "_is_kept_open",
        "_is_work_stopped",
        "_limit_bytes",
        "_pwrite",
        "_remove_files",
        "_reservation",
        "_reserve_space",
        "_step_bytes",
        "_work_lock",
        "gate",
        "is_deleted",
        "is_end_bad",
        "synced_bytes",
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
        super().__init__(
            directory, base_offset, files, index_interval_bytes=index_interval_bytes, created_ms=created_ms
        )
        self._reserve_space = allocate_lane(background)
        self._pwrite = files.pwrite
        self._limit_bytes = limit_bytes
        self.synced_bytes = 0
        # Set by the log and shared by all of its files: after one failed sync none of them is synced again.
        self.gate: SyncGate | None = None
        self.is_deleted = False
        self._remove_files: Callable[[], None] | None = None
        self._is_kept_open = False
        self._is_work_stopped = False
        self._work_lock = threading.Lock()
        # An append that ends at or below _append_limit only writes; beyond it _ensure_space is called first.
        self._append_limit = 0
        # Whether the file system can reserve space.
        self._can_reserve = True
        self._step_bytes = STEP_BYTES_MIN
        self._half_step_bytes = 0
        self._reservation: _Reservation | None = None
        self._bad_end = 0
        self.is_end_bad = False

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
        """A segment whose file ends exactly at ``size_bytes``. Nothing is opened or read yet."""
        segment = cls(
            directory,
            base_offset,
            files,
            background,
            limit_bytes=limit_bytes,
            index_interval_bytes=index_interval_bytes,
        )
        segment.next_offset = next_offset
        segment.size_bytes = segment._capacity = segment._written_from = segment.synced_bytes = size_bytes
        segment.is_sealed = is_sealed
        segment._index = None
        segment._max_timestamp = None
        return segment

    def __repr__(self) -> str:
        return f"<LogSegment {self.base_offset}..{self.next_offset} {self.size_bytes} bytes>"

    # --- appending

    def append(self, batch: memoryview, size: int, offset: int, last_offset: int, timestamp: int) -> None:
        """Append one batch whose offset is set. If this raises, the segment is unchanged."""
        position = self.size_bytes
        end = position + size
        if end > self._append_limit:
            self._ensure_space(end)
        try:
            written = self._pwrite(self._fd, batch, position)
            if written != size:
                self._append_rest(batch, written, position)
        except OSError as error:
            if not is_full(error):  # a write that fails on a full disk has written nothing
                self._mark_end_bad(end)
            raise DiskFailure(f"append to {self.path}: {error}", error.errno) from error
        # The first call of _ensure_space has loaded the index and the max timestamp.
        if position - self._indexed_position >= self._index_interval_bytes:
            self._indexed_position = position
            if self._index.add(offset, position, self._max_timestamp) >= BLOCK_ENTRIES:  # type: ignore[union-attr, arg-type]
                self.write_index()
        if timestamp > self._max_timestamp:  # type: ignore[operator]
            self._max_timestamp = timestamp
        self.size_bytes = end
        self.next_offset = last_offset + 1

    def _append_rest(self, batch: memoryview, written: int, position: int) -> None:
        try:
            self._files.write_all(self._fd, batch[written:], position + written)
        except OSError:
            self._mark_end_bad(position + len(batch))
            raise

    def _mark_end_bad(self, end: int) -> None:
        """Mark the end of the file as bad: a failed write may have left a part of a batch there.

        That part is truncated, and the log continues in another segment. If new bytes were written at this position and
        their page was torn, recovery would report damage.
        """
        self._bad_end = max(self._bad_end, end)
        self.is_end_bad = True
        self._append_limit = 0

    def _ensure_space(self, end: int) -> None:
        if self._is_closed or self.is_sealed:
            raise LogClosed(f"{self.path} takes no more appends")
        with disk_errors(f"make room in {self.path}"):
            if self._index is None:
                # The first append of this run to an existing segment continues the index and timestamps of that
                # segment.
                self._load_index()
            if self._fd < 0:
                self._fd = self._files.open_write(self.path) if self.size_bytes else self._files.create(self.path)
            self._truncate_bad_end()
            self._use_reserved()
            if end > self._capacity - self._half_step_bytes and self._capacity < max(end, self._limit_bytes):
                self._reserve(end)
            if end > self._capacity:
                self._extend(self._next_capacity(end))
        is_next_near = end > self._capacity - self._half_step_bytes
        self._append_limit = self._capacity if is_next_near else self._capacity - self._half_step_bytes

    @property
    def must_roll(self) -> bool:
        """Whether a write after the last batch failed, so that no batch should be appended to this file."""
        return self.is_end_bad and self.size_bytes > 0

    def _truncate_bad_end(self) -> None:
        if self._bad_end > self.size_bytes:
            # Truncate instead of writing zeros: a truncation is atomic, while zeros that are only partly written would
            # leave the end of a batch without its beginning.
            self._files.truncate(self._fd, self.size_bytes)
            self._reset_reserved()
            # Parts of the failed write may be on the disk, and the truncation is not durable, so a sync is needed.
            self.synced_bytes = min(self.synced_bytes, self.size_bytes - 1)

    # --- space

    def _next_capacity(self, end: int) -> int:
        # A single batch may be larger than segment.bytes.
        return max(end, min(self._limit_bytes, max(self._capacity + self._step_bytes, end)))

    def _reserve(self, end: int) -> None:
        """Reserve the next step in a background thread, unless one is being reserved. The next batch ends at ``end``.

        Raises ``OSError`` if the reservation has already failed and the batch cannot be stored.
        """
        if self._reservation is not None or not self._can_reserve:
            return
        start, target = self._capacity, self._next_capacity(end)
        reservation = self._reservation = _Reservation(target)

        def reserve() -> None:
            with self._work_lock:
                fd = -1
                try:
                    with self._lock:
                        if self._is_closed or self._is_work_stopped or self.is_sealed or self._fd < 0:
                            return
                        if self._reservation is not reservation:
                            return
                        fd = self._files.duplicate(self._fd)
                    self._files.fallocate(fd, start, target - start)
                    reservation.is_made = True
                except OSError as error:
                    reservation.failure = error
                finally:
                    if fd >= 0:
                        self._files.close(fd)
                    reservation.is_done = True

        try:
            self._reserve_space(reserve)
        except RuntimeError:  # no thread available: the next call tries again
            self._reservation = None
            return
        self._use_reserved()
        if reservation.failure is not None and self._can_reserve and end > self._capacity:
            raise reservation.failure

    def _use_reserved(self) -> None:
        """Use the space that a finished reservation has provided."""
        reservation = self._reservation
        if reservation is None or not reservation.is_done:
            return
        self._reservation = None
        if reservation.is_made and reservation.target > self._capacity:
            self._set_capacity(reservation.target)
        elif reservation.failure is not None and reservation.failure.errno == errno.EOPNOTSUPP:
            self._can_reserve = False

    def _extend(self, capacity: int) -> None:
        """Extend the file before a batch is written there, so that a batch torn by a kill is followed by zeros."""
        self._files.write_all(self._fd, b"\0", capacity - 1)
        self._set_capacity(capacity)

    def _set_capacity(self, capacity: int) -> None:
        self._half_step_bytes = (capacity - self._capacity) // 2
        self._step_bytes = min(self._step_bytes * 2, STEP_BYTES_MAX)
        self._capacity = capacity

    @property
    def is_reserving(self) -> bool:
        """Whether a thread may be about to extend the file."""
        return self._reservation is not None and not self._reservation.is_done

    def _reset_reserved(self) -> None:
        """Reset the reserved space after the file was truncated at its last batch."""
        self._capacity = self.size_bytes
        self._half_step_bytes = self._bad_end = 0
        self._reservation = None

    def set_limits(self, limit_bytes: int, index_interval_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._index_interval_bytes = index_interval_bytes

    def write_index(self) -> None:
        """Write the index entries that are not on disk yet.

        A failure is ignored: the next call retries, and missing entries only make recovery after a kill slower.
        """
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

    # --- sealing

    def seal(self) -> Callable[[], None]:
        """Accept no more appends. Returns the slow part (truncate, sync, write the seal) as a function for any thread.

        The function raises :class:`StorageFailed` if a sync failed. After another :class:`DiskFailure` the segment is
        intact, its seal stays pending, and the function may be called again.
        """
        index, max_timestamp = self.prepare_seal()
        assert self.aborted is not None
        aborted = encode_file(self.aborted, self.size_bytes) if self.aborted else None
        self.is_sealed = self.is_seal_pending = True
        self._append_limit = 0

        def finish() -> None:
            if self._finish_seal(index, max_timestamp, aborted):
                self.is_seal_pending = False

        return finish

    def prepare_seal(self) -> tuple[SparseIndex, int]:
        """Load the index and the max timestamp for :meth:`seal`. After this call, :meth:`seal` cannot fail.

        Remains of a failed append are truncated here: recovery reports a torn batch at the end of a segment as damage
        if another segment follows.
        """
        with disk_errors(f"truncate {self.path} to its last batch"):
            self._truncate_bad_end()
        return self.index, self.max_timestamp

    def stop_work(self, *, is_stopped: bool = True) -> None:
        """Prevent background jobs from using the files, because other files may get the same names.

        With ``is_stopped=False``, allow them again.
        """
        with self._work_lock:
            self._is_work_stopped = is_stopped

    def _finish_seal(self, index: SparseIndex, max_timestamp: int, aborted: bytes | None) -> bool:
        with disk_errors(f"seal {self.path}"):
            with self._work_lock:
                if self._is_work_stopped:
                    return False
                if self._is_closed:
                    return True
                fds = [self._files.open_write(self.path)]
                try:
                    self._files.truncate(fds[0], self.size_bytes)
                    fds.append(self._files.open_write(self.index_path))
                    if aborted is not None:
                        fds.append(self._files.open_write(self.txn_index_path))
                    else:
                        with suppress(FileNotFoundError):  # written by an earlier seal of this segment
                            self._files.unlink(self.txn_index_path)
                except OSError:
                    for fd in fds:
                        self._files.close(fd)
                    raise
            try:
                self.sync(fds[0])
                self.synced_bytes = self.size_bytes
                if aborted is not None:
                    self._write_aborted(fds[2], aborted)
                self._write_sealed_index(fds[1], index, max_timestamp)
                self.sync(fds[1])
            finally:
                for fd in fds:
                    self._files.close(fd)
        return True

    def _write_aborted(self, fd: int, aborted: bytes) -> None:
        """Write the transaction index. The file and its name are durable before the seal is written.

        A closed segment without this file is read as a segment without ABORT markers.
        """
        self._files.write_all(fd, aborted, 0)
        self._files.truncate(fd, len(aborted))
        self.sync(fd)
        assert self.gate is not None
        self.gate.sync(f"sync {self._directory}", self._files.fsync_dir, self._directory)

    def _write_sealed_index(self, fd: int, index: SparseIndex, max_timestamp: int) -> None:
        entries = index.encode() + index.encode_seal(self.size_bytes, max_timestamp)
        self._files.write_all(fd, entries, 0)
        self._files.truncate(fd, len(entries))

    def seal_unsynced(self) -> None:
        """Truncate the files of a synced segment and write its seal, without a sync. Raises ``OSError``.

        The segment still accepts appends, which make the seal invalid. Not allowed while :attr:`is_reserving`.
        """
        index, max_timestamp = self.prepare_seal()
        self._append_limit = 0
        self._use_reserved()
        if self._capacity > self.size_bytes:
            fd = self._files.open_write(self.path)
            try:
                self._files.truncate(fd, self.size_bytes)
            finally:
                self._files.close(fd)
            self._reset_reserved()
        fd = self._files.open_write(self.index_path)
        try:
            self._write_sealed_index(fd, index, max_timestamp)
        finally:
            self._files.close(fd)
        index.written_count = len(index)

    # --- durability

    def open_for_sync(self) -> int:
        """A new descriptor for a thread that syncs this segment. Raises ``OSError``."""
        return self._files.duplicate(self._fd) if self._fd >= 0 else self._files.open_read(self.path)

    def sync(self, fd: int) -> None:
        """Sync one of this segment's files, from any thread, unless a sync of this log has failed before."""
        gate = self.gate
        if gate is None:
            gate = self.gate = SyncGate()
        gate.sync(f"sync {self.path}", self._files.fdatasync, fd)

    # --- closing and removal

    def keep_open(self) -> None:
        """Open and load everything that readers may need, because the file names will soon belong to other files."""
        self._is_kept_open = True
        with disk_errors(f"open {self.path}"):
            self._open_for_read()
        self.prepare_seal()

    def release(self) -> None:
        """Close the descriptor, the maps and the index of a sealed segment. The next read opens them again."""
        if not self.is_sealed or self.is_seal_pending or self._is_kept_open:
            return
        self._drop()
        self._index = self._loaded_index = None
        if self.aborted:
            self.aborted = None

    def close(self) -> None:
        """Close the segment. Slices that readers hold stay valid."""
        self._is_closed = True
        self._append_limit = 0
        self._drop()

    def mark_dropped(self, remove_files: Callable[[], None]) -> None:
        """Mark the segment as dropped from its log. :meth:`delete_files` calls ``remove_files`` later."""
        self._remove_files = remove_files

    def delete_files(self) -> None:
        """Remove the files of a segment that its log has dropped. Waits for the disk, so it is called in a thread.

        Readers' slices stay valid. After a :class:`DiskFailure` the files still exist, and the call may be repeated.
        """
        with self._work_lock:
            self.close()
        if self._remove_files is not None:
            self._remove_files()
            self._remove_files = None
        self.is_deleted = True

    def mark_deleted(self) -> None:
        """Mark the segment as deleted. Removes no files: its own are gone, and other files may have the same names."""
        self._remove_files = None
        self.delete_files()

    def discard(self) -> None:
        """Close a segment whose first append failed and remove its file."""
        self.close()
        with suppress(OSError):  # the next append creates the file again, empty
            self.unlink_files()

    def unlink_files(self) -> None:
        """Remove the segment's files. Raises ``OSError``."""
        for path in (self.path, self.index_path, self.txn_index_path):
            with suppress(FileNotFoundError):
                self._files.unlink(path)
