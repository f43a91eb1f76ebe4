"""Truncation of a log: writes the remaining part of a segment as a new file and restores earlier producer states.

A file is not truncated in place: readers may hold slices of the removed bytes, and reading such a slice would cause a
fatal signal.

This is for logs in use. A torn tail after a crash is removed by `crash_recovery.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Set
from typing import Final

from storage.batch.format import HEADER_BYTES, NO_TIMESTAMP
from storage.batch.markers import Marker, read_marker
from storage.batch.record_batch import BatchHeader, parse_header
from storage.disk.files import Files
from storage.log.producers import WINDOW_BATCHES, ProducerState, ProducerStates
from storage.log.segment_replacement import NewSegment, new_index_path, new_log_path
from storage.segment.index import NO_MAX_TIMESTAMP, SparseIndex
from storage.segment.segment import LogSegment

_COPY_BYTES: Final = 1024 * 1024


def write_prefix(segment: LogSegment, position: int, next_offset: int, directory: str, files: Files) -> NewSegment:
    """Write the segment up to ``position``, where a batch ends, as synced ``.new`` files. Raises ``OSError``."""
    index, max_timestamp = index_below(segment, position)
    fd = files.create(new_log_path(directory, segment.base_offset))
    try:
        for start in range(0, position, _COPY_BYTES):
            files.write_all(fd, segment.view(start, min(start + _COPY_BYTES, position)), start)
        files.fsync(fd)
    finally:
        files.close(fd)
    fd = files.create(new_index_path(directory, segment.base_offset))
    try:
        files.write_all(fd, index.encode() + index.encode_seal(position, max_timestamp), 0)
        files.fsync(fd)
    finally:
        files.close(fd)
    index.written_count = len(index)
    first_timestamp = max(parse_header(segment.view(0, HEADER_BYTES)).max_timestamp, NO_TIMESTAMP)
    aborted = tuple(entry for entry in segment.aborted or () if entry.last_offset < next_offset)
    return NewSegment(segment.base_offset, next_offset, position, max_timestamp, first_timestamp, index, aborted)


def index_below(segment: LogSegment, position: int) -> tuple[SparseIndex, int]:
    """The index entries below ``position``, and the largest timestamp of the batches below it."""
    index = SparseIndex.decode(segment.base_offset, segment.index.encode())
    index.truncate(position)
    # An entry has the max timestamp of the batches before it. The batches after the last entry are read here.
    max_timestamp = index.timestamps[-1] if len(index) else NO_MAX_TIMESTAMP
    for start, end in segment.batches(index.last_position):
        if start >= position:
            break
        max_timestamp = max(max_timestamp, parse_header(segment.view(start, end)).max_timestamp)
    return index, max_timestamp


def end_of_emptied(segments: Sequence[LogSegment], end_offset: int) -> tuple[LogSegment | None, int, int]:
    """(segment, offset, position) for the checkpoint of a log that is about to lose all of its segments.

    The checkpoint covers only batches entirely below ``end_offset``. If the truncation fails, the file that contains
    ``end_offset`` stays in the log. A checkpoint that ended at ``end_offset`` itself would not describe that file.
    """
    for segment in reversed(segments):
        if segment.base_offset <= end_offset:
            position, below_offset = segment.end_below(end_offset)
            return segment, below_offset, position
    return None, end_offset, 0


class _Trace:
    """The batches of one producer that a backward search has found."""

    __slots__ = ("first_unended", "headers", "is_ended", "marker")

    def __init__(self) -> None:
        self.headers: deque[BatchHeader] = deque(maxlen=WINDOW_BATCHES)
        self.marker: tuple[BatchHeader, Marker | None] | None = None
        # The first offset found of a transaction without a marker, and whether the transaction certainly begins there.
        self.first_unended: int | None = None
        self.is_ended = False

    def add(self, header: BatchHeader, marker: Marker | None) -> None:
        """Add the producer's next batch of a segment."""
        if header.is_control:
            self.marker = header, marker
            if marker is not None:
                self.first_unended, self.is_ended = None, True
            return
        self.headers.append(header)
        if not header.is_transactional:
            self.first_unended, self.is_ended = None, True
        elif self.first_unended is None and header.record_count > 0:
            self.first_unended = header.base_offset

    def add_earlier(self, earlier: _Trace) -> None:
        """Add the batches that were found in an earlier segment."""
        self.headers = self.headers or earlier.headers
        self.marker = self.marker or earlier.marker
        if not self.is_ended:
            self.is_ended = earlier.is_ended
            if earlier.first_unended is not None:
                self.first_unended = earlier.first_unended

    def record(self, states: ProducerStates) -> None:
        batches: list[tuple[BatchHeader, Marker | None]] = [(header, None) for header in self.headers]
        if self.marker is not None:
            batches.append(self.marker)
        for header, marker in sorted(batches, key=lambda batch: batch[0].base_offset):
            facts = header.base_offset, _append_time_ms(header), header.max_timestamp
            if marker is not None:
                states.record_marker(header, marker, *facts)
            else:
                states.record(header, *facts)


