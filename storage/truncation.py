"""What is left when the end of a log goes: the beginning of a segment, and what producers had written before.

The file that is cut in the middle is not cut in place: readers may hold slices of the bytes that go, and reading them
would be a fatal signal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from storage.batch import BatchHeader, parse_header
from storage.files import Files
from storage.format import HEADER_BYTES, NO_TIMESTAMP
from storage.index import NO_MAX_TIMESTAMP, SparseIndex
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
    return NewSegment(segment.base_offset, next_offset, position, max_timestamp, first_timestamp, index)


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


def producers_below(producers: ProducerStates, end_offset: int, segments: Sequence[LogSegment]) -> ProducerStates:
    """The states as they were when the log ended at ``end_offset``, in or behind the last of ``segments``.

    A producer of whom nothing is left is looked for in all segments. Where only part of a full window is left, what
    was in it before is taken from the last segment: that is as far as a client ever repeats itself.
    """
    states = ProducerStates.decode(producers.encode())
    states.truncate(end_offset)
    gone: set[int] = set()
    short: set[int] = set()
    for producer_id in producers.ids:
        before, after = producers.get(producer_id), states.get(producer_id)
        if after is None:
            if _had_more(before):
                gone.add(producer_id)
        elif before is not None and len(after.batches) < len(before.batches) == WINDOW_BATCHES:
            short.add(producer_id)
    for segment in reversed(segments):
        if not gone and not short:
            break
        found = _last_batches(segment, end_offset, gone | short)
        for producer_id, headers in found.items():
            if producer_id in short:
                states.remember_earlier(headers)
                continue
            for header in headers:
                states.record(header, header.base_offset, _append_time_ms(header), header.max_timestamp)
        gone.difference_update(found)
        short.clear()
    return states


def _last_batches(segment: LogSegment, end_offset: int, wanted: set[int]) -> dict[int, deque[BatchHeader]]:
    """The last few batches of each of these producers in a segment."""
    found: dict[int, deque[BatchHeader]] = {}
    for start, _ in segment.batches():
        header = parse_header(segment.view(start, start + HEADER_BYTES))
        if header.base_offset >= end_offset:
            break
        if header.producer_id in wanted:
            found.setdefault(header.producer_id, deque(maxlen=WINDOW_BATCHES)).append(header)
    return found


def _append_time_ms(header: BatchHeader) -> int:
    return header.max_timestamp if header.timestamp_type else NO_TIMESTAMP


def _had_more(state: ProducerState | None) -> bool:
    """Whether there may be batches before those that the state knows."""
    if state is None or not state.batches:
        return False
    return state.batches[0].base_sequence > 0 or state.epoch > 0
