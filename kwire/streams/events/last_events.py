"""`offset_of_last`: finds the offset of the Nth last event of a log in which some offsets have no event.

Each transaction leaves a marker in the log, and an aborted transaction also leaves its records. If these were counted
as events, a reader that requests the last event might get none. Records that compaction has removed are counted,
because they were events.
"""

import asyncio

from kwire.errors import OffsetOutOfRange
from kwire.streams.events.aborted_batches import AbortedBatches
from kwire.streams.events.reading import VIEW_BYTES
from kwire.streams.log import NotReady, StreamLog, StreamRead, Unreadable
from storage.batch.format import CONTROL_BIT, LENGTH_OVERHEAD, MIN_BATCH_LENGTH, TRANSACTIONAL_BIT
from storage.batch.record_batch import parse_header

# If more than COUNTED_EVENTS_MAX events are requested, or after COUNTED_OFFSETS_MAX offsets were searched, each
# remaining offset is counted as an event, even if it belongs to a marker.
COUNTED_EVENTS_MAX = 10_000
COUNTED_OFFSETS_MAX = 100_000


async def offset_of_last(log: StreamLog, count: int) -> int:
    """Return the offset of the first of the last `count` events. Raises KafkaError.

    Returns the oldest offset if there are fewer events.
    """
    end, width, left = log.bounds().committed_end, count, count
    searched = 0 if count <= COUNTED_EVENTS_MAX else COUNTED_OFFSETS_MAX
    while end - left > log.bounds().start and searched < COUNTED_OFFSETS_MAX:
        start = max(end - width, log.bounds().start)
        upper = end
        for first, last in reversed(await _ranges_without_events(log, start, end)):
            if upper - 1 - last >= left:
                return upper - left
            left -= upper - 1 - last
            upper = first
        if upper - start >= left:
            return upper - left
        left -= upper - start
        searched += end - start
        end, width = start, 2 * width
    return max(end - left, log.bounds().start)


async def _ranges_without_events(log: StreamLog, start: int, end: int) -> list[tuple[int, int]]:
    """Return the first and last offsets of batches without events, in order. Yields to the loop between reads."""
    found: list[tuple[int, int]] = []
    while start < end:
        try:
            read = await _read(log, start)
        except Unreadable as damage:
            start = damage.to_offset
            continue
        except OffsetOutOfRange:
            break  # deleted by retention meanwhile: a reader that starts at the result gets the error
        for first, last in _without_events(read):
            if last >= start and first < end:
                found.append((max(first, start), min(last, end - 1)))
        if read.next_offset <= start:  # nothing more can be read before `end`
            break
        start = read.next_offset
        await asyncio.sleep(0)
    return found


async def _read(log: StreamLog, offset: int) -> StreamRead:
    waits = 0
    while isinstance(read := log.read(offset, VIEW_BYTES, waits), NotReady):
        await read.wait()
        waits += 1
    return read


def _without_events(read: StreamRead) -> list[tuple[int, int]]:
    view, position, size = read.records, 0, len(read.records)
    aborted = AbortedBatches(read.aborted)
    found = []
    while position < size:
        header = parse_header(view, position)
        position += header.batch_length + LENGTH_OVERHEAD
        if header.batch_length < MIN_BATCH_LENGTH or position > size:
            break  # damaged: the read that decodes the events reports the damage
        is_aborted = header.attributes & TRANSACTIONAL_BIT and aborted.has(header.producer_id, header.base_offset)
        if header.attributes & CONTROL_BIT or is_aborted:
            found.append((header.base_offset, header.last_offset))
    return found
