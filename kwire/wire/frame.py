"""Cutting a byte stream into frames (a big-endian int32 size, then that many bytes) with one copy at most.

All connections of a loop read into one shared scratch page: whole frames are handled where they lie, and only the
beginning of a frame that is still arriving gets memory of its own, which grows with the bytes that really came. So an
idle connection holds nothing, and a peer that announces a gigabyte and sends a byte holds 64 KiB.

A frame is a view that is valid until `settle` is called: what must live longer has to be copied out.
"""

import struct

from kwire.wire.errors import FrameTooLarge

SCRATCH_BYTES = 256 * 1024
SMALL_STEP_BYTES = 64 * 1024
POOLED_STEP_BYTES = 1024 * 1024
POOLED_SPARES_MAX = 16

_read_size = struct.Struct(">i").unpack_from


class ReceiveMemory:
    """The memory of all frames in progress: the scratch page, a few spare buffers, and a bound on the sum."""

    __slots__ = ("_spares", "limit_bytes", "scratch", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._spares: list[memoryview] = []

    def take(self, size: int, instead_of: int = 0) -> memoryview | None:
        """A buffer of at least `size` bytes, or None when the bound would be passed.

        `instead_of` bytes are about to be given back for it, so they do not count against the bound.
        """
        left = self.limit_bytes - self.used_bytes + instead_of
        if size > left:
            return None
        if SMALL_STEP_BYTES < size <= POOLED_STEP_BYTES <= left:
            size = POOLED_STEP_BYTES
        self.used_bytes += size
        if size == POOLED_STEP_BYTES and self._spares:
            return self._spares.pop()
        return memoryview(bytearray(size))

    def overdraw(self, size: int) -> memoryview:
        """A buffer in spite of the bound, for at most one scratch page per connection."""
        self.used_bytes += size
        return memoryview(bytearray(size))

    def give_back(self, buffer: memoryview) -> None:
        self.used_bytes -= len(buffer)
        if len(buffer) == POOLED_STEP_BYTES and len(self._spares) < POOLED_SPARES_MAX:
            self._spares.append(buffer)


class FrameReader:
    """One connection's incoming frames. `buffer` → fill it → `received` → `next_frame` until None → `settle`."""

    __slots__ = ("_end", "_largest", "_memory", "_own", "_start", "_view", "is_starved")

    def __init__(self, memory: ReceiveMemory, largest_bytes: int) -> None:
        self._memory = memory
        self._largest = largest_bytes
        self._view = memory.scratch
        self._own = False
        self._start = 0
        self._end = 0
        self.is_starved = False  # the bound on memory is reached: read no more until `settle` finds room

    def buffer(self) -> memoryview:
        """Where the next bytes of the stream belong; never empty unless starved."""
        return self._view[self._end :] if self._own else self._view

    def received(self, count: int) -> None:
        self._end += count

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
            larger = self._memory.take(room, len(self._view)) if room > len(self._view) else None
            if larger is not None:
                self._move(larger, kept)
            self.is_starved = kept == len(self._view)
        else:
            # Bytes that arrived cannot be sent back: at the bound these few are kept all the same, and reading stops.
            self._move(self._memory.take(room) or self._memory.overdraw(kept), kept)
            self.is_starved = kept == len(self._view)

    def close(self) -> None:
        """Back to the scratch page; called when nothing is pending, and when the connection ends."""
        if self._own:
            self._memory.give_back(self._view)
            self._own = False
            self._view = self._memory.scratch
        self._start = self._end = 0
        self.is_starved = False

    def _room(self, kept: int) -> int:
        """How large the next buffer should be: the frame, but not much more than has arrived of it."""
        if kept < 4:
            return SMALL_STEP_BYTES
        (size,) = _read_size(self._view, self._start)
        whole = max(4 + size, kept)
        return min(whole, max(SMALL_STEP_BYTES, 2 * kept)) if whole > SMALL_STEP_BYTES else SMALL_STEP_BYTES

    def _move(self, buffer: memoryview, kept: int) -> None:
        buffer[:kept] = self._view[self._start : self._end]
        if self._own:
            self._memory.give_back(self._view)
        self._view = buffer
        self._own = True
        self._start = 0
        self._end = kept
