"""Compaction of one log: of each key only the last record stays.

:func:`compact` works on files only and changes none of the log's: it reads sealed segments and writes new ones beside
them, which the log swaps in afterwards. It is meant to run in a process of its own. Three walks:

1. over the headers of the part that was not compacted yet (from ``clean_upto`` on): how did its transactions end?
2. over the keys of that part: the last offset of each, until the memory for keys is used up;
3. over everything from the log's start: a record stays if the map knows no later one of its key.

Kafka's rules: a tombstone stays until ``delete_retention_ms`` after the first compaction that saw it as the last word
of its key; that moment is written into its batch (bit 6 of the attributes, the base timestamp then is the moment). A
transaction's marker goes the same way once no batch of the transaction is left. Records of aborted transactions go at
once, and with them the entry that told readers to skip them. Records without a key go too: Kafka does not accept them
on such a topic. The last batch of a producer that is still known stays, without records if need be, and so does the
last batch of every new segment, so that each offset up to the next segment is covered by a batch. Offsets, sequences
and epochs never change.

A batch with a wrong CRC stops everything with :class:`DamagedLog`. A batch whose CRC is right but whose records cannot
be read was written that way by a client: it stays as it is and is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from storage.batch import is_intact
from storage.batch_walk import Pace, SealedSegment, SegmentFile, StoredBatch
from storage.cleaned_batch import CleanedBatch, clean_control, clean_data, emptied, unfold
from storage.cleaned_segment import CleanedSegment, discard_new
from storage.copies import sealed_segment
from storage.errors import BudgetExceeded, CorruptBatch, disk_errors
from storage.files import Files
from storage.key_map import KeyMap, with_room
from storage.markers import control_type_of
from storage.producers import ProducerStates
from storage.record_walk import put_keys
from storage.replacement import NewSegment
from storage.transaction_fates import TransactionFates
from storage.txn_index import AbortedEntry, find_aborted

# Offsets in an index entry are relative to the segment's base and end here.
RELATIVE_OFFSET_MAX: Final = 0x7FFFFFFF
# Segments that become one: while they are swapped all of them are open.
GROUP_SEGMENTS_MAX: Final = 64


class CompactionJob(Struct, frozen=True):
    """What to compact. ``segments`` are sealed, whole and without a hole between them, from the log's first one on.

    ``producers`` is what :meth:`ProducerStates.encode` says of the producers that are still known. Nothing at or above
    ``uncleanable_offset`` is touched.
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
    """Some neighbouring segments of the log and the one that may take their place.

    Groups may be swapped one by one, in order: behind each of them the log is compacted up to ``clean_upto``.
    """

    removed: tuple[SealedSegment, ...]
    added: NewSegment
    clean_upto: int


class Compacted(Struct):
    """What came of it. No groups and the old ``clean_upto``: nothing could be done."""

    clean_upto: int
    groups: list[SegmentGroup] = field(default_factory=list)
    read_bytes: int = 0
    written_bytes: int = 0
    record_count: int = 0
    kept_record_count: int = 0
    key_count: int = 0
    keyless_count: int = 0
    unreadable_batch_count: int = 0


def compact(job: CompactionJob, pace: Pace | None = None, files: Files | None = None) -> Compacted:
    """Write the new segments, synced, and say what they are. Raises :class:`DamagedLog` or :class:`DiskFailure`."""
    with disk_errors(f"compact {job.directory}"):
        return _Compaction(job, pace or _at_once, files or Files()).run()


def _at_once(size_bytes: int) -> None:
    pass


