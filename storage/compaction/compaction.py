"""Compaction of one log: keeps the last record of each key.

:func:`compact` changes no file of the log. It reads sealed segments and writes new ones next to them. Afterwards the
log replaces the old segments by the new ones. A compaction runs in a separate process and makes three passes:

1. It reads the headers of the dirty part (from ``clean_upto`` on), to find the outcomes of its transactions.
2. It reads the keys of that part, to map each key to its last offset, until the memory for keys is used up.
3. It reads the whole log, to keep the records for which the map has no later record of the same key.

Kafka's rules:

- A tombstone is kept until ``delete_retention_ms`` after the first compaction in which it was the last record of its
  key. That time, the delete horizon, is stored in its batch: bit 6 of the attributes is set, and the base timestamp is
  the horizon.
- A transaction marker gets a delete horizon in the same way, once no data batch of the transaction is left.
- Records of aborted transactions are removed at once. The transaction's entry in the transaction index, which makes
  readers skip its records, is removed with them.
- Records without a key are removed, too: Kafka does not accept them on a compacted topic.
- The last batch of a known producer is kept, if necessary without records. The last batch of every new segment is kept
  in the same way, so that each offset up to the next segment is covered by a batch.
- Offsets, sequences and epochs never change.

A batch with a wrong CRC ends the compaction with :class:`DamagedLog`. If the CRC is valid but the records cannot be
read, a client wrote the batch that way. Such a batch is kept unchanged and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from storage.batch.markers import control_type_of
from storage.batch.record_batch import is_intact
from storage.compaction.cleaned_batch import CleanedBatch, clean_control, clean_data, empty_batch, uncompressed_records
from storage.compaction.cleaned_segment import CleanedSegment, remove_new_files
from storage.compaction.key_map import KeyMap, with_capacity
from storage.compaction.record_selection import put_keys
from storage.disk.files import Files
from storage.errors import BudgetExceeded, CorruptBatch, disk_errors
from storage.log.producers import ProducerStates
from storage.log.segment_replacement import NewSegment
from storage.log.transaction_outcomes import TransactionOutcomes
from storage.segment.read_only_copy import sealed_segment
from storage.segment.sealed_scan import SealedSegment, SegmentFile, StoredBatch, Throttle
from storage.segment.txn_index import AbortedEntry, find_aborted

# The largest offset in an index entry, relative to the segment's base offset.
RELATIVE_OFFSET_MAX: Final = 0x7FFFFFFF
# At most this many segments are merged into one, because all of them are open while they are replaced.
GROUP_SEGMENTS_MAX: Final = 64


class CompactionJob(Struct, frozen=True):
    """The input of a compaction.

    ``segments`` are sealed, undamaged, adjacent segments, and the first one is the log's first segment. ``producers``
    are the known producers, from :meth:`ProducerStates.encode`. Offsets at or above ``uncleanable_offset`` are not
    changed.
    """

    directory: str
    segments: tuple[SealedSegment, ...]
    clean_upto: int
    uncleanable_offset: int
    producers: bytes
    now_ms: int
    delete_retention_ms: int
    keys_bytes_max: int
    segment_bytes: int
    index_interval_bytes: int


class SegmentGroup(Struct, frozen=True):
    """Adjacent segments of the log and the new segment that replaces them.

    The log replaces one group at a time, in order. After each group the log is compacted up to ``clean_upto``.
    """

    removed: tuple[SealedSegment, ...]
    added: NewSegment
    clean_upto: int


class CompactionResult(Struct):
    """The result of a compaction. No groups and the old ``clean_upto`` mean that nothing could be compacted."""

    clean_upto: int
    groups: list[SegmentGroup] = field(default_factory=list)
    read_bytes: int = 0
    written_bytes: int = 0
    record_count: int = 0
    kept_record_count: int = 0
    key_count: int = 0
    keyless_count: int = 0
    unreadable_batch_count: int = 0


def compact(job: CompactionJob, throttle: Throttle | None = None, files: Files | None = None) -> CompactionResult:
    """Write the new segments, synced, and return them. Raises :class:`DamagedLog` or :class:`DiskFailure`."""
    with disk_errors(f"compact {job.directory}"):
        return _Compaction(job, throttle or _no_throttle, files or Files()).run()


def _no_throttle(size_bytes: int) -> None:
    pass


class _Compaction:
    def __init__(self, job: CompactionJob, throttle: Throttle, files: Files) -> None:
        self._job = job
        self._files = files
        self._throttle = throttle
        self._outcomes = TransactionOutcomes()
        self._producers = ProducerStates.decode(job.producers)
        self._result = CompactionResult(job.clean_upto)
        self._offsets: KeyMap = {}
        # In the third pass: producers with transactional batches since their last marker.
        self._unmarked: set[int] = set()

    def run(self) -> CompactionResult:
        result = self._result
        end = self._map_keys(self._scan_transactions())
        result.key_count = len(self._offsets)
        if end > self._job.clean_upto:
            self._rewrite(end)
            result.clean_upto = end
        return result

    # --- the first pass

    def _scan_transactions(self) -> int:
        """Scan the headers of the dirty part. Returns the first offset that must not be changed."""
        job, outcomes = self._job, self._outcomes
        range_end = min(job.uncleanable_offset, job.segments[-1].next_offset if job.segments else 0)
        for file in self._dirty_files():
            for position, header in file.headers():
                if header.last_offset < job.clean_upto:
                    continue
                if header.last_offset >= range_end or outcomes.is_full:
                    range_end = min(range_end, header.base_offset)
                    break
                marker = control_type_of(file.read(position, header.size_bytes)) if header.is_control else None
                outcomes.add(header, marker)
        first_open = outcomes.first_open_offset
        return range_end if first_open is None else min(range_end, first_open)

    def _dirty_files(self) -> Iterator[SegmentFile]:
        for segment in self._job.segments:
            if segment.next_offset > self._job.clean_upto:
                with SegmentFile(self._job.directory, segment, self._files) as file:
                    yield file

    # --- the second pass

    def _map_keys(self, range_end: int) -> int:
        """Fill the key map. Returns the offset up to which the map is complete."""
        job = self._job
        end = job.clean_upto
        for file in self._dirty_files():
            for batch in file.batches(self._count_read):
                header = batch.header
                if header.last_offset < job.clean_upto:
                    continue
                if header.base_offset >= range_end:
                    return end
                if not header.is_control and header.record_count and not self._outcomes.is_aborted(header):
                    try:
                        body, start, stop = uncompressed_records(batch)
                        offsets = with_capacity(self._offsets, header.record_count, job.keys_bytes_max)
                        if offsets is None:
                            return end
                        self._offsets = offsets
                        put_keys(body, start, stop, header, offsets)
                    except (CorruptBatch, BudgetExceeded):
                        self._check_crc(file, batch)
                end = header.last_offset + 1
        return range_end

    # --- the third pass

    def _rewrite(self, end: int) -> None:
        job, groups = self._job, self._result.groups
        out: CleanedSegment | None = None
        sources: list[SealedSegment] = []
        removed_last: CleanedBatch | None = None
        try:
            for segment in job.segments:
                if segment.base_offset >= end:
                    break
                if out is not None and (len(sources) >= GROUP_SEGMENTS_MAX or not self._fits(out, segment)):
                    groups.append(self._finish(out, sources, removed_last, end))
                    out, sources, removed_last = None, [], None
                if out is None:
                    out = CleanedSegment(job.directory, segment.base_offset, job.index_interval_bytes, self._files)
                sources.append(segment)
                removed_last = self._clean_into(out, segment, end)
            if out is not None:
                groups.append(self._finish(out, sources, removed_last, end))
            self._files.fsync_dir(job.directory)
        except BaseException:
            if out is not None:
                out.close()
            for source in job.segments:
                remove_new_files(job.directory, source.base_offset, self._files)
            raise

    def _fits(self, out: CleanedSegment, segment: SealedSegment) -> bool:
        return (
            out.size_bytes + segment.size_bytes <= self._job.segment_bytes
            and segment.next_offset - 1 - out.base_offset <= RELATIVE_OFFSET_MAX
        )

    def _finish(
        self, out: CleanedSegment, sources: list[SealedSegment], removed_last: CleanedBatch | None, end: int
    ) -> SegmentGroup:
        if removed_last is not None:
            # The last batch was removed. An empty batch in its place keeps every offset of the segment covered.
            out.add(removed_last.data, removed_last.base_offset, removed_last.max_timestamp)
        self._result.written_bytes += out.size_bytes
        next_offset = sources[-1].next_offset
        clean_upto = max(min(next_offset, end), self._job.clean_upto)
        aborted = tuple(self._aborted_after(sources[-1], end)) if next_offset > end else ()
        return SegmentGroup(tuple(sources), out.finish(next_offset, aborted), clean_upto)

    def _aborted_after(self, segment: SealedSegment, end: int) -> list[AbortedEntry]:
        """The aborted transactions of ``segment`` whose marker is at or after ``end``, where nothing was compacted.

        Of all other aborted transactions at most the marker is left, so readers have no records to skip. An index entry
        whose marker is gone would be harmful: readers would skip records that the same producer wrote later.
        """
        job = self._job
        before = [one for one in job.segments if one.base_offset <= segment.base_offset]
        opened = [sealed_segment(job.directory, *one, self._files, job.index_interval_bytes) for one in before]
        try:
            if not self._files.exists(opened[-1].txn_index_path):
                return []
            entries = opened[-1].read_aborted()
            if entries is None:
                entries = find_aborted(opened)
            return [entry for entry in entries if entry.last_offset >= end]
        finally:
            for one in opened:
                one.close()

    def _clean_into(self, out: CleanedSegment, segment: SealedSegment, end: int) -> CleanedBatch | None:
        """Write the cleaned batches of ``segment`` to ``out``.

        If the last batch was removed, returns that batch without its records.
        """
        result = self._result
        removed_last: CleanedBatch | None = None
        size_before = out.size_bytes
        with SegmentFile(self._job.directory, segment, self._files) as file:
            for batch in file.batches(self._count_read):
                self._check_crc(file, batch)
                header = batch.header
                result.record_count += max(header.record_count, 0)
                cleaned = self._clean(batch) if header.last_offset < end else CleanedBatch.unchanged(batch)
                if cleaned is None:
                    removed_last = empty_batch(batch)
                    continue
                removed_last = None
                result.kept_record_count += cleaned.record_count
                out.add(cleaned.data, cleaned.base_offset, cleaned.max_timestamp)
        self._throttle(out.size_bytes - size_before)
        return removed_last

    def _clean(self, batch: StoredBatch) -> CleanedBatch | None:
        """The cleaned batch; None if the batch is removed."""
        header, job, result = batch.header, self._job, self._result
        if header.is_control:
            marker = control_type_of(batch.chunk[batch.start : batch.end])
            has_no_data = header.producer_id not in self._unmarked
            self._unmarked.discard(header.producer_id)
            cleaned = clean_control(batch, marker, has_no_data, job.now_ms, job.delete_retention_ms)
        else:
            if header.is_transactional:
                self._unmarked.add(header.producer_id)
            if not header.record_count or self._outcomes.is_aborted(header):
                cleaned = None
            else:
                try:
                    cleaned, keyless_count = clean_data(batch, self._offsets, job.now_ms, job.delete_retention_ms)
                    result.keyless_count += keyless_count
                except (CorruptBatch, BudgetExceeded):
                    result.unreadable_batch_count += 1
                    cleaned = CleanedBatch.unchanged(batch)
        if cleaned is None and self._is_last_of_producer(batch):
            return empty_batch(batch)
        return cleaned

    def _is_last_of_producer(self, batch: StoredBatch) -> bool:
        """Whether this batch holds the last sequence or epoch of a known producer."""
        header = batch.header
        state = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if state is None:
            return False
        if state.batches:
            return state.batches[-1].last_offset == header.last_offset
        return header.is_control and header.producer_epoch == state.epoch

    # --- shared

    def _count_read(self, size_bytes: int) -> None:
        self._result.read_bytes += size_bytes
        self._throttle(size_bytes)

    def _check_crc(self, file: SegmentFile, batch: StoredBatch) -> None:
        if not is_intact(memoryview(batch.chunk)[batch.start : batch.end]):
            raise file.damage(batch.position, f"the batch of offset {batch.header.base_offset} has a wrong CRC")
