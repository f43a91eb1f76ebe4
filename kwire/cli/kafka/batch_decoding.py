"""Reads fetched batches and their records.

`read_values` is the fast path: it returns only the values. `read_records` returns everything as plain tuples. Both are
loops without a call per record, because a consumer spends most of its time in them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from storage.batch.format import CRC_START, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC
from storage.batch.record_batch import BatchHeader, decompress_records, parse_header
from storage.batch.records import NULL, read_nullable, read_number
from storage.errors import CorruptBatch, UnsupportedMagic

# Bound of the decompressed records of one batch.
RECORDS_BYTES_MAX = 1024 * 1024 * 1024

Headers = tuple[tuple[bytes, bytes | None], ...]


class ReadRecord(NamedTuple):
    """The fields of one record of a batch, as `read_records` returns them (as plain tuples)."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


RecordFields = tuple[int, int, bytes | None, bytes | None, Headers]


def batches_in(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the complete batches of a fetched partition. Its last batch may be cut off, as Kafka allows."""
    position, end = 0, len(data)
    while end - position >= HEADER_BYTES:
        header = parse_header(data, position)
        if header.magic != MAGIC:
            raise UnsupportedMagic(f"message format {header.magic} is not supported, only {MAGIC}")
        stop = position + header.batch_length + LENGTH_OVERHEAD
        if header.batch_length + LENGTH_OVERHEAD < HEADER_BYTES:
            raise CorruptBatch(f"a batch at offset {header.base_offset} has a length of {header.batch_length} bytes")
        if stop > end:
            return
        yield header, data[position:stop]
        position = stop


def batch_body(header: BatchHeader, batch: memoryview) -> bytes:
    """Check the CRC of a batch and return its records, decompressed."""
    if crc32c(batch[CRC_START:]) != header.crc:
        raise CorruptBatch(f"the CRC of the batch at offset {header.base_offset} does not match")
    return decompress_records(batch, header, RECORDS_BYTES_MAX)


def is_dense(header: BatchHeader) -> bool:
    """Whether the records of the batch have consecutive offsets. Compaction leaves gaps."""
    return header.last_offset_delta == header.record_count - 1


def read_values(body: bytes, count: int) -> list[bytes | None]:
    """Return the values of the records."""
    values: list[bytes | None] = []
    add = values.append
    position, end = 0, len(body)
    try:
        for _ in range(count):
            length = body[position]
            if length < 0x80:
                cursor = position + 2
                position += 1 + (length >> 1)
            elif (more := body[position + 1]) < 0x80:
                cursor = position + 3
                position += 2 + ((length & 0x7F | more << 7) >> 1)
            else:
                length, start = read_number(body, position)
                cursor = start + 1
                position = start + (length >> 1)
            # The timestamp delta and the offset delta.
            while body[cursor] >= 0x80:
                cursor += 1
            cursor += 1
            while body[cursor] >= 0x80:
                cursor += 1
            cursor += 1
            key_length = body[cursor]
            if key_length == NULL:
                cursor += 1
            elif key_length < 0x80:
                cursor += 1 + (key_length >> 1)
            else:
                key_length, cursor = read_number(body, cursor)
                cursor += key_length >> 1
            length = body[cursor]
            if length < 0x80:
                cursor += 1
            elif (more := body[cursor + 1]) < 0x80:
                length = length & 0x7F | more << 7
                cursor += 2
            else:
                length, cursor = read_number(body, cursor)
            stop = cursor + (length >> 1)
            if length & 1:
                if length != NULL:
                    raise CorruptBatch("a value has a negative length")
                add(None)
                stop = cursor
            else:
                add(body[cursor:stop])
            if stop >= position or position > end:
                raise CorruptBatch("a field is longer than its record, or a record longer than its batch")
    except IndexError:
        raise CorruptBatch("a record runs past the end of its batch") from None
    if position != end:
        raise CorruptBatch("bytes follow the last record")
    return values


def read_records(body: bytes, header: BatchHeader) -> list[RecordFields]:
    """Return the records as tuples with the fields of `ReadRecord`."""
    records: list[RecordFields] = []
    add = records.append
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time_ms = header.max_timestamp if header.timestamp_type else None
    position, end = 0, len(body)
    try:
        for _ in range(header.record_count):
            length, position = read_number(body, position)
            stop = position + (length >> 1)
            if length & 1 or stop > end:
                raise CorruptBatch("a record is longer than its batch")
            timestamp, position = read_number(body, position + 1)
            offset, position = read_number(body, position)
            key, position = read_nullable(body, position, stop)
            value, position = read_nullable(body, position, stop)
            if body[position]:
                headers, position = _read_headers(body, position, stop)
            else:
                headers = ()
                position += 1
            if position != stop:
                raise CorruptBatch("the length of a record does not match its fields")
            if append_time_ms is None:
                timestamp_ms = base_timestamp + ((timestamp >> 1) ^ -(timestamp & 1))
            else:
                timestamp_ms = append_time_ms
            add((base_offset + (offset >> 1), timestamp_ms, key, value, headers))
    except IndexError:
        raise CorruptBatch("a record runs past the end of its batch") from None
    if position != end:
        raise CorruptBatch("bytes follow the last record")
    return records


def _read_headers(body: bytes, position: int, stop: int) -> tuple[Headers, int]:
    count, position = read_number(body, position)
    # A header takes at least two bytes; `count` is twice the number of headers.
    if count & 1 or count > stop - position:
        raise CorruptBatch("the headers cannot fit in their record")
    headers = []
    for _ in range(count >> 1):
        name, position = read_nullable(body, position, stop)
        if name is None:
            raise CorruptBatch("a header has no key")
        value, position = read_nullable(body, position, stop)
        headers.append((name, value))
    return tuple(headers), position
