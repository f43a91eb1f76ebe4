"""Scans the batches of one segment file for recovery: finds valid batches, damaged ranges and the end of the data.

A valid batch has a matching CRC and begins where the batch before it ended. Where no valid batch begins, the scan
searches for the next one. The bytes in between become one quarantined range, and the scan continues after it. When no
valid batch is left, the rest of the file is classified. If it has only zeros, the end is clean. An unfinished write is
a torn tail. Anything else is damage, and the number of offsets in it is unknown.

A kill leaves the page cache intact, so a torn write is the beginning of a batch followed by zeros. A power cut may also
lose any sector that was not synced. A lost sector reads as zeros, because files are never reused and reserved space is
zeroed. A sync covers everything before it, so nothing after a lost sector was ever synced. The torn tail therefore
begins at that sector, even if later bytes have survived. If a batch is invalid although all of its bytes were written,
it was changed, not torn, and is never truncated. Bytes that are known to have been synced are never truncated either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Final

from crc32c import crc32c
from msgspec import Struct

from storage.batch.format import (
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    NO_TIMESTAMP,
)
from storage.batch.record_batch import BatchHeader
from storage.log.quarantine import QUARANTINES_MAX, Quarantine
from storage.segment.index import NO_MAX_TIMESTAMP, SparseIndex

_CHUNK_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(_CHUNK_BYTES)
_SECTOR_BYTES: Final = 512
# An index entry stores offsets relative to the segment's base offset, in 32 bits.
_OFFSETS_MAX: Final = 2**32
_MAGIC_POSITION: Final = 16
_MAGIC_BYTE: Final = bytes([MAGIC])
# A batch may itself end with zeros. The search for its real end tries up to this many zeros as a part of the batch.
_TRAILING_ZEROS_MAX: Final = 64
# A batch never begins with this many zeros: its base offset may be zero, but not the length after it.
_LEADING_ZEROS_LIMIT: Final = 12

_unpack = HEADER.unpack_from


Replay = Callable[[BatchHeader, memoryview | None], None]


class Ending(Enum):
    CLEAN = "clean"
    TORN = "torn"
    DAMAGED = "damaged"


class ScanResult(Struct):
    """The result of a scan: the batches and quarantined ranges up to ``position``, and how the file ends there."""

    index: SparseIndex
    position: int
    next_offset: int
    max_timestamp: int
    first_timestamp: int
    size_bytes: int
    batch_count: int
    ending: Ending
    torn_bytes: int
    reason: str
    quarantined: list[Quarantine]
    # The base offset of the last batch after an offset gap; 0 if there is none.
    gap_upto: int = 0


class SegmentScan:
    """One scan over ``view``, the whole file. ``limit_offset`` is the base offset of the next segment, if there is one.

    Offsets below ``synced_upto`` were synced and cannot be torn or lost. ``fetch(start, end)`` is called before bytes
    of ``view`` are accessed. It reads the bytes, so that a disk error raises an exception instead of a fatal signal.
    """

    def __init__(
        self,
        view: memoryview,
        base_offset: int,
        *,
        index_interval_bytes: int,
        clean_upto: int = 0,
        limit_offset: int | None = None,
        is_same_boot: bool = False,
        synced_upto: int = 0,
        known: Sequence[Quarantine] = (),
        fetch: Callable[[int, int], None] | None = None,
    ) -> None:
        self._view = view
        self._size = len(view)
        self._base_offset = base_offset
        self._interval = index_interval_bytes
        self._clean_upto = clean_upto
        self._is_last = limit_offset is None
        self._limit = base_offset + _OFFSETS_MAX if limit_offset is None else limit_offset
        self._is_same_boot = is_same_boot
        self._synced_upto = synced_upto
        # The position after the last byte that is not zero. Computed on first use.
        self._data_end: int | None = None
        self._known = {(one.position, one.start_offset): one for one in known if one.segment_base == base_offset}
        self._fetch = fetch
        self._fetched = 0
        self._quarantined: list[Quarantine] = []
        self._is_tail_lost = False
        self._gap_upto = 0

    def run(
        self,
        replay: Replay,
        *,
        replay_from: int = 0,
        index: SparseIndex | None = None,
        position: int = 0,
        offset: int | None = None,
        max_timestamp: int = NO_MAX_TIMESTAMP,
    ) -> ScanResult:
        """Scan from ``position``, where ``offset`` should begin, to the end of the file.

        ``index`` has the entries of the batches before ``position``. ``replay`` is called with the header of each batch
        from offset ``replay_from`` on, and with the bytes of control batches.
        """
        index = SparseIndex(self._base_offset) if index is None else index
        offset = self._base_offset if offset is None else offset
        view, size, limit, interval = self._view, self._size, self._limit, self._interval
        indexed = index.last_position
        first_timestamp = NO_MAX_TIMESTAMP
        batch_count = 0
        self._fetched = fetched = position
        while True:
            is_valid = False
            if position + HEADER_BYTES <= size:
                if position + HEADER_BYTES > fetched:
                    fetched = self._fetch_to(position + HEADER_BYTES)
                values = _unpack(view, position)
                end = position + values[1] + LENGTH_OVERHEAD
                if (
                    values[0] == offset
                    and values[3] == MAGIC
                    and values[1] >= MIN_BATCH_LENGTH
                    and end <= size
                    and 0 <= values[6] < limit - offset
                ):
                    if end > fetched:
                        fetched = self._fetch_to(end)
                    is_valid = crc32c(view[position + CRC_START : end]) == values[4]
            if not is_valid:
                position_and_offset = self._skip_invalid(position, offset)
                if position_and_offset is None:
                    break
                if position_and_offset[0] > position:
                    indexed = -interval  # the first batch after the range gets an index entry: lookups start there
                position, offset = position_and_offset
                continue
            if position - indexed >= interval and position:
                index.add(offset, position, max_timestamp)
                indexed = position
            timestamp = values[8]
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if not batch_count and not position:
                first_timestamp = max(timestamp, NO_TIMESTAMP)
            batch_count += 1
            if offset >= replay_from:
                replay(BatchHeader(*values), view[position:end] if values[5] & CONTROL_BIT else None)
            offset += values[6] + 1
            position = end
        ending, torn_bytes, reason = self._ending(position, offset)
        return ScanResult(
            index,
            position,
            offset,
            max_timestamp,
            first_timestamp,
            size,
            batch_count,
            ending,
            torn_bytes,
            reason,
            self._quarantined,
            self._gap_upto,
        )

    def is_valid_at(self, position: int, offset: int) -> bool:
        """Whether a valid batch with this base offset begins at ``position``."""
        self._fetched = position
        self._fetch_to(position + HEADER_BYTES)
        found = self._valid_batch(position)
        return found is not None and found[0] == offset

    def _fetch_to(self, end: int) -> int:
        """Fetch the bytes up to ``end``, in chunks of 1 MiB or more. Returns the end of the fetched bytes."""
        target = min(max(end, self._fetched + _CHUNK_BYTES), self._size)
        if self._fetch is not None and target > self._fetched:
            self._fetch(self._fetched, target)
        self._fetched = max(self._fetched, target)
        return self._fetched

    # --- invalid batches

    def _skip_invalid(self, position: int, offset: int) -> tuple[int, int] | None:
        """Skip an invalid batch. Returns (position, offset) of the next valid batch; None if there is none."""
        known = self._known.get((position, offset))
        if known is not None and known.end_offset > offset:
            self._quarantined.append(known)
            return known.end_position, known.end_offset
        if position >= self._size or len(self._quarantined) >= QUARANTINES_MAX or self._is_at_next_segment(offset):
            return None
        if self._end_of_data() <= position:
            return None
        gap = self._gap(position, offset)
        if gap is not None:
            if gap > self._clean_upto:
                self._quarantine(position, position, offset, gap, "records are missing")
            else:
                self._gap_upto = gap
            return position, gap
        found = self._after_claimed_end(position, offset) or self._search(position + 1, offset)
        if found is None:
            return None
        if self._is_lost(position, offset, found[0]):
            self._is_tail_lost = True
            return None
        self._quarantine(position, found[0], offset, found[1], self._reason(position, offset))
        return found

    def _quarantine(self, start: int, end: int, offset: int, end_offset: int, reason: str) -> None:
        self._quarantined.append(Quarantine(self._base_offset, start, end - start, offset, end_offset, reason))

    def _valid_batch(self, position: int) -> tuple[int, int, int] | None:
        """(base offset, last offset, end) of the batch at ``position``, if its CRC matches."""
        view = self._view
        if position + HEADER_BYTES > self._size:
            return None
        base_offset, length, _, magic, crc, _, delta, *_ = _unpack(view, position)
        end = position + length + LENGTH_OVERHEAD
        if magic != MAGIC or length < MIN_BATCH_LENGTH or delta < 0 or end > self._size:
            return None
        if end > self._fetched:
            self._fetch_to(end)
        if crc32c(view[position + CRC_START : end]) != crc:
            return None
        return base_offset, base_offset + delta, end

    def _gap(self, position: int, offset: int) -> int | None:
        """The base offset of the valid batch at ``position``, if it is above ``offset`` and the next batch confirms it.

        The CRC does not cover the base offset, so the next batch has to begin above the last offset of this one.
        """
        found = self._valid_batch(position)
        if found is None or not offset < found[0] or found[1] >= self._limit:
            return None
        base_offset, last_offset, end = found
        if end + HEADER_BYTES <= self._size and not is_zero(self._view, end, end + HEADER_BYTES):
            is_confirmed = _unpack(self._view, end)[0] > last_offset
        else:
            is_confirmed = not self._is_last or base_offset <= self._clean_upto
        return base_offset if is_confirmed else None

    def _after_claimed_end(self, position: int, offset: int) -> tuple[int, int] | None:
        """(position, offset) of the next batch, if the invalid header at ``position`` predicts both correctly."""
        if position + HEADER_BYTES > self._size:
            return None
        _, length, _, _, _, _, delta, *_ = _unpack(self._view, position)
        if length < MIN_BATCH_LENGTH or delta < 0:
            return None
        end = position + length + LENGTH_OVERHEAD
        found = self._valid_batch(end)
        if found is None or found[0] != offset + delta + 1 or found[1] >= self._limit:
            return None
        return end, found[0]

    def _search(self, start: int, offset: int) -> tuple[int, int] | None:
        """The first valid batch from ``start`` on that is followed by another batch or by the end of the data.

        A record value may itself contain a batch. Such a batch has no successor, so it is returned only if no other is
        found.
        """
        without_successor: tuple[int, int] | None = None
        for position in self._candidates(start, offset):
            found = self._valid_batch(position)
            if found is None or found[0] < offset or found[1] >= self._limit:
                continue
            if self._is_followed(found[2], found[1]):
                return position, found[0]
            if without_successor is None:
                without_successor = position, found[0]
        return without_successor

    def _is_followed(self, end: int, last_offset: int) -> bool:
        """Whether the next batch, valid or not, may begin at ``end``, or only zeros follow."""
        if end + HEADER_BYTES > self._size:
            return is_zero(self._view, end, self._size)
        base_offset, length, _, magic, *_ = _unpack(self._view, end)
        if base_offset == last_offset + 1:
            return True
        if magic == MAGIC and length >= MIN_BATCH_LENGTH and last_offset < base_offset < self._limit:
            return True
        return is_zero(self._view, end, end + HEADER_BYTES)

    def _candidates(self, start: int, offset: int) -> Iterator[int]:
        """Positions where the first half of the base offset and the magic byte match those of a batch."""
        heads = {number.to_bytes(8, "big")[:4] for number in (offset, self._limit - 1)}
        while start + HEADER_BYTES <= self._size:
            self._fetch_to(min(start + _CHUNK_BYTES + HEADER_BYTES, self._size))
            piece = bytes(self._view[start : start + _CHUNK_BYTES + _MAGIC_POSITION])
            at = 0
            while True:
                magic_at = piece.find(_MAGIC_BYTE, at + _MAGIC_POSITION)
                if magic_at < 0:
                    break
                at = max(at, magic_at - _MAGIC_POSITION)
                # Search for both: the search for the magic byte skips zeros quickly, the search for the heads skips
                # text.
                head_at = min((found for head in heads if (found := piece.find(head, at)) >= 0), default=-1)
                if head_at < 0:
                    break
                if head_at > at:
                    at = head_at
                    continue
                yield start + at
                at += 1
            start += _CHUNK_BYTES

    # --- the end

    def _reason(self, position: int, offset: int) -> str:
        size = self._size - position
        if size < HEADER_BYTES:
            return "the file ends inside a batch"
        if is_zero(self._view, position, position + HEADER_BYTES):
            return "zeros instead of a batch"
        base_offset, length, _, magic, *_ = _unpack(self._view, position)
        if magic != MAGIC:
            return f"the magic byte is {magic}"
        if not MIN_BATCH_LENGTH <= length <= size - LENGTH_OVERHEAD:
            return f"the batch length {length} is not possible"
        if base_offset != offset:
            return f"base offset {base_offset} instead of {offset}"
        return "the CRC does not match"

    def _ending(self, position: int, offset: int) -> tuple[Ending, int, str]:
        """Classify the bytes after the last valid batch: (ending, torn bytes, the reason if they are damaged)."""
        data_end = self._end_of_data()
        if data_end <= position:
            return Ending.CLEAN, 0, ""
        if self._is_at_next_segment(offset):
            return Ending.TORN, data_end - position, ""
        reason = self._reason(position, offset)
        if len(self._quarantined) >= QUARANTINES_MAX:
            return Ending.DAMAGED, 0, f"more than {QUARANTINES_MAX} damaged ranges; at this one: {reason}"
        if self._is_torn(position, offset):
            return Ending.TORN, data_end - position, ""
        return Ending.DAMAGED, 0, reason

    def _is_at_next_segment(self, offset: int) -> bool:
        """Whether the next segment begins at ``offset``. If so, the bytes that follow are remains of a failed write."""
        return not self._is_last and offset == self._limit

    def _end_of_data(self) -> int:
        if self._data_end is None:
            self._fetch_to(self._size)
            self._data_end = end_of_data(self._view, 0)
        return self._data_end

    def _is_torn(self, position: int, offset: int) -> bool:
        """Whether the invalid bytes at ``position`` are an unfinished write."""
        data_end = self._end_of_data()
        if offset < self._synced_upto or (self._is_same_boot and self._is_file_too_short(position)):
            return False
        if self._is_tail_lost or data_end - position < HEADER_BYTES or self._is_lost(position, offset, data_end):
            return True
        _, length, _, _, crc, *_ = _unpack(self._view, position)
        end: int = position + length + LENGTH_OVERHEAD
        if length < MIN_BATCH_LENGTH or data_end > end or _fits_with_zeros(self._view, position, data_end, crc):
            return False  # for example a complete batch whose length, magic byte or base offset was changed
        # The last byte of a batch is usually the header count of its last record, which is zero. Writes are torn at
        # sectors, so this zero alone is not a sign of a torn write.
        is_own_zero = end <= self._size and (end - 1) % _SECTOR_BYTES
        return data_end < (end - 1 if is_own_zero else end)

    def _is_file_too_short(self, position: int) -> bool:
        """Whether the file ends inside the batch at ``position``.

        A kill cannot cause that: the file is extended before a batch is written.
        """
        size = self._size - position
        if size < HEADER_BYTES:
            return True
        length: int = _unpack(self._view, position)[1]
        return length >= MIN_BATCH_LENGTH and length + LENGTH_OVERHEAD > size

    def _is_lost(self, start: int, offset: int, end: int) -> bool:
        """Whether a power cut lost a sector of these bytes. If so, nothing from that sector on was synced."""
        if self._is_same_boot or offset < self._synced_upto:
            return False
        return self._is_start_lost(start, offset) or self._has_lost_sector(start, end)

    def _is_start_lost(self, position: int, offset: int) -> bool:
        """Whether the first sector of a batch is zero from ``position`` on. No written batch begins like this."""
        end = position - position % _SECTOR_BYTES + _SECTOR_BYTES
        if not is_zero(self._view, position, min(end, self._size)):
            return False
        return end - position >= _LEADING_ZEROS_LIMIT or any(offset.to_bytes(8, "big")[: end - position])

    def _has_lost_sector(self, start: int, end: int) -> bool:
        """Whether a sector that begins in these bytes is all zeros, as if it was never written."""
        size = self._size
        start += -start % _SECTOR_BYTES
        return any(is_zero(self._view, at, min(at + _SECTOR_BYTES, size)) for at in range(start, end, _SECTOR_BYTES))


def _fits_with_zeros(view: memoryview, position: int, data_end: int, crc: int) -> bool:
    """Whether the CRC in the header matches the bytes up to ``data_end`` and up to 64 of the zeros after it."""
    value = crc32c(view[position + CRC_START : data_end])
    for _ in range(min(_TRAILING_ZEROS_MAX, len(view) - data_end)):
        if value == crc:
            return True
        value = crc32c(b"\0", value)
    return bool(value == crc)


def end_of_data(view: memoryview, start: int) -> int:
    """The position after the last byte from ``start`` on that is not zero; ``start`` if all are zero."""
    end = len(view)
    while end > start:
        piece_start = max(start, end - _CHUNK_BYTES)
        kept = len(bytes(view[piece_start:end]).rstrip(b"\0"))
        if kept:
            return piece_start + kept
        end = piece_start
    return start


def is_zero(view: memoryview, start: int, end: int) -> bool:
    while start < end:
        size = min(_CHUNK_BYTES, end - start)
        piece = bytes(view[start : start + size])
        if piece != (_ZEROS if size == _CHUNK_BYTES else _ZEROS[:size]):
            return False
        start += size
    return True
