"""Where the last events of a partition begin, when some offsets never had an event.

Every transaction leaves a marker, and one that was aborted its records too. Who asks for the last event would get
nothing if the marker behind it counted. What compaction has taken does count: those were events once.
"""

import asyncio

from kwire.broker.cold_reads import ColdReads
from kwire.broker.events.aborted import AbortedBatches
from kwire.broker.events.reading import VIEW_BYTES, WARM_UPS_MAX, newest_offset, oldest_offset
from kwire.broker.partition import Partition, code_of
from kwire.errors import KafkaError
from storage.batch import parse_header
from storage.errors import OffsetOutOfRange, QuarantinedRange, StorageError
from storage.format import CONTROL_BIT, LENGTH_OVERHEAD, MIN_BATCH_LENGTH, TRANSACTIONAL_BIT
from storage.reads import LogRead
from storage.transactions import AbortedTransaction

# Who wants more has them counted in offsets alone, and so does everybody behind so many offsets.
COUNTED_EVENTS_MAX = 10_000
COUNTED_OFFSETS_MAX = 100_000


async def offset_of_last(partition: Partition, count: int, cold_reads: ColdReads) -> int:
    """Where the last `count` events begin; the oldest offset if there are not so many. Raises KafkaError."""
    end, width, left = newest_offset(partition) + 1, count, count
    looked_at = 0 if count <= COUNTED_EVENTS_MAX else COUNTED_OFFSETS_MAX
    while end - left > oldest_offset(partition) and looked_at < COUNTED_OFFSETS_MAX:
        start = max(end - width, oldest_offset(partition))
        behind = end
        for first, last in reversed(await _ranges_without_events(partition, start, end, cold_reads)):
            if behind - 1 - last >= left:
                return behind - left
            left -= behind - 1 - last
            behind = first
        if behind - start >= left:
            return behind - left
        left -= behind - start
        looked_at += end - start
        end, width = start, 2 * width
    return max(end - left, oldest_offset(partition))


async def _ranges_without_events(
    partition: Partition, start: int, end: int, cold_reads: ColdReads
) -> list[tuple[int, int]]:
    """The first and last offsets of batches that are no events, in order; others get their turn meanwhile."""
    found: list[tuple[int, int]] = []
    try:
        while start < end:
            try:
                read, aborted = await _look(partition, start, cold_reads)
            except QuarantinedRange as damage:
                start = damage.end_offset
                continue
            for first, last in _without_events(read, aborted):
                if last >= start and first < end:
                    found.append((max(first, start), min(last, end - 1)))
            if read.next_offset <= start:  # damage is all that lies before the end
                break
            start = read.next_offset
            await asyncio.sleep(0)
    except OffsetOutOfRange:
        pass  # retention was faster: whoever reads from there is told
    except StorageError as error:
        raise KafkaError(code_of(error), str(error)) from error
    return found


async def _look(partition: Partition, offset: int, cold_reads: ColdReads) -> tuple[LogRead, list[AbortedTransaction]]:
    for _ in range(WARM_UPS_MAX):
        warm_up = partition.cold_start(offset) or partition.cold_aborted(offset)
        if warm_up is None:
            read, aborted = partition.read_committed(offset, VIEW_BYTES)
            if read.is_warm():
                return read, aborted
            warm_up = read.warm_up
        await cold_reads.do([warm_up])
    return partition.read_committed(offset, VIEW_BYTES)


def _without_events(read: LogRead, aborted: list[AbortedTransaction]) -> list[tuple[int, int]]:
    view, position, size = read.view, 0, len(read.view)
    left_out = AbortedBatches(aborted)
    found = []
    while position < size:
        header = parse_header(view, position)
        position += header.batch_length + LENGTH_OVERHEAD
        if header.batch_length < MIN_BATCH_LENGTH or position > size:
            break  # damaged, which is for those to tell who read it
        is_aborted = header.attributes & TRANSACTIONAL_BIT and left_out.has(header.producer_id, header.base_offset)
        if header.attributes & CONTROL_BIT or is_aborted:
            found.append((header.base_offset, header.last_offset))
    return found
