"""The sparse index of one segment: a few exact places to start looking from.

Each entry names a batch by the offset of its first record and its position in the file, and holds the largest
timestamp of everything *before* it. All three columns only ever rise, so each question is one bisection; the place
found is at most ``index_interval_bytes`` and one batch away from the answer. The first batch of the segment needs no
entry: position 0 is always known.

On disk the entries are 16 bytes each (u32 offset from the segment's base, u32 position, i64 timestamp, little endian).
They are written in blocks, so that a killed process does not have to walk the segment again. Closing a segment adds a
seal: one more entry whose CRC covers all entries and the length of the segment file. A seal that fits says that the
segment is whole, cut to its end and synced; appending to the segment breaks it without touching it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from crc32c import crc32c

ENTRY: Final = struct.Struct("<IIq")
ENTRY_BYTES: Final = ENTRY.size
# Entries waiting in memory before a block of them is written.
BLOCK_ENTRIES: Final = 256

NO_MAX_TIMESTAMP: Final = -(2**63)

_SEAL_MARK: Final = 0xFFFFFFFF
_SEAL_FACTS: Final = struct.Struct("<qq")
_IS_BIG_ENDIAN: Final = sys.byteorder == "big"


class SparseIndex:
    """Three parallel arrays; appended to by the log's thread only, read by anybody."""

    __slots__ = ("base_offset", "offsets", "positions", "timestamps", "written_count")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("I")
        self.positions = array("I")
        self.timestamps = array("q")
        self.written_count = 0

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def last_position(self) -> int:
        return self.positions[-1] if self.positions else 0

    def add(self, offset: int, position: int, max_timestamp_before: int) -> int:
        """Returns how many entries are not on file yet."""
        offsets = self.offsets
        offsets.append(offset - self.base_offset)
        self.positions.append(position)
        self.timestamps.append(max_timestamp_before)
        return len(offsets) - self.written_count

    def place_for_offset(self, offset: int) -> tuple[int, int]:
        """(position, offset) of the last known batch that begins at or below ``offset``."""
        at = bisect_right(self.offsets, offset - self.base_offset) - 1
        if at < 0:
            return 0, self.base_offset
        return self.positions[at], self.base_offset + self.offsets[at]

    def boundary_before(self, position: int) -> tuple[int, int]:
        """(position, offset) of the last known batch that begins at or below ``position``."""
        at = bisect_right(self.positions, position) - 1
        if at < 0:
            return 0, self.base_offset
        return self.positions[at], self.base_offset + self.offsets[at]

    def place_for_timestamp(self, timestamp_ms: int) -> tuple[int, int]:
        """(position, offset) of the last known batch before which everything is older than ``timestamp_ms``."""
        at = bisect_left(self.timestamps, timestamp_ms) - 1
        if at < 0:
            return 0, self.base_offset
        return self.positions[at], self.base_offset + self.offsets[at]

    def cut(self, position: int) -> None:
        """Forget the entries at or above ``position``."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:]
        del self.positions[keep:]
        del self.timestamps[keep:]
        self.written_count = min(self.written_count, keep)

    # --- bytes

    def encode(self, start: int = 0) -> bytes:
        """The entries from number ``start`` on."""
        count = len(self.offsets) - start
        # Filled by strides, not entry by entry: a full index has tens of thousands of entries.
        wide = array("q", bytes(count * ENTRY_BYTES))
        wide[1::2] = self.timestamps[start:]
        if _IS_BIG_ENDIAN:
            wide.byteswap()
        words = array("I", wide.tobytes())
        offsets, positions = self.offsets[start:], self.positions[start:]
        if _IS_BIG_ENDIAN:
            offsets.byteswap()
            positions.byteswap()
        words[0::4] = offsets
        words[1::4] = positions
        return words.tobytes()

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> SparseIndex:
        """The entries of an index file; ends at the first that cannot follow its predecessor."""
        index = cls._of(base_offset, data)
        index._keep_rising()
        index.written_count = len(index)
        return index

    @classmethod
    def _of(cls, base_offset: int, data: bytes) -> SparseIndex:
        index = cls(base_offset)
        data = data[: len(data) - len(data) % ENTRY_BYTES]
        words, wide = array("I", data), array("q", data)
        if _IS_BIG_ENDIAN:
            words.byteswap()
            wide.byteswap()
        index.offsets, index.positions, index.timestamps = words[0::4], words[1::4], wide[1::2]
        index.written_count = len(index)
        return index

    def _keep_rising(self) -> None:
        offset, position, timestamp = 0, 0, NO_MAX_TIMESTAMP
        for at, entry in enumerate(zip(self.offsets, self.positions, self.timestamps, strict=True)):
            if entry[0] <= offset or entry[1] <= position or entry[2] < timestamp or entry[0] == _SEAL_MARK:
                del self.offsets[at:]
                del self.positions[at:]
                del self.timestamps[at:]
                return
            offset, position, timestamp = entry

    def encode_seal(self, size_bytes: int, max_timestamp: int) -> bytes:
        """The entry that closes the file of a segment of ``size_bytes``."""
        return ENTRY.pack(_SEAL_MARK, _seal_crc(self.encode(), size_bytes, max_timestamp), max_timestamp)


def decode_sealed(base_offset: int, data: bytes, size_bytes: int) -> tuple[SparseIndex, int] | None:
    """The index and the segment's largest timestamp, or None when the seal does not fit these bytes."""
    if len(data) < ENTRY_BYTES or len(data) % ENTRY_BYTES:
        return None
    entries, seal = data[:-ENTRY_BYTES], data[-ENTRY_BYTES:]
    mark, crc, max_timestamp = ENTRY.unpack(seal)
    if mark != _SEAL_MARK or crc != _seal_crc(entries, size_bytes, max_timestamp):
        return None
    # The CRC vouches for the order of the entries, so they are not gone through one by one.
    return SparseIndex._of(base_offset, entries), max_timestamp


def seal_timestamp(seal: bytes | None) -> int | None:
    """The largest timestamp a seal names, or None when these bytes are no seal.

    For a segment that is known to be sealed: whether the seal fits can only be told with all entries before it.
    """
    if seal is None:
        return None
    mark, _, max_timestamp = ENTRY.unpack(seal)
    return max_timestamp if mark == _SEAL_MARK else None


def _seal_crc(entries: bytes, size_bytes: int, max_timestamp: int) -> int:
    return crc32c(_SEAL_FACTS.pack(size_bytes, max_timestamp), crc32c(entries))
