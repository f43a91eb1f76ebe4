"""One file of a log: batches one behind the other, and the space reserved for the next ones.

A segment owns ``<base offset>.log``, ``<base offset>.index`` and, once it is closed with ABORT markers in it,
``<base offset>.txnindex``. The file exists only from its first append. It is extended in steps, before batches are
written there, and everything past :attr:`LogSegment.size_bytes` is zero. The next step is reserved off the loop while
the current one fills up, so that appends neither wait for the file system nor meet a full disk halfway. An append that
comes before its step is reserved makes the file longer without reserving anything.

A segment is cut when it is sealed or parked, and when a write failed, always at its end, above which no slice reaches.
How it is read is the business of :mod:`storage.segment_reading`.

Thread rule: everything is called by the log's thread, except the jobs that are handed to ``background``, the function
that :meth:`LogSegment.seal` returns, :meth:`LogSegment.stop_work` and :meth:`LogSegment.delete_files`. Those hold
``_work_lock`` while they change the length of files or use their names, which may wait for the disk: the log's thread
does not take it while it serves. ``_lock`` guards the descriptor and is held for moments.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from storage.background import allocate_lane
from storage.disk_reserve import is_full
from storage.errors import DiskFailure, LogClosed, disk_errors
from storage.files import Files
from storage.index import BLOCK_ENTRIES, ENTRY_BYTES, SparseIndex
from storage.reads import LogRead as LogRead
from storage.segment_reading import ReadableSegment
from storage.segment_reading import index_name as index_name
from storage.segment_reading import segment_name as segment_name
from storage.settings import Background
from storage.syncing import SyncGate
from storage.txn_index import encode_file

STEP_BYTES_MIN: Final = 64 * 1024
STEP_BYTES_MAX: Final = 16 * 1024 * 1024


class _Reservation:
    """Space up to ``target`` that a thread reserves. The thread sets the others, ``is_over`` last."""

    __slots__ = ("failure", "is_made", "is_over", "target")

    def __init__(self, target: int) -> None:
        self.target = target
        self.is_over = False
        self.is_made = False
        self.failure: OSError | None = None


class LogSegment(ReadableSegment):
    """See the module's words. Bytes below ``synced_bytes`` are durable."""

    __slots__ = (
        "_can_reserve",
        "_half_step_bytes",
        "_is_kept_open",
        "_is_work_stopped",
        "_limit_bytes",
        "_pwrite",
        "_remove_files",
        "_reservation",
        "_reserve_space",
        "_room",
        "_spoiled_end",
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
        # The log puts its own here: one failed sync speaks for all its files.
        self.gate: SyncGate | None = None
        self.is_deleted = False
        self._remove_files: Callable[[], None] | None = None
        self._is_kept_open = False
        self._is_work_stopped = False
        self._work_lock = threading.Lock()
        # Appends up to _room need nothing but the write; beyond it _make_room decides.
        self._room = 0
        # False: the file system cannot reserve space.
        self._can_reserve = True
        self._step_bytes = STEP_BYTES_MIN
        self._half_step_bytes = 0
        self._reservation: _Reservation | None = None
        self._spoiled_end = 0
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
        segment.size_bytes = segment._capacity = segment._written_from = segment.synced_bytes = size_bytes
        segment.is_sealed = is_sealed
        segment._index = None
        segment._max_timestamp = None
        return segment

    def __repr__(self) -> str:
        return f"<LogSegment {self.base_offset}..{self.next_offset} {self.size_bytes} bytes>"

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
                self._append_rest(batch, written, position)
        except OSError as error:
            if not is_full(error):  # on a full disk a write that raises has written nothing
                self._spoil(end)
            raise DiskFailure(f"append to {self.path}: {error}", error.errno) from error
        # The index and the largest timestamp are known once _make_room ran.
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
            self._spoil(position + len(batch))
            raise

    def _spoil(self, end: int) -> None:
        """Part of a batch may be in the file. It is cut off, and nothing else is written there: a page that is torn

        between the two would look like damage. So the log goes on in another segment.
        """
        self._spoiled_end = max(self._spoiled_end, end)
        self.is_end_bad = True
        self._room = 0

    def _make_room(self, end: int) -> None:
        if self._is_closed or self.is_sealed:
            raise LogClosed(f"{self.path} takes no more appends")
        with disk_errors(f"make room in {self.path}"):
            if self._index is None:
                # Appends continue a segment of an earlier run: its index goes on, its timestamps stay known.
                self._load_index()
            if self._fd < 0:
                self._fd = self._files.open_write(self.path) if self.size_bytes else self._files.create(self.path)
            self._clear_spoiled()
            self._take_reserved()
            if end > self._capacity - self._half_step_bytes and self._capacity < max(end, self._limit_bytes):
                self._reserve(end)
            if end > self._capacity:
                self._extend(self._next_capacity(end))
        is_next_near = end > self._capacity - self._half_step_bytes
        self._room = self._capacity if is_next_near else self._capacity - self._half_step_bytes

    @property
    def is_spoiled(self) -> bool:
        """Whether something was half written behind the last batch, so that no more should follow in this file."""
        return self.is_end_bad and self.size_bytes > 0

    def _clear_spoiled(self) -> None:
        if self._spoiled_end > self.size_bytes:
            # Cut and not zeroed: that is done at once or not at all, while zeros that were written halfway would leave
            # the end of a batch without its beginning.
            self._files.truncate(self._fd, self.size_bytes)
            self._forget_reserved()
            # Parts of the failed write may have reached the disk, and the cut has not.
            self.synced_bytes = min(self.synced_bytes, self.size_bytes - 1)

    # --- space

    def _next_capacity(self, end: int) -> int:
        # One batch may be larger than segment.bytes, so the limit gives way to it.
        return max(end, min(self._limit_bytes, max(self._capacity + self._step_bytes, end)))

    def _reserve(self, end: int) -> None:
        """Reserve the next step, off the loop, unless that is under way. ``end``: where the next batch will end.

        Raises ``OSError`` if it is known at once that the batch cannot be stored.
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
                    reservation.is_over = True

        try:
            self._reserve_space(reserve)
        except RuntimeError:  # no thread to be had: the next step asks again
            self._reservation = None
            return
        self._take_reserved()
        if reservation.failure is not None and self._can_reserve and end > self._capacity:
            raise reservation.failure

    def _take_reserved(self) -> None:
        """Use the space that was reserved since the last look."""
        reservation = self._reservation
        if reservation is None or not reservation.is_over:
            return
        self._reservation = None
        if reservation.is_made and reservation.target > self._capacity:
            self._set_capacity(reservation.target)
        elif reservation.failure is not None and reservation.failure.errno == errno.EOPNOTSUPP:
            self._can_reserve = False

    def _extend(self, capacity: int) -> None:
        """Make the file longer, before a batch is written there: one that a kill cuts short has zeros behind it."""
        self._files.write_all(self._fd, b"\0", capacity - 1)
        self._set_capacity(capacity)

    def _set_capacity(self, capacity: int) -> None:
        self._half_step_bytes = (capacity - self._capacity) // 2
        self._step_bytes = min(self._step_bytes * 2, STEP_BYTES_MAX)
        self._capacity = capacity

    @property
    def is_reserving(self) -> bool:
        """Whether a thread may be about to make the file longer."""
        return self._reservation is not None and not self._reservation.is_over

    def _forget_reserved(self) -> None:
        """The file was cut at its last batch."""
        self._capacity = self.size_bytes
        self._half_step_bytes = self._spoiled_end = 0
        self._reservation = None

    def set_limits(self, limit_bytes: int, index_interval_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._index_interval_bytes = index_interval_bytes

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
        assert self.aborted is not None
        aborted = encode_file(self.aborted, self.size_bytes) if self.aborted else None
        self.is_sealed = self.is_seal_pending = True
        self._room = 0

        def finish() -> None:
            if self._finish_seal(index, max_timestamp, aborted):
                self.is_seal_pending = False

        return finish

    def load_for_seal(self) -> tuple[SparseIndex, int]:
        """Read what :meth:`seal` needs; when this has worked, that cannot fail.

        What a failed append left goes now: a torn batch at the end of a segment is damage once another one follows.
        """
        with disk_errors(f"clear the end of {self.path}"):
            self._clear_spoiled()
        return self.index, self.max_timestamp

    def stop_work(self, *, is_stopped: bool = True) -> None:
        """From here on no job in the background touches the files: others may get their names."""
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
                        with suppress(FileNotFoundError):  # of an earlier end of this segment
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
        """Durable, with its name, before the seal: a closed segment without this file has no ABORT markers."""
        self._files.write_all(fd, aborted, 0)
        self._files.truncate(fd, len(aborted))
        self.sync(fd)
        assert self.gate is not None
        self.gate.sync(f"sync {self._directory}", self._files.fsync_dir, self._directory)

    def _write_sealed_index(self, fd: int, index: SparseIndex, max_timestamp: int) -> None:
        entries = index.encode() + index.encode_seal(self.size_bytes, max_timestamp)
        self._files.write_all(fd, entries, 0)
        self._files.truncate(fd, len(entries))

    def tidy(self) -> None:
        """Leave the files of a synced segment as a seal would, without a sync. Raises ``OSError``.

        The segment takes further appends; they break the seal, as they should. Not while it ``is_reserving``.
        """
        index, max_timestamp = self.load_for_seal()
        self._room = 0
        self._take_reserved()
        if self._capacity > self.size_bytes:
            fd = self._files.open_write(self.path)
            try:
                self._files.truncate(fd, self.size_bytes)
            finally:
                self._files.close(fd)
            self._forget_reserved()
        fd = self._files.open_write(self.index_path)
        try:
            self._write_sealed_index(fd, index, max_timestamp)
        finally:
            self._files.close(fd)
        index.written_count = len(index)

    # --- durability

    def open_for_sync(self) -> int:
        """A descriptor of its own for a thread that syncs what is appended. Raises ``OSError``."""
        return self._files.duplicate(self._fd) if self._fd >= 0 else self._files.open_read(self.path)

    def sync(self, fd: int) -> None:
        """Sync one of this segment's files, from any thread, unless a sync of this log has failed before."""
        gate = self.gate
        if gate is None:
            gate = self.gate = SyncGate()
        gate.sync(f"sync {self.path}", self._files.fdatasync, fd)

    # --- letting go

    def keep_open(self) -> None:
        """Open and load everything that readers may need, because the names will soon mean other files."""
        self._is_kept_open = True
        with disk_errors(f"open {self.path}"):
            self._open_for_read()
        self.load_for_seal()

    def release(self) -> None:
        """Give back descriptor, map and index; all come back when they are needed."""
        if not self.is_sealed or self.is_seal_pending or self._is_kept_open:
            return
        self._drop()
        self._index = self._loaded_index = None
        if self.aborted:
            self.aborted = None

    def close(self) -> None:
        """No more use of any kind; slices that are out stay good."""
        self._is_closed = True
        self._room = 0
        self._drop()

    def let_go(self, remove_files: Callable[[], None]) -> None:
        """The log is done with this segment; ``remove_files`` is how its files go, any time later."""
        self._remove_files = remove_files

    def delete_files(self) -> None:
        """Remove the files of a segment that its log has given back; waits for the disk, so it belongs in a thread.

        Readers' slices stay good. After a :class:`DiskFailure` the files are there and it may be called again.
        """
        with self._work_lock:
            self.close()
        if self._remove_files is not None:
            self._remove_files()
            self._remove_files = None
        self.is_deleted = True

    def forget_files(self) -> None:
        """The files went another way, and others may have their names."""
        self._remove_files = None
        self.delete_files()

    def discard(self) -> None:
        """Forget a segment whose first append failed: its file must not stay."""
        self.close()
        with suppress(OSError):  # the next first append starts it anew
            self.unlink_files()

    def unlink_files(self) -> None:
        """Raises ``OSError``."""
        for path in (self.path, self.index_path, self.txn_index_path):
            with suppress(FileNotFoundError):
                self._files.unlink(path)
