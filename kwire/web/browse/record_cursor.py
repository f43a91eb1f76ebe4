"""RecordCursor: reads the records of a range of one log that pass a filter, in chunks.

A chunk is limited by its weight: the bytes that are searched, and a fixed weight for each batch and each record that is
decoded. So a chunk takes about a millisecond, whatever the sizes of batches and records are. Batches without a record
that can pass are skipped without decoding their records. Large batches are decompressed in a thread.
"""

from contextlib import suppress
from functools import partial
from typing import NamedTuple

from kwire.errors import OffsetOutOfRange
from kwire.streams.events.aborted_batches import AbortedBatches
from kwire.streams.log import NotReady, StreamLog, StreamRead, Unreadable
from kwire.web.browse.filters import DECODED_BYTES_MAX, RecordFilter
from kwire.web.browse.record_json import CutLimits, FoundRecord, found_record
from storage.batch.format import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MIN_BATCH_LENGTH,
    TRANSACTIONAL_BIT,
)
from storage.batch.record_batch import BatchHeader, decompress_records, is_intact, parse_header, record_fields
from storage.batch.records import record_heads
from storage.errors import BudgetExceeded, CorruptBatch, StorageError, UnsupportedCompression

# The weight of one chunk, about half a millisecond. A byte that is copied, checked and searched has the weight 1.
WEIGHT_PER_CHUNK = 1024 * 1024
BATCH_WEIGHT = 8_000
HEAD_WEIGHT = 1_000
# The weight of a record whose fields are read. A JSON value has in addition this weight for each byte.
RECORD_WEIGHT = 4_000
JSON_BYTE_WEIGHT = 10
# The maximum size of a part of the log that is examined at a time. A single batch may be larger.
VIEW_BYTES = 1024 * 1024
# Batches that exceed neither limit are checked and decompressed on the event loop, others in a thread.
INLINE_BYTES_MAX = 1024 * 1024
INLINE_COMPRESSED_BYTES_MAX = 64 * 1024
INLINE_DECOMPRESSED_BYTES_MAX = 256 * 1024
# Batches with a larger decompressed size are reported as unreadable.
DECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
# A cursor that pauses keeps at most this many decompressed bytes.
RETAINED_BYTES_MAX = 256 * 1024
# Of the ranges that cannot be read, at most this many wait to be reported.
GAPS_MAX = 100


class UnreadableRange(NamedTuple):
    """Offsets of a partition that cannot be read, from `from_offset` up to, not including, `to_offset`."""

    partition: int
    from_offset: int
    to_offset: int
    reason: str


class ScanCounts:
    """What a scan has examined so far, in all partitions."""

    __slots__ = ("gaps", "matched", "scanned", "scanned_bytes", "unsearched")

    def __init__(self) -> None:
        self.scanned = 0
        self.matched = 0
        self.scanned_bytes = 0
        # Records whose values are too large for the JSON path of the filter.
        self.unsearched = 0
        self.gaps: list[UnreadableRange] = []


class ScanRules(NamedTuple):
    """What a scan looks for, and how much of each record it keeps."""

    filter: RecordFilter
    limits: CutLimits
    is_committed: bool = True


class _Batch(NamedTuple):
    """A batch that is being read: its header, the position after it, and its decompressed records."""

    header: BatchHeader
    next_offset: int
    body: bytes


