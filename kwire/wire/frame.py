"""Splits a byte stream into frames (a big-endian int32 size, then that many bytes) with at most one copy.

All connections of an event loop read into one shared scratch buffer, and complete frames are handled there. Only an
incomplete frame gets a buffer of its own, which grows with the bytes that have arrived. So an idle connection holds no
memory, and a connection whose client announces a gigabyte and sends one byte holds 64 KiB, or 4 KiB before its login.

A frame is a view that is valid until `settle` is called. Data that is needed longer must be copied.
"""

import mmap
import struct
from collections.abc import Callable

from kwire.wire.errors import FrameTooLarge

SCRATCH_BYTES = 256 * 1024
# The size of the first buffer of an incomplete frame.
SMALL_STEP_BYTES = 64 * 1024
# The same for connections that are not logged in. Their frames are usually smaller than a kilobyte.
LOGIN_STEP_BYTES = 4 * 1024
POOLED_STEP_BYTES = 1024 * 1024
POOLED_SPARES_MAX = 16
# Size of one read if the client's address has exhausted its share of the memory. It is small, because bytes that have
# been read must be kept.
SHORT_READ_BYTES = 4 * 1024
# Size of one read if the frame is larger than a pooled buffer. A read of this size into fresh memory takes a tenth of a
# millisecond.
LARGE_FRAME_READ_BYTES = 128 * 1024

_read_size = struct.Struct(">i").unpack_from
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Account:
    """Counts the bytes that all connections of one client address hold."""

    __slots__ = ("used_bytes",)

    def __init__(self) -> None:
        self.used_bytes = 0


