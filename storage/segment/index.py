"""The sparse index of one segment: offset index and time index in one.

Each entry has the base offset of a batch, its position in the file, and the largest timestamp of all batches *before*
it. All three columns rise, so each lookup is one bisection. The result is at most ``index_interval_bytes`` and one
batch before the wanted batch. The first batch of the segment needs no entry: its position is 0.

On disk the entries are 16 bytes each (u32 offset from the segment's base, u32 position, i64 timestamp, little endian).
They are written in blocks, so that recovery after a kill does not have to scan the whole segment. Closing a segment
adds a *seal*: one more entry, with a CRC over all entries and the length of the segment file. A valid seal proves that
the segment is complete, truncated after its last batch and synced. An append to the segment makes the seal invalid,
because the length no longer matches.
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
# Entries are written to disk in blocks of this many.
BLOCK_ENTRIES: Final = 256

NO_MAX_TIMESTAMP: Final = -(2**63)

_SEAL_MARK: Final = 0xFFFFFFFF
_SEAL_FACTS: Final = struct.Struct("<qq")
_IS_BIG_ENDIAN: Final = sys.byteorder == "big"


class SparseIndex:
    """The entries as three parallel arrays. Only the log's thread appends, but any thread may read."""

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
        """Add an entry. Returns the number of entries that are not on disk yet."""
        offsets = self.offsets
        offsets.append(offset - self.base_offset)
        self.positions.append(position)
        self.timestamps.append(max_timestamp_before)
        return len(offsets) - self.written_count

    def find_offset(self, offset: int) -> tuple[int, int]:
        """(position, offset) of the last batch in the index that begins at or below ``offset``."""
        at = bisect_right(self.offsets, offset - self.base_offset) - 1
        if at < 0:
            return 0, self.base_offset
        return self.positions[at], self.base_offset + self.offsets[at]

    def find_position(self, position: int) -> tuple[int, int]:
        """(position, offset) of the last batch in the index that begins at or below ``position``."""
        at = bisect_right(self.positions, position) - 1
        if at < 0:
            return 0, self.base_offset
        return self.positions[at], self.base_offset + self.offsets[at]

    def find_timestamp(self, timestamp_ms: int) -> tuple[int, int]:
        """(position, offset) of the last batch in the index before which all timestamps are below ``timestamp_ms``."""
        at = bisect_left(self.timestamps, timestamp_ms) - 1
        if at < 0:
            return 0, self.base_offset
        return self.positions[at], self.base_offset + self.offsets[at]

    def truncate(self, position: int) -> None:
        """Remove the entries at or above ``position``."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:]
        del self.positions[keep:]
        del self.timestamps[keep:]
        self.written_count = min(self.written_count, keep)

    # --- bytes

    def encode(self, start: int = 0) -> bytes:
        """The encoded entries from number ``start`` on."""
        count = len(self.offsets) - start
        # Fill the arrays by strides, not entry by entry: a full index has tens of thousands of entries.
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
        """Decode the entries of an index file, up to the first entry that is not above its predecessor."""
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
        """The seal of a segment of ``size_bytes``: the last entry of its index file."""
        return ENTRY.pack(_SEAL_MARK, _seal_crc(self.encode(), size_bytes, max_timestamp), max_timestamp)


def decode_sealed(base_offset: int, data: bytes, size_bytes: int) -> tuple[SparseIndex, int] | None:
    """The index and the segment's max timestamp, or None if the seal is not valid for these bytes."""
    if len(data) < ENTRY_BYTES or len(data) % ENTRY_BYTES:
        return None
    entries, seal = data[:-ENTRY_BYTES], data[-ENTRY_BYTES:]
    mark, crc, max_timestamp = ENTRY.unpack(seal)
    if mark != _SEAL_MARK or crc != _seal_crc(entries, size_bytes, max_timestamp):
        return None
    # The CRC covers the entries, so their order is not checked again.
    return SparseIndex._of(base_offset, entries), max_timestamp


def seal_timestamp(seal: bytes | None) -> int | None:
    """The segment's max timestamp according to its seal, or None if these bytes are not a seal.

    Call it only for a segment that is known to be sealed: a check of the seal would need all entries before it.
    """
    if seal is None:
        return None
    mark, _, max_timestamp = ENTRY.unpack(seal)
    return max_timestamp if mark == _SEAL_MARK else None


def _seal_crc(entries: bytes, size_bytes: int, max_timestamp: int) -> int:
    return crc32c(_SEAL_FACTS.pack(size_bytes, max_timestamp), crc32c(entries))