class _Compaction:
    def __init__(self, job: CompactionJob, pace: Pace, files: Files) -> None:
        self._job = job
        self._files = files
        self._paced = pace
        self._fates = TransactionFates()
        self._producers = ProducerStates.decode(job.producers)
        self._result = Compacted(job.clean_upto)
        self._offsets: KeyMap = {}
        # Producers of which transactional batches were met since their last marker, in the third walk.
        self._unmarked: set[int] = set()

    def run(self) -> Compacted:
        result = self._result
        end = self._map_keys(self._learn_transactions())
        result.key_count = len(self._offsets)
        if end > self._job.clean_upto:
            self._rewrite(end)
            result.clean_upto = end
        return result

    # --- the first walk

    def _learn_transactions(self) -> int:
        """The first offset that must not be touched."""
        job, fates = self._job, self._fates
        range_end = min(job.uncleanable_offset, job.segments[-1].next_offset if job.segments else 0)
        for file in self._dirty_files():
            for position, header in file.headers():
                if header.last_offset < job.clean_upto:
                    continue
                if header.last_offset >= range_end or fates.is_full:
                    range_end = min(range_end, header.base_offset)
                    break
                marker = control_type_of(file.read(position, header.size_bytes)) if header.is_control else None
                fates.note(header, marker)
        first_open = fates.first_open_offset
        return range_end if first_open is None else min(range_end, first_open)

    def _dirty_files(self) -> Iterator[SegmentFile]:
        for segment in self._job.segments:
            if segment.next_offset > self._job.clean_upto:
                with SegmentFile(self._job.directory, segment, self._files) as file:
                    yield file

    # --- the second walk

    def _map_keys(self, range_end: int) -> int:
        """Fill the map; returns the offset up to which it is complete."""
        job = self._job
        end = job.clean_upto
        for file in self._dirty_files():
            for batch in file.batches(self._pace):
                header = batch.header
                if header.last_offset < job.clean_upto:
                    continue
                if header.base_offset >= range_end:
                    return end
                if not header.is_control and header.record_count and not self._fates.is_aborted(header):
                    try:
                        body, start, stop = unfold(batch)
                        offsets = with_room(self._offsets, header.record_count, job.keys_bytes_max)
                        if offsets is None:
                            return end
                        self._offsets = offsets
                        put_keys(body, start, stop, header, offsets)
                    except (CorruptBatch, BudgetExceeded):
                        self._check_crc(file, batch)
                end = header.last_offset + 1
        return range_end

    # --- the third walk

    def _rewrite(self, end: int) -> None:
        job, groups = self._job, self._result.groups
        out: CleanedSegment | None = None
        sources: list[SealedSegment] = []
        spare: CleanedBatch | None = None
        try:
            for segment in job.segments:
                if segment.base_offset >= end:
                    break
                if out is not None and (len(sources) >= GROUP_SEGMENTS_MAX or not self._fits(out, segment)):
                    groups.append(self._finish(out, sources, spare, end))
                    out, sources, spare = None, [], None
                if out is None:
                    out = CleanedSegment(job.directory, segment.base_offset, job.index_interval_bytes, self._files)
                sources.append(segment)
                spare = self._clean_into(out, segment, end)
            if out is not None:
                groups.append(self._finish(out, sources, spare, end))
            self._files.fsync_dir(job.directory)
        except BaseException:
            if out is not None:
                out.close()
            for source in job.segments:
                discard_new(job.directory, source.base_offset, self._files)
            raise

    def _fits(self, out: CleanedSegment, segment: SealedSegment) -> bool:
        return (
            out.size_bytes + segment.size_bytes <= self._job.segment_bytes
            and segment.next_offset - 1 - out.base_offset <= RELATIVE_OFFSET_MAX
        )

    def _finish(
        self, out: CleanedSegment, sources: list[SealedSegment], spare: CleanedBatch | None, end: int
    ) -> SegmentGroup:
        if spare is not None:
            # The last batch went, so the new segment ends with its shell: no offset is left without a batch.
            out.add(spare.data, spare.base_offset, spare.max_timestamp)
        self._result.written_bytes += out.size_bytes
        next_offset = sources[-1].next_offset
        clean_upto = max(min(next_offset, end), self._job.clean_upto)
        aborted = tuple(self._aborted_behind(sources[-1], end)) if next_offset > end else ()
        return SegmentGroup(tuple(sources), out.finish(next_offset, aborted), clean_upto)

    def _aborted_behind(self, segment: SealedSegment, end: int) -> list[AbortedEntry]:
        """Aborted transactions of a segment whose markers were not touched.

        Of the others nothing is left but the marker, at most: readers have nothing to skip. To tell them of one whose
        marker is gone would be worse, they would skip what the same producer wrote later.
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
        """Returns the shell of the last batch if that batch is gone."""
        result = self._result
        spare: CleanedBatch | None = None
        size_before = out.size_bytes
        with SegmentFile(self._job.directory, segment, self._files) as file:
            for batch in file.batches(self._pace):
                self._check_crc(file, batch)
                header = batch.header
                result.record_count += max(header.record_count, 0)
                cleaned = self._clean(batch) if header.last_offset < end else CleanedBatch.as_it_is(batch)
                if cleaned is None:
                    spare = emptied(batch)
                    continue
                spare = None
                result.kept_record_count += cleaned.record_count
                out.add(cleaned.data, cleaned.base_offset, cleaned.max_timestamp)
        self._paced(out.size_bytes - size_before)
        return spare

    def _clean(self, batch: StoredBatch) -> CleanedBatch | None:
        """What stays of a batch; None when nothing does."""
        header, job, result = batch.header, self._job, self._result
        if header.is_control:
            marker = control_type_of(batch.chunk[batch.start : batch.end])
            is_last_trace = header.producer_id not in self._unmarked
            self._unmarked.discard(header.producer_id)
            cleaned = clean_control(batch, marker, is_last_trace, job.now_ms, job.delete_retention_ms)
        else:
            if header.is_transactional:
                self._unmarked.add(header.producer_id)
            if not header.record_count or self._fates.is_aborted(header):
                cleaned = None
            else:
                try:
                    cleaned, keyless_count = clean_data(batch, self._offsets, job.now_ms, job.delete_retention_ms)
                    result.keyless_count += keyless_count
                except (CorruptBatch, BudgetExceeded):
                    result.unreadable_batch_count += 1
                    cleaned = CleanedBatch.as_it_is(batch)
        if cleaned is None and self._is_last_of_producer(batch):
            return emptied(batch)
        return cleaned

    def _is_last_of_producer(self, batch: StoredBatch) -> bool:
        """Whether what is known of a producer rests on this batch: its last sequence, or its epoch."""
        header = batch.header
        state = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if state is None:
            return False
        if state.batches:
            return state.batches[-1].last_offset == header.last_offset
        return header.is_control and header.producer_epoch == state.epoch

    # --- both

    def _pace(self, size_bytes: int) -> None:
        self._result.read_bytes += size_bytes
        self._paced(size_bytes)

    def _check_crc(self, file: SegmentFile, batch: StoredBatch) -> None:
        if not is_intact(memoryview(batch.chunk)[batch.start : batch.end]):
            raise file.damage(batch.position, f"the batch of offset {batch.header.base_offset} has a wrong CRC")
