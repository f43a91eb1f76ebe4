"""Where the last events of a log begin, when some offsets never had an event.

Every transaction leaves a marker, and an aborted one its records too. A reader that asks for the last event would get
nothing if the marker after it counted. What compaction has removed does count: those were events once.
"""

import asyncio

from kwire.broker.events.aborted import AbortedBatches
from kwire.broker.events.reading import VIEW_BYTES
from kwire.errors import OffsetOutOfRange
from kwire.streams.log import NotReady, StreamLog, StreamRead, Unreadable
from storage.batch import parse_header
from storage.format import CONTROL_BIT, LENGTH_OVERHEAD, MIN_BATCH_LENGTH, TRANSACTIONAL_BIT

# A reader that asks for more events, or whose search passed more offsets, gets the rest counted in offsets alone.
COUNTED_EVENTS_MAX = 10_000
COUNTED_OFFSETS_MAX = 100_000


async def offset_of_last(log: StreamLog, count: int) -> int:
    """Where the last `count` events begin; the oldest offset if there are fewer. Raises KafkaError."""
    end, width, left = log.bounds().committed_end, count, count
    looked_at = 0 if count <= COUNTED_EVENTS_MAX else COUNTED_OFFSETS_MAX
    while end - left > log.bounds().start and looked_at < COUNTED_OFFSETS_MAX:
        start = max(end - width, log.bounds().start)
        behind = end
        for first, last in reversed(await _ranges_without_events(log, start, end)):
            if behind - 1 - last >= left:
                return behind - left
            left -= behind - 1 - last
            behind = first
        if behind - start >= left:
            return behind - left
        left -= behind - start
        looked_at += end - start
        end, width = start, 2 * width
    return max(end - left, log.bounds().start)


async def _ranges_without_events(log: StreamLog, start: int, end: int) -> list[tuple[int, int]]:
    """The first and last offsets of batches without events, in order; yields to the event loop between reads."""
    found: list[tuple[int, int]] = []
    while start < end:
        try:
            read = await _read(log, start)
        except Unreadable as damage:
            start = damage.to_offset
            continue
        except OffsetOutOfRange:
            break  # retention was faster: the reader that begins there gets the error
        for first, last in _without_events(read):
            if last >= start and first < end:
                found.append((max(first, start), min(last, end - 1)))
        if read.next_offset <= start:  # nothing more can be read before the end
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
    left_out = AbortedBatches(read.aborted)
    found = []
    while position < size:
        header = parse_header(view, position)
        position += header.batch_length + LENGTH_OVERHEAD
        if header.batch_length < MIN_BATCH_LENGTH or position > size:
            break  # damaged, which is reported by the read that takes events from it
        is_aborted = header.attributes & TRANSACTIONAL_BIT and left_out.has(header.producer_id, header.base_offset)
        if header.attributes & CONTROL_BIT or is_aborted:
            found.append((header.base_offset, header.last_offset))
    return found