class ReceiveMemory:
    """The memory for all incomplete frames: the scratch buffer, a few spare buffers, and a limit on the total.

    The share of a client address is half of the memory that the other addresses do not use. So if there is only one
    address, its share is half of the limit. The share is always large enough for one frame of the maximum size, because
    otherwise that frame could never be received. Without a maximum frame size the share is the whole limit.
    """

    __slots__ = ("_largest_frame_bytes", "_spares", "is_short", "limit_bytes", "on_release", "scratch", "used_bytes")

    def __init__(self, limit_bytes: int, largest_frame_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        # True if more than half of the limit is used. While it is False, no address can have exhausted its share.
        self.is_short = False
        self.on_release: Callable[[], None] | None = None
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._largest_frame_bytes = limit_bytes if largest_frame_bytes is None else 4 + largest_frame_bytes
        self._spares: list[memoryview] = []

    def room_bytes(self, account: Account, instead_of: int = 0) -> int:
        """Return how many more bytes an address may hold if it releases `instead_of` bytes."""
        free = self.limit_bytes - self.used_bytes + instead_of
        held = account.used_bytes - instead_of
        share = max((free + held) // 2, self._largest_frame_bytes)
        return min(free, share - held)

    def take(self, size: int, account: Account, instead_of: int = 0) -> memoryview | None:
        """Return a buffer of at least `size` bytes, or None if that would exceed a limit."""
        room = self.room_bytes(account, instead_of)
        if size > room:
            return None
        if SMALL_STEP_BYTES < size <= POOLED_STEP_BYTES <= room:
            size = POOLED_STEP_BYTES
        if size == POOLED_STEP_BYTES and self._spares:
            self._charge(size, account)
            return self._spares.pop()
        return self.overdraw(size, account)

    def overdraw(self, size: int, account: Account) -> memoryview:
        """Return a buffer regardless of the limits. A connection may hold at most one such buffer, for one read."""
        self._charge(size, account)
        # Large buffers are mapped: unlike heap memory, they are always returned to the operating system when freed.
        return memoryview(mmap.mmap(-1, size, _PRIVATE) if size >= POOLED_STEP_BYTES else bytearray(size))

    def give_back(self, buffer: memoryview, account: Account) -> None:
        if len(buffer) == POOLED_STEP_BYTES and len(self._spares) < POOLED_SPARES_MAX:
            self._spares.append(buffer)
        self.release(len(buffer), account)

    def reserve(self, size: int, account: Account, instead_of: int = 0) -> bool:
        """Reserve memory for bytes that the caller copies out of a frame. Return False if that would exceed a limit."""
        if size > self.room_bytes(account, instead_of):
            return False
        self._charge(size, account)
        return True

    def release(self, size: int, account: Account) -> None:
        self._charge(-size, account)
        if self.on_release is not None:
            self.on_release()

    def _charge(self, size: int, account: Account) -> None:
        account.used_bytes += size
        self.used_bytes += size
        self.is_short = 2 * self.used_bytes > self.limit_bytes


class FrameReader:
    """Reads the frames of a connection.

    For each read: get `buffer`, fill it, call `received`, call `next_frame` until it returns None, call `settle`.
    """

    __slots__ = (
        "_end",
        "_growth",
        "_memory",
        "_start",
        "_view",
        "account",
        "frame_bytes_max",
        "is_shared",
        "is_starved",
        "received_bytes",
        "step_bytes",
    )

    def __init__(self, memory: ReceiveMemory, largest_bytes: int, account: Account | None = None) -> None:
        self._memory = memory
        self.account = account or Account()
        # The maximum size of a frame. It may be changed between two frames.
        self.frame_bytes_max = largest_bytes
        # The size of the first buffer of an incomplete frame, at least. It may be changed between two frames.
        self.step_bytes = SMALL_STEP_BYTES
        self._view = memory.scratch
        # Whether the returned frames are in the scratch buffer, which all connections share.
        self.is_shared = True
        # Bytes by which the buffer will be enlarged at the next read. They are already reserved.
        self._growth = 0
        self._start = 0
        self._end = 0
        self.received_bytes = 0
        self.is_starved = False  # True if a memory limit is reached: nothing is read until `settle` gets memory

    @property
    def held_bytes(self) -> int:
        """The size of the buffer of the incomplete frame; 0 if there is none."""
        return 0 if self.is_shared else len(self._view) + self._growth

    @property
    def has_room(self) -> bool:
        """Whether `settle` would end the starvation of this reader."""
        return not self.is_starved or self._memory.room_bytes(self.account, len(self._view)) >= self._wanted_bytes

    @property
    def has_memory(self) -> bool:
        """Whether the total limit leaves enough memory for this reader, regardless of the share of its address."""
        memory = self._memory
        return memory.limit_bytes - memory.used_bytes + len(self._view) >= self._wanted_bytes

    @property
    def _wanted_bytes(self) -> int:
        return self._room(self._end - self._start)

    @property
    def is_large(self) -> bool:
        """Whether the buffer of the incomplete frame is larger than a pooled buffer."""
        return self.held_bytes > POOLED_STEP_BYTES

    def reserve(self, size: int) -> bool:
        """Reserve memory for a copy of the returned frames. Return False if that would exceed a limit.

        The memory of these frames is not counted, because `settle` releases it. So every request that could be received
        can also be copied, unless other connections have exhausted the memory.
        """
        return self._memory.reserve(size, self.account, self.held_bytes)

    def release(self, size: int) -> None:
        """Release memory that `reserve` reserved. It may be called after `close`."""
        self._memory.release(size, self.account)

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes of the stream. It is empty only if the reader is starved."""
        if not self.is_shared:
            if self._growth:
                self._enlarge()
            end = self._end
            return self._view[end : end + LARGE_FRAME_READ_BYTES] if self.is_large else self._view[end:]
        if self._memory.is_short and self._memory.room_bytes(self.account) <= SHORT_READ_BYTES:
            return self._view[:SHORT_READ_BYTES]
        return self._view

    def received(self, count: int) -> None:
        self._end += count
        self.received_bytes += count

    def next_frame(self) -> memoryview | None:
        """Return the next frame without its size, or None if the frame is incomplete."""
        start = self._start
        if self._end - start < 4:
            return None
        (size,) = _read_size(self._view, start)
        if not 0 <= size <= self.frame_bytes_max:
            raise FrameTooLarge(f"the frame size is {size} bytes; allowed are 0 to {self.frame_bytes_max}")
        stop = start + 4 + size
        if stop > self._end:
            return None
        self._start = stop
        return self._view[start + 4 : stop]

    def put_back(self, frame: memoryview) -> None:
        """Undo the last `next_frame`, which returned `frame`: after `settle`, `next_frame` returns the frame again."""
        self._start -= 4 + len(frame)

    def settle(self) -> None:
        """Invalidate the returned frames and keep the bytes after them."""
        kept = self._end - self._start
        if kept == 0:
            if not self.is_shared:
                self.close()
            else:
                self._start = self._end = 0
            return
        room = self._room(kept)
        if not self.is_shared:
            if self._start:
                # Source and target may overlap, which is allowed in an assignment to a slice of a memoryview.
                self._view[:kept] = self._view[self._start : self._end]
                self._start, self._end = 0, kept
            # Grow the buffer only when it is full, because growing may copy all bytes that have arrived.
            if kept == self.held_bytes and room > kept:
                self._grow(room, kept)
        else:
            # These bytes have already been read, so they are kept even if that exceeds a limit. Then reading stops.
            memory = self._memory
            self._move(memory.take(room, self.account) or memory.overdraw(kept, self.account), kept)
        self.is_starved = kept == self.held_bytes and self._is_incomplete(kept)

    def close(self) -> None:
        """Release the buffer of the incomplete frame. Called when no bytes are left, and when the connection closes."""
        if not self.is_shared:
            self._memory.give_back(self._view, self.account)
            if self._growth:
                self._memory.release(self._growth, self.account)
                self._growth = 0
            self.is_shared = True
            self._view = self._memory.scratch
        self._start = self._end = 0
        self.is_starved = False

    def _is_incomplete(self, kept: int) -> bool:
        """Whether the next frame is incomplete. A complete frame needs no more memory: it only has to be handled."""
        return kept < 4 or 4 + _read_size(self._view, self._start)[0] > kept

    def _room(self, kept: int) -> int:
        """Return the size of the next buffer: that of the frame, but at most one step or twice `kept` bytes."""
        small = self.step_bytes
        if kept < 4:
            return small
        (size,) = _read_size(self._view, self._start)
        whole = max(4 + size, kept)
        # The step of a starved reader is larger, so that most frames end before the reader waits for memory again.
        step = POOLED_STEP_BYTES if self.is_starved else small
        return min(whole, max(step, 2 * kept)) if whole > small else small

    def _grow(self, size: int, kept: int) -> None:
        """Enlarge the buffer from `kept` to `size` bytes, unless that would exceed a limit."""
        if isinstance(self._view.obj, mmap.mmap):
            if self._memory.reserve(size - kept, self.account):
                self._growth = size - kept
        elif (larger := self._memory.take(size, self.account, kept)) is not None:
            self._move(larger, kept)

    def _enlarge(self) -> None:
        """Enlarge a mapped buffer without a copy. A copy would take half a millisecond per megabyte.

        Called between two reads, because the event loop refers to the buffer during a read.
        """
        old, size = self._view, len(self._view) + self._growth
        mapped = old.obj
        assert isinstance(mapped, mmap.mmap)
        self._growth = 0
        try:
            old.release()
            mapped.resize(size)
            self._view = memoryview(mapped)
        except (BufferError, OSError, SystemError):
            # A view of a frame in this memory still exists, or the system cannot resize the memory.
            self._view = memoryview(mmap.mmap(-1, size, _PRIVATE))
            self._view[: self._end] = memoryview(mapped)[: self._end]

    def _move(self, buffer: memoryview, kept: int) -> None:
        buffer[:kept] = self._view[self._start : self._end]
        if not self.is_shared:
            self._memory.give_back(self._view, self.account)
        self._view = buffer
        self.is_shared = False
        self._start = 0
        self._end = kept
