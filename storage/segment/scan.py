"""Walking the batches of one segment file: where they are, what lies between them, and how the file ends.

A good batch has its right CRC and begins where the one before ended. Where there is none, the walk looks for the next
good batch; what lies between is one range that cannot be read, and the walk goes on behind it. With no good batch left
the rest is told apart: nothing but zeros is a clean end; a write that was cut short is a torn tail; anything else is
damage, of which nobody can say how many offsets it took.

A kill leaves the page cache whole, so a torn write is the beginning of a batch with zeros behind it. A power cut may
also lose any sector that was not synced: those are zero too, because files are never used twice and space is reserved
empty. A sync takes everything before it along, so behind a lost sector nothing was ever synced: the tail begins there,
whatever of it has survived. A batch that is bad although all of its bytes are there was changed, not torn, and is
never cut, nor is anything that is known to have been synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Final

from crc32c import crc32c
from msgspec import Struct

from storage.batch import BatchHeader
from storage.format import (
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    NO_TIMESTAMP,
)
from storage.index import NO_MAX_TIMESTAMP, SparseIndex
from storage.quarantine import QUARANTINES_MAX, Quarantine

_CHUNK_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(_CHUNK_BYTES)
_SECTOR_BYTES: Final = 512
# An index entry counts offsets from the segment's base in 32 bits.
_OFFSETS_MAX: Final = 2**32
_MAGIC_POSITION: Final = 16
_MAGIC_BYTE: Final = bytes([MAGIC])
# Zeros with which a batch may end by itself, when its real length is looked for.
_OWN_ZEROS_MAX: Final = 64
# The least of a batch that says something when all of it is zero: a base offset is, but not together with a length.
_TELLING_BYTES: Final = 12

_unpack = HEADER.unpack_from


Replay = Callable[[BatchHeader, memoryview | None], None]


class Ending(Enum):
    CLEAN = "clean"
    TORN = "torn"
    DAMAGED = "damaged"


class Walked(Struct):
    """What is known of a segment: batches and ranges up to ``position``, and what follows there."""

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
    # The last batch before which offsets were left out begins here; 0 if there is none.
    gap_upto: int = 0


class SegmentWalk:
    """One walk over ``view``, the whole file. ``limit_offset`` is where the next segment begins, if there is one.

    Below ``synced_upto`` nothing can have been torn or lost. ``fetch(start, end)`` is called before bytes are touched:
    it reads them, so that a bad disk is an error there and not a fatal signal here.
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
        # Behind the last byte that is not zero; looked for when it is needed.
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
    ) -> Walked:
        """Go from ``position``, where ``offset`` is next, to the end; ``index`` holds what is before. Batches from
        ``replay_from`` on are shown to ``replay``, control batches with their bytes."""
        index = SparseIndex(self._base_offset) if index is None else index
        offset = self._base_offset if offset is None else offset
        view, size, limit, interval = self._view, self._size, self._limit, self._interval
        indexed = index.last_position
        first_timestamp = NO_MAX_TIMESTAMP
        batch_count = 0
        self._fetched = fetched = position
        while True:
            is_good = False
            if position + HEADER_BYTES <= size:
                if position + HEADER_BYTES > fetched:
                    fetched = self._ahead(position + HEADER_BYTES)
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
                        fetched = self._ahead(end)
                    is_good = crc32c(view[position + CRC_START : end]) == values[4]
            if not is_good:
                place = self._stumble(position, offset)
                if place is None:
                    break
                if place[0] > position:
                    indexed = -interval  # the first batch behind the range gets an entry: searches start there
                position, offset = place
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
        return Walked(
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

    def is_good_at(self, position: int, offset: int) -> bool:
        """Whether a good batch begins there."""
        self._fetched = position
        self._ahead(position + HEADER_BYTES)
        found = self._intact(position)
        return found is not None and found[0] == offset

    def _ahead(self, end: int) -> int:
        """Have the bytes up to ``end`` read, and some more; where that ends."""
        target = min(max(end, self._fetched + _CHUNK_BYTES), self._size)
        if self._fetch is not None and target > self._fetched:
            self._fetch(self._fetched, target)
        self._fetched = max(self._fetched, target)
        return self._fetched

    # --- where there is no good batch

    def _stumble(self, position: int, offset: int) -> tuple[int, int] | None:
        """Where the walk goes on: (position, offset); None when no good batch is left."""
        known = self._known.get((position, offset))
        if known is not None and known.end_offset > offset:
            self._quarantined.append(known)
            return known.end_position, known.end_offset
        if position >= self._size or len(self._quarantined) >= QUARANTINES_MAX or self._is_over(offset):
            return None
        if self._end_of_data() <= position:
            return None
        gap = self._gap(position, offset)
        if gap is not None:
            if gap > self._clean_upto:
                self._set_apart(position, position, offset, gap, "records are missing")
            else:
                self._gap_upto = gap
            return position, gap
        found = self._behind_claimed_end(position, offset) or self._search(position + 1, offset)
        if found is None:
            return None
        if self._is_lost(position, offset, found[0]):
            self._is_tail_lost = True
            return None
        self._set_apart(position, found[0], offset, found[1], self._reason(position, offset))
        return found

    def _set_apart(self, start: int, end: int, offset: int, end_offset: int, reason: str) -> None:
        self._quarantined.append(Quarantine(self._base_offset, start, end - start, offset, end_offset, reason))

    def _intact(self, position: int) -> tuple[int, int, int] | None:
        """(base offset, last offset, end) of the batch at ``position``, if its CRC fits."""
        view = self._view
        if position + HEADER_BYTES > self._size:
            return None
        base_offset, length, _, magic, crc, _, delta, *_ = _unpack(view, position)
        end = position + length + LENGTH_OVERHEAD
        if magic != MAGIC or length < MIN_BATCH_LENGTH or delta < 0 or end > self._size:
            return None
        if end > self._fetched:
            self._ahead(end)
        if crc32c(view[position + CRC_START : end]) != crc:
            return None
        return base_offset, base_offset + delta, end

    def _gap(self, position: int, offset: int) -> int | None:
        """The base offset of a good batch that begins above ``offset``, if what follows it begins above it too.

        The base offset is not under the CRC, so the next batch has to bear witness.
        """
        found = self._intact(position)
        if found is None or not offset < found[0] or found[1] >= self._limit:
            return None
        base_offset, last_offset, end = found
        if end + HEADER_BYTES <= self._size and not is_zero(self._view, end, end + HEADER_BYTES):
            is_confirmed = _unpack(self._view, end)[0] > last_offset
        else:
            is_confirmed = not self._is_last or base_offset <= self._clean_upto
        return base_offset if is_confirmed else None

    def _behind_claimed_end(self, position: int, offset: int) -> tuple[int, int] | None:
        """The batch behind the one at ``position``, if the header there is right about where and which it is."""
        if position + HEADER_BYTES > self._size:
            return None
        _, length, _, _, _, _, delta, *_ = _unpack(self._view, position)
        if length < MIN_BATCH_LENGTH or delta < 0:
            return None
        end = position + length + LENGTH_OVERHEAD
        found = self._intact(end)
        if found is None or found[0] != offset + delta + 1 or found[1] >= self._limit:
            return None
        return end, found[0]

    def _search(self, start: int, offset: int) -> tuple[int, int] | None:
        """The first batch from ``start`` on that is good and has its like, or the end, behind it.

        A stored value may itself hold a batch; such a one has no successor, so it is taken only if there is no better.
        """
        without_successor: tuple[int, int] | None = None
        for position in self._candidates(start, offset):
            found = self._intact(position)
            if found is None or found[0] < offset or found[1] >= self._limit:
                continue
            if self._is_followed(found[2], found[1]):
                return position, found[0]
            if without_successor is None:
                without_successor = position, found[0]
        return without_successor

    def _is_followed(self, end: int, last_offset: int) -> bool:
        """Whether a batch that may be the next one begins at ``end``, good or not, or nothing at all."""
        if end + HEADER_BYTES > self._size:
            return is_zero(self._view, end, self._size)
        base_offset, length, _, magic, *_ = _unpack(self._view, end)
        if base_offset == last_offset + 1:
            return True
        if magic == MAGIC and length >= MIN_BATCH_LENGTH and last_offset < base_offset < self._limit:
            return True
        return is_zero(self._view, end, end + HEADER_BYTES)

    def _candidates(self, start: int, offset: int) -> Iterator[int]:
        """Positions where the first half of a base offset and the magic byte would fit."""
        heads = {number.to_bytes(8, "big")[:4] for number in (offset, self._limit - 1)}
        while start + HEADER_BYTES <= self._size:
            self._ahead(min(start + _CHUNK_BYTES + HEADER_BYTES, self._size))
            piece = bytes(self._view[start : start + _CHUNK_BYTES + _MAGIC_POSITION])
            at = 0
            while True:
                magic_at = piece.find(_MAGIC_BYTE, at + _MAGIC_POSITION)
                if magic_at < 0:
                    break
                at = max(at, magic_at - _MAGIC_POSITION)
                # Both jumps go far, each where the other one does not: over zeros and over text.
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
            return "no batch"
        base_offset, length, _, magic, *_ = _unpack(self._view, position)
        if magic != MAGIC:
            return f"magic {magic}"
        if not MIN_BATCH_LENGTH <= length <= size - LENGTH_OVERHEAD:
            return f"a batch length of {length}"
        if base_offset != offset:
            return f"base offset {base_offset} instead of {offset}"
        return "the CRC does not fit the bytes"

    def _ending(self, position: int, offset: int) -> tuple[Ending, int, str]:
        """What lies behind the last good batch: (how the file ends, torn bytes, why it is damage)."""
        data_end = self._end_of_data()
        if data_end <= position:
            return Ending.CLEAN, 0, ""
        if self._is_over(offset):
            return Ending.TORN, data_end - position, ""
        reason = self._reason(position, offset)
        if len(self._quarantined) >= QUARANTINES_MAX:
            return Ending.DAMAGED, 0, f"more than {QUARANTINES_MAX} damaged places; here: {reason}"
        if self._is_torn(position, offset):
            return Ending.TORN, data_end - position, ""
        return Ending.DAMAGED, 0, reason

    def _is_over(self, offset: int) -> bool:
        """Whether the next segment goes on here: then bytes that follow are of a write that failed, and nobody's."""
        return not self._is_last and offset == self._limit

    def _end_of_data(self) -> int:
        if self._data_end is None:
            self._ahead(self._size)
            self._data_end = end_of_data(self._view, 0)
        return self._data_end

    def _is_torn(self, position: int, offset: int) -> bool:
        """Whether what is bad here was never written as a whole."""
        data_end = self._end_of_data()
        if offset < self._synced_upto or (self._is_same_boot and self._is_cut(position)):
            return False
        if self._is_tail_lost or data_end - position < HEADER_BYTES or self._is_lost(position, offset, data_end):
            return True
        _, length, _, _, crc, *_ = _unpack(self._view, position)
        end: int = position + length + LENGTH_OVERHEAD
        if length < MIN_BATCH_LENGTH or data_end > end or _fits_with_zeros(self._view, position, data_end, crc):
            return False  # among others a whole batch whose length, magic or base offset was changed
        # The last byte of a batch is mostly its own zero, the count of headers, and writes are cut at sectors.
        is_own_zero = end <= self._size and (end - 1) % _SECTOR_BYTES
        return data_end < (end - 1 if is_own_zero else end)

    def _is_cut(self, position: int) -> bool:
        """Whether the file is too short for the batch that begins here: its space was reserved before it was written,
        and a kill does not take that back."""
        size = self._size - position
        if size < HEADER_BYTES:
            return True
        length: int = _unpack(self._view, position)[1]
        return length >= MIN_BATCH_LENGTH and length + LENGTH_OVERHEAD > size

    def _is_lost(self, start: int, offset: int, end: int) -> bool:
        """Whether a power cut took a sector of these bad bytes; then it was not synced, and nothing behind it was."""
        if self._is_same_boot or offset < self._synced_upto:
            return False
        return self._is_start_lost(start, offset) or self._has_lost_sector(start, end)

    def _is_start_lost(self, position: int, offset: int) -> bool:
        """Whether the sector in which the batch begins is zero from there on, and would not be by itself."""
        end = position - position % _SECTOR_BYTES + _SECTOR_BYTES
        if not is_zero(self._view, position, min(end, self._size)):
            return False
        return end - position >= _TELLING_BYTES or any(offset.to_bytes(8, "big")[: end - position])

    def _has_lost_sector(self, start: int, end: int) -> bool:
        """Whether some sector that begins in these bytes is zero, as one is that was never written."""
        size = self._size
        start += -start % _SECTOR_BYTES
        return any(is_zero(self._view, at, min(at + _SECTOR_BYTES, size)) for at in range(start, end, _SECTOR_BYTES))


def _fits_with_zeros(view: memoryview, position: int, data_end: int, crc: int) -> bool:
    """Whether the bytes up to ``data_end``, and some zeros behind it, are what the CRC in the header speaks of."""
    value = crc32c(view[position + CRC_START : data_end])
    for _ in range(min(_OWN_ZEROS_MAX, len(view) - data_end)):
        if value == crc:
            return True
        value = crc32c(b"\0", value)
    return bool(value == crc)


def end_of_data(view: memoryview, start: int) -> int:
    """Behind the last byte from ``start`` on that is not zero; ``start`` when all are."""
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
