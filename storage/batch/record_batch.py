"""Record batches as bytes: parses headers, checks a client's batch, builds batches and reads records.

On the hot path a batch stays opaque: :func:`check_batch` parses the header once and computes the CRC over the receive
buffer. Only :func:`read_records` and :func:`decompress_records` decompress records, always within a byte budget.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c
from msgspec import Struct
from msgspec.structs import astuple

from storage.batch.format import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP_POSITION,
    MIN_RECORD_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    NONE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    ZSTD,
)
from storage.batch.records import NULL, read_nullable, read_number, record_heads, varint
from storage.errors import (
    PROBLEMS_NAMED_MAX,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    RecordProblem,
    UnsupportedCompression,
    UnsupportedMagic,
)

BytesLike = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]

_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")


class BatchHeader(Struct, frozen=True, gc=False):
    """The 61-byte header of a batch. A msgspec struct, which is fast to create: each produced batch needs one."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def pack(self) -> bytes:
        return HEADER.pack(*astuple(self))

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        return (self.attributes & TIMESTAMP_TYPE_BIT) >> 3

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0


class Record(NamedTuple):
    """One record. ``offset`` is set by :func:`read_records` and ignored by :func:`build_batch`."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: Headers = ()
    offset: int = 0


_unpack_header = HEADER.unpack_from


def parse_header(buffer: BytesLike, position: int = 0) -> BatchHeader:
    """Parse the header at ``position``. The fields are not checked."""
    try:
        return BatchHeader(*_unpack_header(buffer, position))
    except struct.error as error:
        raise CorruptBatch(f"a batch header needs {HEADER_BYTES} bytes") from error


def check_batch(view: memoryview) -> BatchHeader:
    """Check, without a copy, that ``view`` is exactly one batch that a client may append. Returns its header."""
    size = len(view)
    if size < HEADER_BYTES:
        raise CorruptBatch(f"a batch header needs {HEADER_BYTES} bytes, got {size}")
    values = _unpack_header(view)
    (_, batch_length, _, magic, crc, attributes, last_offset_delta, _, _, producer_id, _, base_sequence, count) = values
    # The magic byte has the same position in all formats, so it is checked before fields whose position differs.
    if magic != MAGIC:
        raise UnsupportedMagic(f"message format {magic} (magic byte) is not supported, only {MAGIC}")
    if batch_length + LENGTH_OVERHEAD != size:
        raise CorruptBatch(f"the header says that the batch has {batch_length + LENGTH_OVERHEAD} bytes, got {size}")
    if crc32c(view[CRC_START:]) != crc:
        raise CorruptBatch("the CRC of the batch does not match")
    if count <= 0 or last_offset_delta != count - 1:
        raise InvalidBatch(f"a record count of {count} does not match last offset delta {last_offset_delta}")
    if attributes:
        _check_attributes(attributes, count)
    if not attributes & COMPRESSION_MASK and count * MIN_RECORD_BYTES > size - HEADER_BYTES:
        raise InvalidBatch(f"{count} records cannot fit in {size} bytes")
    if producer_id >= 0 and base_sequence < 0:
        raise InvalidBatch(f"producer {producer_id} sent base sequence {base_sequence}")
    return BatchHeader(*values)


def _check_attributes(attributes: int, count: int) -> None:
    if attributes & COMPRESSION_MASK > ZSTD:
        raise UnsupportedCompression(f"codec {attributes & COMPRESSION_MASK} does not exist")
    if attributes & CONTROL_BIT:
        raise InvalidBatch("clients may not write control batches")
    if attributes & TIMESTAMP_TYPE_BIT:
        # As in Kafka, the error names each record.
        problem = "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
        raise InvalidTimestamp(
            "One or more records have been rejected due to invalid timestamp",
            [RecordProblem(number, problem) for number in range(min(count, PROBLEMS_NAMED_MAX))],
        )
    if attributes & DELETE_HORIZON_BIT:
        raise InvalidBatch("clients may not set the delete horizon of a batch")


def is_intact(view: memoryview) -> bool:
    """Whether ``view`` is exactly one stored batch with a valid CRC."""
    size = len(view)
    if size < HEADER_BYTES:
        return False
    values = _unpack_header(view)
    _, batch_length, _, magic, crc, _, last_offset_delta, *_ = values
    if magic != MAGIC or batch_length + LENGTH_OVERHEAD != size or last_offset_delta < 0:
        return False
    return crc32c(view[CRC_START:]) == int(crc)


def stamp_append_time(view: memoryview, now_ms: int) -> None:
    """Set the timestamp of all records to the broker's time, for ``message.timestamp.type=LogAppendTime``."""
    (attributes,) = _ATTRIBUTES.unpack_from(view, ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(view, ATTRIBUTES_POSITION, attributes | TIMESTAMP_TYPE_BIT)
    _TIMESTAMP.pack_into(view, MAX_TIMESTAMP_POSITION, now_ms)
    _CRC.pack_into(view, CRC_POSITION, crc32c(view[CRC_START:]))


def set_max_timestamp(view: memoryview, max_timestamp: int) -> BatchHeader:
    """Write the largest record timestamp and the new CRC into the header. Returns the new header."""
    _TIMESTAMP.pack_into(view, MAX_TIMESTAMP_POSITION, max_timestamp)
    _CRC.pack_into(view, CRC_POSITION, crc32c(view[CRC_START:]))
    return parse_header(view)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    compression: int = NONE,
    is_control: bool = False,
    is_transactional: bool = False,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    timestamp_type: int = CREATE_TIME,
) -> bytearray:
    """Build one batch that holds ``records`` at consecutive offsets."""
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = max_timestamp = records[0].timestamp_ms
    parts: list[bytes] = []
    for offset_delta, record in enumerate(records):
        timestamp = record.timestamp_ms
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        _put_record(parts, record, timestamp - base_timestamp, offset_delta)
    body = b"".join(parts)
    payload = _compress(compression, body) if compression else body
    attributes = compression | (timestamp_type << 3)
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if is_control:
        attributes |= CONTROL_BIT
    batch = bytearray(HEADER_BYTES + len(payload))
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_OVERHEAD,
        partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        len(records) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch[HEADER_BYTES:] = payload
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def _put_record(parts: list[bytes], record: Record, timestamp_delta: int, offset_delta: int) -> None:
    key, value, _, headers, _ = record
    # The first byte is the record attributes, of which none are defined.
    fields = [b"\0", varint(timestamp_delta), varint(offset_delta)]
    _put_nullable(fields, key)
    _put_nullable(fields, value)
    fields.append(varint(len(headers)))
    for name, header_value in headers:
        _put_nullable(fields, name.encode())
        _put_nullable(fields, header_value)
    inner = b"".join(fields)
    parts.append(varint(len(inner)))
    parts.append(inner)


