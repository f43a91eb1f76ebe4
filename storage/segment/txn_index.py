"""The transaction index of one segment: the transactions whose ABORT marker is in it, in the order of the markers.

Each entry also has the last stable offset after the marker was written. Every transaction that began below that offset
had ended by then. So a search for transactions that began below an offset stops at the first entry whose stable offset
reaches that offset.

On disk, in ``<base offset>.txnindex``, each entry is four big-endian numbers of 64 bits. The file begins with a head:
magic, version, a CRC over everything that follows it, and the length of the segment file. The file exists only for
closed segments with ABORT markers, and it is durable before the segment's seal. So with a valid seal, no file means
that there are no ABORT markers. An invalid file is rebuilt from the batches (:func:`find_aborted`).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from storage.batch.format import HEADER_BYTES
from storage.batch.markers import Marker, read_marker
from storage.batch.record_batch import BatchHeader, parse_header
from storage.log.transactions import AbortedTransaction

if TYPE_CHECKING:
    from storage.segment.reading import ReadableSegment

# At most this many entries per segment. At this number the log rolls, because each checkpoint holds all entries of the
# active segment.
ENTRIES_MAX: Final = 4096

ENTRY: Final = struct.Struct(">qqqq")
_MAGIC: Final = b"KWTX"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">4sHI")
_SIZE: Final = struct.Struct(">q")
# The stable offset of an entry that was rebuilt. It is unknown which other transactions were open, so no search stops
# at such an entry.
_NOTHING_STABLE: Final = 0


class AbortedEntry(NamedTuple):
    """An aborted transaction. Every transaction that began below ``stable_offset`` had ended at ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


class TransactionIndex:
    """The entries of one segment as four parallel arrays."""

    __slots__ = ("first_offsets", "last_offsets", "producer_ids", "stable_offsets")

    def __init__(self, entries: Iterable[AbortedEntry] = ()) -> None:
        self.producer_ids = array("q")
        self.first_offsets = array("q")
        self.last_offsets = array("q")
        self.stable_offsets = array("q")
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self.last_offsets)

    def __iter__(self) -> Iterator[AbortedEntry]:
        columns = self.producer_ids, self.first_offsets, self.last_offsets, self.stable_offsets
        return map(AbortedEntry, *columns)

    @property
    def is_full(self) -> bool:
        return len(self) >= ENTRIES_MAX

    def add(self, entry: AbortedEntry) -> None:
        self.producer_ids.append(entry.producer_id)
        self.first_offsets.append(entry.first_offset)
        self.last_offsets.append(entry.last_offset)
        self.stable_offsets.append(entry.stable_offset)

    def collect(self, start_offset: int, end_offset: int, found: list[AbortedTransaction]) -> bool:
        """Add to ``found`` the transactions aborted at or after ``start_offset`` that began below ``end_offset``.

        Returns True if later segments have no more such transactions.
        """
        for at in range(bisect_left(self.last_offsets, start_offset), len(self)):
            if self.first_offsets[at] < end_offset:
                found.append(AbortedTransaction(self.producer_ids[at], self.first_offsets[at], self.last_offsets[at]))
            if self.stable_offsets[at] >= end_offset:
                return True
        return False


def encode_entries(entries: Iterable[AbortedEntry]) -> bytes:
    return b"".join([ENTRY.pack(*entry) for entry in entries])


def decode_entries(data: bytes) -> list[AbortedEntry]:
    """Decode the result of :func:`encode_entries`. The caller has checked a CRC over the bytes."""
    return [AbortedEntry(*values) for values in ENTRY.iter_unpack(data)]


def encode_file(entries: Iterable[AbortedEntry], size_bytes: int) -> bytes:
    """The content of the transaction index file of a segment of ``size_bytes``."""
    body = _SIZE.pack(size_bytes) + encode_entries(entries)
    return _HEAD.pack(_MAGIC, _VERSION, crc32c(body)) + body


def decode_file(data: bytes) -> tuple[int, list[AbortedEntry]] | None:
    """(length of the segment, its entries); None if the bytes are not a valid file."""
    body = data[_HEAD.size :]
    if len(body) < _SIZE.size or (len(body) - _SIZE.size) % ENTRY.size:
        return None
    magic, version, crc = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or crc32c(body) != crc:
        return None
    return _SIZE.unpack_from(body)[0], decode_entries(body[_SIZE.size :])


def decode_fitting(data: bytes | None, *sizes_bytes: int) -> list[AbortedEntry] | None:
    """Decode a file. Returns None if it is not valid or its segment had none of these lengths."""
    decoded = decode_file(data) if data is not None else None
    return decoded[1] if decoded is not None and decoded[0] in sizes_bytes else None


# --- from the batches


class _Found(NamedTuple):
    header: BatchHeader
    marker: Marker | None


def find_aborted(segments: Sequence[ReadableSegment]) -> list[AbortedEntry]:
    """The aborted transactions of the last of ``segments``, found by a scan of its batches.

    The other segments are its predecessors. They are scanned backwards until the first offset of each transaction is
    found.
    """
    entries: list[AbortedEntry] = []
    # ``opened``: the first offsets of open transactions, by producer. ``ended``: producers with a marker. ``unknown``,
    # by producer: the index in ``entries`` of a transaction that may begin in an earlier segment.
    opened: dict[int, int] = {}
    ended: set[int] = set()
    unknown: dict[int, int] = {}
    for header, marker in _transactional(segments[-1]):
        producer_id = header.producer_id
        if marker is None:
            opened.setdefault(producer_id, header.base_offset)
            continue
        first_offset = opened.pop(producer_id, None)
        if not marker.is_commit:
            if producer_id not in ended:
                unknown[producer_id] = len(entries)
            if first_offset is not None or producer_id not in ended:
                first = header.base_offset if first_offset is None else first_offset
                entries.append(AbortedEntry(producer_id, first, header.base_offset, _NOTHING_STABLE))
        ended.add(producer_id)
    for segment in reversed(segments[:-1]):
        if not unknown:
            break
        found: dict[int, int | None] = {}
        is_beginning: set[int] = set()
        for header, marker in _transactional(segment):
            producer_id = header.producer_id
            if producer_id not in unknown:
                continue
            if marker is not None:
                found[producer_id] = None
                is_beginning.add(producer_id)
            elif found.get(producer_id) is None:
                found[producer_id] = header.base_offset
        for producer_id, began in found.items():
            if began is not None:
                at = unknown[producer_id]
                entries[at] = entries[at]._replace(first_offset=began)
            if producer_id in is_beginning:
                del unknown[producer_id]
    # A marker without a transaction gets no entry.
    return [entry for entry in entries if entry.first_offset < entry.last_offset]


def _transactional(segment: ReadableSegment) -> Iterator[_Found]:
    """The transactional batches that have records, and the markers."""
    for start, end in segment.batches():
        header = parse_header(segment.view(start, start + HEADER_BYTES))
        if header.producer_id < 0 or not header.is_transactional or header.record_count <= 0:
            continue
        if not header.is_control:
            yield _Found(header, None)
        elif (marker := read_marker(segment.view(start, end))) is not None:
            yield _Found(header, marker)
