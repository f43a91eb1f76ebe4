"""replay_records: reads all committed records of a log in order, for state that is stored as records.

Unlike `EventReader`, it returns keys and values as they are, and it fails if a record cannot be read: state with a gap
must not be used.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

from kwire.errors import ErrorCode, KafkaError
from kwire.streams.events.aborted_batches import AbortedBatches
from kwire.streams.log import NotReady, StreamLog, StreamRead, Unreadable
from storage.batch.record_batch import is_intact, parse_header, read_records
from storage.errors import StorageError

READ_BYTES = 1024 * 1024
# The largest decompressed size of a batch.
BATCH_BYTES_MAX = 64 * 1024 * 1024
# The number of records that are returned before other work runs.
RECORDS_PER_ITERATION = 500

KeyValue = tuple[bytes | None, bytes | None]


async def replay_records(log: StreamLog, start: int = 0) -> AsyncIterator[KeyValue]:
    """Yield the key and value of each record, from `start` or the start of the log, whichever is later, to the
    committed end at the time of the call.

    Raises KafkaError if a record cannot be read.
    """
    await log.ready()
    oldest, end, _ = log.bounds()
    offset = max(start, oldest)
    waits = count = 0
    while offset < end:
        try:
            found = log.read(offset, READ_BYTES, waits)
        except Unreadable as error:
            raise _corrupt(log, error) from error
        if isinstance(found, NotReady):
            await found.wait()
            waits += 1
            continue
        waits = 0
        if found.next_offset <= offset:
            # Compaction has removed the last records before the committed end.
            return
        for record in _records_of(log, found, offset):
            yield record
            count += 1
            if count % RECORDS_PER_ITERATION == 0:
                await asyncio.sleep(0)
        offset = found.next_offset


def _records_of(log: StreamLog, read: StreamRead, offset: int) -> Iterator[KeyValue]:
    view, position = read.records, 0
    aborted = AbortedBatches(read.aborted)
    while position < len(view):
        try:
            header = parse_header(view, position)
            batch = view[position : position + header.size_bytes]
            if not is_intact(batch):
                raise Unreadable(header.base_offset, header.last_offset + 1, "the CRC does not match the bytes")
            is_aborted = header.is_transactional and aborted.has(header.producer_id, header.base_offset)
            if not header.is_control and not is_aborted and header.last_offset >= offset:
                for record in read_records(batch, BATCH_BYTES_MAX):
                    yield record.key, record.value
        except (StorageError, Unreadable) as error:
            raise _corrupt(log, error) from error
        position += header.size_bytes


def _corrupt(log: StreamLog, error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{log.topic}-{log.partition}: {error}")