class RecordCursor:
    """Reads the records from `position` up to, not including, `upto`. `position` is the next offset to examine.

    If `is_aligned`, the range begins with the first record of the batch at `position`, but not before `lowest`.
    """

    __slots__ = (
        "_aborted",
        "_batch",
        "_heads",
        "_is_aligned",
        "_log",
        "_lowest",
        "_prepared",
        "_read",
        "_rules",
        "_view_position",
        "_waits",
        "counts",
        "first_offset",
        "first_timestamp_ms",
        "last_timestamp_ms",
        "position",
        "upto",
    )

    def __init__(
        self,
        log: StreamLog,
        position: int,
        upto: int,
        rules: ScanRules,
        counts: ScanCounts,
        *,
        is_aligned: bool = False,
        lowest: int = 0,
    ) -> None:
        self._log = log
        # The lowest offset of the range, and the next offset to examine.
        self.first_offset = self.position = position
        self.upto = upto
        self._rules = rules
        self.counts = counts
        self._is_aligned = is_aligned
        self._lowest = lowest
        # The timestamps of the first batch of the range, and the largest one so far. None before the first batch.
        self.first_timestamp_ms: int | None = None
        self.last_timestamp_ms: int | None = None
        self._read: StreamRead | None = None
        self._aborted: AbortedBatches | None = None
        self._view_position = 0
        self._batch: _Batch | None = None
        self._heads = record_heads(b"", 0, 0)
        # The result of the thread: the base offset and the CRC of a batch, and its records or the error.
        self._prepared: tuple[tuple[int, int], bytes | StorageError] | None = None
        self._waits = 0

    @property
    def is_done(self) -> bool:
        return self.position >= self.upto

    def read(self, found: list[FoundRecord], count_max: int) -> NotReady | None:
        """Examine one chunk, and append the records that pass to `found`, until it has `count_max`.

        Returns NotReady if the caller has to wait before the next call. Raises KafkaError if the log was deleted or
        cannot be read.
        """
        weight = WEIGHT_PER_CHUNK
        while weight > 0 and not self.is_done and len(found) < count_max:
            if self._batch is not None:
                try:
                    weight -= self._read_batch(self._batch, found, count_max, weight)
                except (CorruptBatch, IndexError) as error:
                    self._skip_unreadable(self._batch.next_offset, str(error))
                continue
            try:
                view = self._fill_view()
                if isinstance(view, NotReady):
                    return view
                if view is not None:
                    examined = self._next_batch(view)
                    if isinstance(examined, NotReady):
                        return examined
                    weight -= examined
            except Unreadable as error:
                self._skip_unreadable(error.to_offset, str(error))
            except OffsetOutOfRange as error:
                # Retention has removed these records meanwhile.
                self.position = min(self.upto, max(error.oldest, self.position))
                self.release()
        return None

    def release(self) -> None:
        """Release the memory of the log, and of a large batch, before the caller waits. The position stays."""
        self._read = self._aborted = None
        self._batch = None
        if self._prepared is not None:
            body = self._prepared[1]
            if isinstance(body, bytes) and len(body) > RETAINED_BYTES_MAX:
                self._prepared = None

    def seek(self, position: int) -> None:
        """Continue at an earlier position."""
        self.position = position
        self.release()

    # --- views

    def _fill_view(self) -> StreamRead | NotReady | None:
        """Return a part of the log with a batch at `_view_position`; None if the range has no further records."""
        if self._read is not None and self._view_position < len(self._read.records):
            return self._read
        log = self._log
        read = log.read if self._rules.is_committed else log.read_uncommitted
        found = read(self.position, VIEW_BYTES, self._waits)
        if isinstance(found, NotReady):
            self._waits += 1
            return found
        self._waits = 0
        if not found.records:
            self.position = self.upto
            return None
        self._read, self._view_position = found, 0
        self._aborted = AbortedBatches(found.aborted) if found.aborted else None
        return found

    def _next_batch(self, read: StreamRead) -> int | NotReady:
        """Examine the batch at `_view_position`: skip it, or begin to read its records. Returns the weight of this."""
        view, position = read.records, self._view_position
        if len(view) - position < HEADER_BYTES:
            raise Unreadable(self.position, max(self.position + 1, read.next_offset), "a batch header is incomplete")
        header = parse_header(view, position)
        end = position + header.batch_length + LENGTH_OVERHEAD
        next_offset = header.base_offset + header.last_offset_delta + 1
        if header.batch_length < MIN_BATCH_LENGTH or end > len(view) or header.last_offset_delta < 0:
            raise Unreadable(self.position, max(self.position + 1, read.next_offset), "no batch begins here")
        if next_offset <= self.position:
            self._view_position = end
            return BATCH_WEIGHT
        if header.base_offset >= self.upto:
            self.position = self.upto
            return BATCH_WEIGHT
        if self._is_aligned:
            self._is_aligned = False
            self.first_offset = self.position = min(self.position, max(header.base_offset, self._lowest))
        self._note_timestamps(header)
        batch = view[position:end]
        try:
            body = self._body(header, batch)
        except (CorruptBatch, BudgetExceeded, UnsupportedCompression) as error:
            self._view_position = end
            raise Unreadable(self.position, next_offset, str(error)) from None
        if isinstance(body, NotReady):
            return body
        self._view_position = end
        self.counts.scanned_bytes += len(batch)
        weight = BATCH_WEIGHT + len(batch) + len(body)
        if not body:
            self.position = next_offset
            return weight
        rules = self._rules.filter
        if len(body) <= INLINE_BYTES_MAX and not rules.is_empty and not rules.may_match(body, 0, len(body)):
            self.counts.scanned += header.record_count
            self.position = next_offset
            return weight
        self._batch = _Batch(header, next_offset, body)
        self._heads = record_heads(body, 0, len(body))
        return weight

    def _note_timestamps(self, header: BatchHeader) -> None:
        if self.first_timestamp_ms is None:
            # With a delete horizon, the base timestamp is not that of a record.
            has_base = not header.attributes & DELETE_HORIZON_BIT
            self.first_timestamp_ms = header.base_timestamp if has_base else header.max_timestamp
        if self.last_timestamp_ms is None or header.max_timestamp > self.last_timestamp_ms:
            self.last_timestamp_ms = header.max_timestamp

    def _body(self, header: BatchHeader, batch: memoryview) -> bytes | NotReady:
        """Return the uncompressed records of a batch; b"" if readers must not see them. Raises StorageError."""
        key = header.base_offset, header.crc
        if self._prepared is not None and self._prepared[0] == key:
            prepared = self._prepared[1]
            if isinstance(prepared, StorageError):
                self._prepared = None
                raise prepared
            return prepared
        is_hidden = header.attributes & CONTROL_BIT or (
            self._aborted is not None
            and header.attributes & TRANSACTIONAL_BIT
            and self._aborted.has(header.producer_id, header.base_offset)
        )
        if is_hidden or not header.record_count:
            return b""
        if len(batch) <= (INLINE_COMPRESSED_BYTES_MAX if header.compression else INLINE_BYTES_MAX):
            with suppress(BudgetExceeded):
                budget_bytes = INLINE_DECOMPRESSED_BYTES_MAX if header.compression else INLINE_BYTES_MAX
                return _checked_body(header, batch, budget_bytes)
        return self._log.in_thread(partial(self._prepare, key, header, batch))

    def _prepare(self, key: tuple[int, int], header: BatchHeader, batch: memoryview) -> None:
        """Decompress a batch. Called in a thread, while the cursor waits."""
        try:
            self._prepared = key, _checked_body(header, batch, DECOMPRESSED_BYTES_MAX)
        except StorageError as error:
            self._prepared = key, error

    # --- records

    def _read_batch(self, batch: _Batch, found: list[FoundRecord], count_max: int, weight_max: int) -> int:
        """Read records of the batch until it ends, or `found` is full, or the weight is used up. Returns the weight."""
        header, body, rules, upto = batch.header, batch.body, self._rules.filter, self.upto
        first, counts = self.position, self.counts
        append_ms = header.max_timestamp if header.timestamp_type else None
        is_empty, has_path = rules.is_empty, rules.path is not None
        weight = 0
        for _, end, timestamp, delta, start in self._heads:
            weight += HEAD_WEIGHT
            offset = header.base_offset + ((delta >> 1) ^ -(delta & 1))
            if offset < first:
                continue
            if offset >= upto:
                self.position = upto
                self._batch = None
                return weight
            self.position = offset + 1
            counts.scanned += 1
            if is_empty or rules.may_match(body, start, end):
                weight += RECORD_WEIGHT + end - start
                fields = record_fields(body, start, end)
                if has_path and fields[1] is not None:
                    if len(fields[1]) > DECODED_BYTES_MAX:
                        counts.unsearched += 1
                    else:
                        weight += len(fields[1]) * JSON_BYTE_WEIGHT
                if is_empty or rules.passes(*fields):
                    timestamp_ms = append_ms
                    if timestamp_ms is None:
                        timestamp_ms = header.base_timestamp + ((timestamp >> 1) ^ -(timestamp & 1))
                    found.append(
                        found_record(
                            self._log.partition, offset, timestamp_ms, header.attributes, fields, self._rules.limits
                        )
                    )
                    if len(found) >= count_max:
                        return weight
            if weight >= weight_max:
                return weight
        self._batch = None
        self._prepared = None
        self.position = max(self.position, batch.next_offset)
        return weight

    def _skip_unreadable(self, to_offset: int, reason: str) -> None:
        gap = UnreadableRange(self._log.partition, self.position, min(to_offset, self.upto), reason)
        if len(self.counts.gaps) < GAPS_MAX:
            self.counts.gaps.append(gap)
        self.position = max(self.position + 1, min(to_offset, self.upto))
        self._prepared = None
        self.release()


def _checked_body(header: BatchHeader, batch: memoryview, budget_bytes: int) -> bytes:
    if not is_intact(batch):
        raise CorruptBatch("the CRC does not match the bytes")
    return decompress_records(batch, header, budget_bytes)
