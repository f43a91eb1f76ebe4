"""What is left when the end of a log goes: the beginning of a segment, and what producers had written before.

The file that is cut in the middle is not cut in place: readers may hold slices of the bytes that go, and reading them
would be a fatal signal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Set
from typing import Final

from storage.batch import BatchHeader, parse_header
from storage.files import Files
from storage.format import HEADER_BYTES, NO_TIMESTAMP
from storage.index import NO_MAX_TIMESTAMP, SparseIndex
from storage.markers import Marker, read_marker
from storage.producers import WINDOW_BATCHES, ProducerState, ProducerStates
from storage.replacement import NewSegment, new_index_path, new_log_path
from storage.segment import LogSegment

_COPY_BYTES: Final = 1024 * 1024


def write_beginning(segment: LogSegment, position: int, next_offset: int, directory: str, files: Files) -> NewSegment:
    """Write the bytes below ``position``, where a batch ends, as synced ``.new`` files. Raises ``OSError``."""
    index, max_timestamp = _index_below(segment, position)
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


def _index_below(segment: LogSegment, position: int) -> tuple[SparseIndex, int]:
    """The index entries below ``position`` and the largest timestamp there."""
    index = SparseIndex.decode(segment.base_offset, segment.index.encode())
    index.cut(position)
    # An entry knows what is before it; the batches behind the last one are looked at.
    max_timestamp = index.timestamps[-1] if len(index) else NO_MAX_TIMESTAMP
    for start, end in segment.batches(index.last_position):
        if start >= position:
            break
        max_timestamp = max(max_timestamp, parse_header(segment.view(start, end)).max_timestamp)
    return index, max_timestamp


def end_of_emptied(segments: Sequence[LogSegment], end_offset: int) -> tuple[LogSegment | None, int, int]:
    """What the checkpoint says of a log that is about to lose all of its segments: segment, offset and position.

    It tells only of batches that lie wholly below ``end_offset``. One that ended at ``end_offset`` itself would give up
    the file around it, which stays the log if the cut fails.
    """
    for segment in reversed(segments):
        if segment.base_offset <= end_offset:
            position, below_offset = segment.end_below(end_offset)
            return segment, below_offset, position
    return None, end_offset, 0


class _Trace:
    """What was found of one producer, looking back from the end."""

    __slots__ = ("first_unended", "headers", "is_ended", "marker")

    def __init__(self) -> None:
        self.headers: deque[BatchHeader] = deque(maxlen=WINDOW_BATCHES)
        self.marker: tuple[BatchHeader, Marker | None] | None = None
        # Where a transaction begins whose end was not met, and whether it cannot begin still earlier.
        self.first_unended: int | None = None
        self.is_ended = False

    def add(self, header: BatchHeader, marker: Marker | None) -> None:
        """The next batch of the producer."""
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

    def put_before(self, earlier: _Trace) -> None:
        """Take what an earlier segment says, too."""
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
    """The states as they were when the log ended at ``end_offset``, in or behind the last of ``segments``.

    ``is_emptied``: all of its segments go.

    A producer of whom nothing is left, or whose last marker went, is looked for in all segments, and so is the
    beginning of a transaction that is open again. Where only part of a full window is left, what was in it before is
    taken from the last segment: that is as far as a client ever repeats itself.
    """
    states = ProducerStates.decode(producers.encode())
    states.truncate(end_offset)
    # Producers to be looked for, and whether a transaction of theirs may be open again.
    gone: dict[int, bool] = {}
    short: set[int] = set()
    for producer_id, before in producers.items():
        after = states.get(producer_id)
        has_lost_marker = before.marker_offset >= end_offset
        if after is None:
            if before.marker_offset >= 0 or _had_more(before):
                gone[producer_id] = has_lost_marker
        elif len(after.batches) < len(before.batches) == WINDOW_BATCHES:
            short.add(producer_id)
    # Known by what was there before; what is recorded below says nothing of where transactions begin.
    known, undecided = states.open_first_offsets, states.undecided
    first_offsets: dict[int, int | None] = {producer_id: known.get(producer_id) for producer_id in gone}
    traces: dict[int, _Trace] = {}
    for segment in reversed(segments):
        if not gone and not short:
            break
        for producer_id, found in _traces(segment, end_offset, gone.keys() | short).items():
            if producer_id in short:
                states.remember_earlier(found.headers)
                continue
            trace = traces.setdefault(producer_id, _Trace())
            trace.put_before(found)
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
    states.restore_open(first_offsets, undecided)
    if is_emptied or not segments:
        # Of no transaction is there anything left that a reader would have to wait for.
        states.restore_open(dict.fromkeys(states.open_first_offsets), undecided)
    return states


def _traces(segment: LogSegment, end_offset: int, wanted: Set[int]) -> dict[int, _Trace]:
    """What a segment has of each of these producers."""
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


def _had_more(state: ProducerState) -> bool:
    """Whether there may be batches before those that the state knows."""
    if not state.batches:
        return False
    return state.batches[0].base_sequence > 0 or state.epoch > 0