def producers_below(
    producers: ProducerStates, end_offset: int, segments: Sequence[LogSegment], *, is_emptied: bool = False
) -> ProducerStates:
    """The producer states as of ``end_offset``, which is in or after the last of ``segments``.

    ``is_emptied``: all segments of the log are removed.

    All segments are searched for a producer that has no remaining batches or whose last marker was removed, and for the
    first offset of a transaction that is open again. If only some of a producer's five batches are left, earlier ones
    are read from the last segment only: a client never repeats batches that are older.
    """
    states = ProducerStates.decode(producers.encode())
    states.truncate(end_offset)
    # Producers to search for, and whether a transaction of theirs may be open again.
    gone: dict[int, bool] = {}
    short: set[int] = set()
    for producer_id, before in producers.items():
        after = states.get(producer_id)
        has_lost_marker = before.marker_offset >= end_offset
        if after is None:
            if before.marker_offset >= 0 or _may_have_earlier(before):
                gone[producer_id] = has_lost_marker
        elif len(after.batches) < len(before.batches) == WINDOW_BATCHES:
            short.add(producer_id)
    # Read these before the calls of record below, which set other first offsets of transactions.
    known, undecided = states.open_first_offsets, states.undecided
    first_offsets: dict[int, int | None] = {producer_id: known.get(producer_id) for producer_id in gone}
    traces: dict[int, _Trace] = {}
    for segment in reversed(segments):
        if not gone and not short:
            break
        for producer_id, found in _traces(segment, end_offset, gone.keys() | short).items():
            if producer_id in short:
                states.add_earlier_batches(found.headers)
                continue
            trace = traces.setdefault(producer_id, _Trace())
            trace.add_earlier(found)
            if trace.headers and (trace.is_ended or not gone[producer_id]):
                del gone[producer_id]
        short.clear()
    for producer_id, trace in traces.items():
        trace.record(states)
        known_before, found_now = producers.get(producer_id), states.get(producer_id)
        assert known_before is not None
        assert found_now is not None
        if known_before.marker_offset >= end_offset:
            first_offsets[producer_id] = trace.first_unended
        else:
            found_now.coordinator_epoch = known_before.coordinator_epoch
            found_now.marker_offset = known_before.marker_offset
    states.restore_transactions(first_offsets, undecided)
    if is_emptied or not segments:
        # No record of any transaction is left, so readers have nothing to wait for.
        states.restore_transactions(dict.fromkeys(states.open_first_offsets), undecided)
    return states


def _traces(segment: LogSegment, end_offset: int, wanted: Set[int]) -> dict[int, _Trace]:
    """The batches of these producers in a segment, below ``end_offset``."""
    found: dict[int, _Trace] = {}
    for start, end in segment.batches():
        header = parse_header(segment.view(start, start + HEADER_BYTES))
        if header.last_offset >= end_offset:
            break
        if header.producer_id in wanted:
            marker = read_marker(segment.view(start, end)) if header.is_control else None
            found.setdefault(header.producer_id, _Trace()).add(header, marker)
    return found


def _append_time_ms(header: BatchHeader) -> int:
    return header.max_timestamp if header.timestamp_type else NO_TIMESTAMP


def _may_have_earlier(state: ProducerState) -> bool:
    """Whether the log may have earlier batches of the producer than the state has."""
    if not state.batches:
        return False
    return state.batches[0].base_sequence > 0 or state.epoch > 0
