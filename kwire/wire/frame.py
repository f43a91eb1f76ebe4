"""Cutting a byte stream into frames (a big-endian int32 size, then that many bytes) with one copy at most.

All connections of a loop read into one shared scratch page: whole frames are handled where they lie, and only the
beginning of a frame that is still arriving gets memory of its own, which grows with the bytes that really came. So an
idle connection holds nothing, and a peer that announces a gigabyte and sends a byte holds 64 KiB.

A frame is a view that is valid until `settle` is called: what must live longer has to be copied out.
"""

import mmap
import struct
from collections.abc import Callable

from kwire.wire.errors import FrameTooLarge

SCRATCH_BYTES = 256 * 1024
SMALL_STEP_BYTES = 64 * 1024
POOLED_STEP_BYTES = 1024 * 1024
POOLED_SPARES_MAX = 16
# Read at once by a connection whose address has used up its share: what it sends is kept, so it is to be little.
SHORT_READ_BYTES = 4 * 1024

_read_size = struct.Struct(">i").unpack_from
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Account:
    """The bytes that the connections of one client address hold."""

    __slots__ = ("used_bytes",)

    def __init__(self) -> None:
        self.used_bytes = 0


class ReceiveMemory:
    """The memory of all frames in progress: the scratch page, a few spare buffers, and a bound on the sum.

    An address may hold as many bytes as it leaves free for others, so one address alone gets half of the bound. It may
    always hold one frame of the largest size, else that could never be received; without such a size it may hold all.
    """

    __slots__ = ("_largest_frame_bytes", "_spares", "is_short", "limit_bytes", "on_release", "scratch", "used_bytes")

    def __init__(self, limit_bytes: int, largest_frame_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        # More than half of the bound is used. Below that no address can have used up its share.
        self.is_short = False
        self.on_release: Callable[[], None] | None = None
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._largest_frame_bytes = limit_bytes if largest_frame_bytes is None else 4 + largest_frame_bytes
        self._spares: list[memoryview] = []

    def room_bytes(self, account: Account, instead_of: int = 0) -> int:
        """How many more bytes an address may hold when it gives `instead_of` bytes back for them."""
        free = self.limit_bytes - self.used_bytes + instead_of
        held = account.used_bytes - instead_of
        share = max((free + held) // 2, self._largest_frame_bytes)
        return min(free, share - held)

    def take(self, size: int, account: Account, instead_of: int = 0) -> memoryview | None:
        """A buffer of at least `size` bytes, or None when a bound would be passed."""
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
        """A buffer in spite of the bounds, for at most one read per connection."""
        self._charge(size, account)
        # Large ones are mapped, so that the system gets them back at once: from the heap it might never.
        return memoryview(mmap.mmap(-1, size, _PRIVATE) if size >= POOLED_STEP_BYTES else bytearray(size))

    def give_back(self, buffer: memoryview, account: Account) -> None:
        if len(buffer) == POOLED_STEP_BYTES and len(self._spares) < POOLED_SPARES_MAX:
            self._spares.append(buffer)
        self.release(len(buffer), account)

    def hold(self, size: int, account: Account, instead_of: int = 0) -> bool:
        """Count bytes that the caller copies out of a frame, or return False when a bound would be passed."""
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
    """One connection's incoming frames. `buffer` → fill it → `received` → `next_frame` until None → `settle`."""

    __slots__ = ("_end", "_largest", "_memory", "_own", "_start", "_view", "account", "is_starved", "received_bytes")

    def __init__(self, memory: ReceiveMemory, largest_bytes: int, account: Account | None = None) -> None:
        self._memory = memory
        self.account = account or Account()
        self._largest = largest_bytes
        self._view = memory.scratch
        self._own = False
        self._start = 0
        self._end = 0
        self.received_bytes = 0
        self.is_starved = False  # a bound on memory is reached: read no more until `settle` finds room

    @property
    def held_bytes(self) -> int:
        """The memory that a frame in progress has of its own."""
        return len(self._view) if self._own else 0

    @property
    def has_room(self) -> bool:
        """Whether `settle` would end the starvation of this reader."""
        return not self.is_starved or self._memory.room_bytes(self.account, len(self._view)) >= self._wanted_bytes

    @property
    def has_memory(self) -> bool:
        """Whether there is memory for this reader, if it does not go beyond the share of its address."""
        memory = self._memory
        return memory.limit_bytes - memory.used_bytes + len(self._view) >= self._wanted_bytes

    @property
    def _wanted_bytes(self) -> int:
        return self._room(self._end - self._start)

    @property
    def is_shared(self) -> bool:
        """Whether the frames handed out lie in the scratch page of all connections."""
        return not self._own

    def hold(self, size: int) -> bool:
        """Count a copy of bytes of the frames handed out; False if that is too much.

        The memory of these frames ends with `settle`, the copy takes its place: any request that could be received can
        be copied, unless others have used up the memory.
        """
        return self._memory.hold(size, self.account, self.held_bytes)

    def release(self, size: int) -> None:
        """The end of a copy that was counted by `hold`; also after `close`."""
        self._memory.release(size, self.account)

    def buffer(self) -> memoryview:
        """Where the next bytes of the stream belong; never empty unless starved."""
        if self._own:
            return self._view[self._end :]
        if self._memory.is_short and self._memory.room_bytes(self.account) <= SHORT_READ_BYTES:
            return self._view[:SHORT_READ_BYTES]
        return self._view

    def received(self, count: int) -> None:
        self._end += count
        self.received_bytes += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None while it is incomplete."""
        start = self._start
        if self._end - start < 4:
            return None
        (size,) = _read_size(self._view, start)
        if not 0 <= size <= self._largest:
            raise FrameTooLarge(f"a frame of {size} bytes is announced; allowed are 0 to {self._largest}")
        stop = start + 4 + size
        if stop > self._end:
            return None
        self._start = stop
        return self._view[start + 4 : stop]

    def put_back(self, frame: memoryview) -> None:
        """Take back the frame that was handed out last: after `settle` it is handed out again."""
        self._start -= 4 + len(frame)

    def settle(self) -> None:
        """End the life of the frames handed out; keep what has not been handed out."""
        kept = self._end - self._start
        if kept == 0:
            if self._own:
                self.close()
            else:
                self._start = self._end = 0
            return
        room = self._room(kept)
        if self._own:
            if self._start:
                # The two may overlap: a view that is assigned to another one of the same memory takes care of that.
                self._view[:kept] = self._view[self._start : self._end]
                self._start, self._end = 0, kept
            larger = self._memory.take(room, self.account, len(self._view)) if room > len(self._view) else None
            if larger is not None:
                self._move(larger, kept)
        else:
            # Bytes that arrived cannot be sent back: at the bound these few are kept all the same, and reading stops.
            memory = self._memory
            self._move(memory.take(room, self.account) or memory.overdraw(kept, self.account), kept)
        self.is_starved = kept == len(self._view) and self._is_incomplete(kept)

    def close(self) -> None:
        """Back to the scratch page; called when nothing is pending, and when the connection ends."""
        if self._own:
            self._memory.give_back(self._view, self.account)
            self._own = False
            self._view = self._memory.scratch
        self._start = self._end = 0
        self.is_starved = False

    def _is_incomplete(self, kept: int) -> bool:
        """Whether the next frame has not arrived whole; one that has waits for its turn, and needs no more memory."""
        return kept < 4 or 4 + _read_size(self._view, self._start)[0] > kept

    def _room(self, kept: int) -> int:
        """How large the next buffer should be: the frame, but not much more than has arrived of it."""
        if kept < 4:
            return SMALL_STEP_BYTES
        (size,) = _read_size(self._view, self._start)
        whole = max(4 + size, kept)
        # After it has starved a reader should not have to wait again for the rest of an ordinary frame.
        step = POOLED_STEP_BYTES if self.is_starved else SMALL_STEP_BYTES
        return min(whole, max(step, 2 * kept)) if whole > SMALL_STEP_BYTES else SMALL_STEP_BYTES

    def _move(self, buffer: memoryview, kept: int) -> None:
        buffer[:kept] = self._view[self._start : self._end]
        if self._own:
            self._memory.give_back(self._view, self.account)
        self._view = buffer
        self._own = True
        self._start = 0
        self._end = kept