_NULL: Final = bytes((NULL,))


def _put_nullable(fields: list[bytes], data: bytes | None) -> None:
    if data is None:
        fields.append(_NULL)
        return
    fields.append(varint(len(data)))
    fields.append(data)


def read_records(view: BytesLike, budget_bytes: int) -> Iterator[Record]:
    """Read the records of the one batch in ``view``. ``budget_bytes`` bounds their decompressed size."""
    header = parse_header(view)
    if header.size_bytes != len(view):
        raise CorruptBatch(f"the header says that the batch has {header.size_bytes} bytes, got {len(view)}")
    body = decompress_records(view, header, budget_bytes)
    append_time_ms = header.max_timestamp if header.timestamp_type else None
    return _records(body, header, append_time_ms)


def decompress_records(view: BytesLike, header: BatchHeader, budget_bytes: int) -> bytes:
    """The uncompressed bytes of a batch's records. Raises :class:`BudgetExceeded` if they exceed the budget."""
    payload = memoryview(view)[HEADER_BYTES:]
    codec = header.compression
    # Compaction can leave a batch that is only a header. Then there is nothing to decompress.
    body = _decompress(codec, payload, budget_bytes) if codec and payload else bytes(payload)
    if header.record_count < 0 or header.record_count * MIN_RECORD_BYTES > len(body):
        raise CorruptBatch(f"{header.record_count} records cannot fit in {len(body)} bytes")
    return body


def _records(body: bytes, header: BatchHeader, append_time_ms: int | None) -> Iterator[Record]:
    base_offset, base_timestamp, left = header.base_offset, header.base_timestamp, header.record_count
    try:
        for _, end, timestamp, offset, position in record_heads(body, 0, len(body)):
            if not left:
                raise CorruptBatch("bytes follow the last record")
            left -= 1
            key, value, headers = record_fields(body, position, end)
            if append_time_ms is None:
                timestamp_ms = base_timestamp + ((timestamp >> 1) ^ -(timestamp & 1))
            else:
                timestamp_ms = append_time_ms
            yield Record(key, value, timestamp_ms, headers, base_offset + ((offset >> 1) ^ -(offset & 1)))
    except IndexError:
        raise CorruptBatch("a record runs past the end of its batch") from None
    if left:
        raise CorruptBatch(f"{left} records are missing")


def record_fields(body: bytes, position: int, end: int) -> tuple[bytes | None, bytes | None, Headers]:
    """The key, the value and the headers of a record. A head of :func:`record_heads` has its position and its end.

    Raises :class:`CorruptBatch`, and ``IndexError`` if ``body`` ends inside the record.
    """
    key, position = read_nullable(body, position, end)
    value, position = read_nullable(body, position, end)
    headers, position = _headers(body, position, end)
    if position != end:
        raise CorruptBatch("the length of a record does not match its fields")
    return key, value, headers


def _headers(body: bytes, position: int, end: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, position = read_number(body, position)
    # `count` is zigzag-encoded: twice the number of headers. A header takes at least two bytes, so a count above the
    # remaining bytes is wrong. It is refused before memory is allocated.
    if count & 1 or count > end - position:
        raise CorruptBatch("the headers cannot fit in their record")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count >> 1):
        raw, position = read_nullable(body, position, end)
        if raw is None:
            raise CorruptBatch("a header has no key")
        try:
            name = raw.decode()
        except UnicodeDecodeError as error:
            raise CorruptBatch("a header key is not UTF-8") from error
        value, position = read_nullable(body, position, end)
        headers.append((name, value))
    return headers, position


# The codec libraries are imported on first use. They take longer to load than all of storage, and a log whose batches
# stay opaque never needs them.


def _compress(codec: int, data: BytesLike) -> bytes:
    from storage.batch.compression import compress

    return compress(codec, data)


def _decompress(codec: int, data: BytesLike, budget_bytes: int) -> bytes:
    from storage.batch.compression import decompress

    return decompress(codec, data, budget_bytes)
