"""Record batches as bytes: look into a header, check a client's batch, build one, read its records.

On the hot path a batch stays opaque: :func:`check_batch` parses the header once and runs the CRC over the buffer it
came in. Records are only unfolded by :func:`read_records`, always under a byte budget.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c
from msgspec import Struct
from msgspec.structs import astuple

from storage.errors import (
    PROBLEMS_NAMED_MAX,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    RecordProblem,
    UnsupportedCompression,
    UnsupportedMagic,
)
from storage.format import (
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
from storage.records import NULL, read_nullable, read_number, record_heads, varint

BytesLike = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]

_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")


class BatchHeader(Struct, frozen=True, gc=False):
    """The 61 header bytes of one batch. Quickly made and quickly asked, because each produced batch has one."""

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
    """One record; ``offset`` is filled in by :func:`read_records` and ignored by :func:`build_batch`."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: Headers = ()
    offset: int = 0


_unpack_header = HEADER.unpack_from


def parse_header(buffer: BytesLike, position: int = 0) -> BatchHeader:
    """The header at ``position``, unchecked except that its bytes are there."""
    try:
        return BatchHeader(*_unpack_header(buffer, position))
    except struct.error as error:
        raise CorruptBatch(f"a batch header needs {HEADER_BYTES} bytes") from error


def check_batch(view: memoryview) -> BatchHeader:
    """Check that ``view`` is exactly one batch that a client may append; nothing is copied."""
    size = len(view)
    if size < HEADER_BYTES:
        raise CorruptBatch(f"{size} bytes are less than a batch header")
    values = _unpack_header(view)
    (_, batch_length, _, magic, crc, attributes, last_offset_delta, _, _, producer_id, _, base_sequence, count) = values
    # The magic byte lies at the same place in all formats, so it is looked at before anything that does not.
    if magic != MAGIC:
        raise UnsupportedMagic(f"magic {magic} is not served")
    if batch_length + LENGTH_OVERHEAD != size:
        raise CorruptBatch(f"the batch says {batch_length + LENGTH_OVERHEAD} bytes, {size} were given")
    if crc32c(view[CRC_START:]) != crc:
        raise CorruptBatch("the CRC does not fit the bytes")
    if count <= 0 or last_offset_delta != count - 1:
        raise InvalidBatch(f"{count} records with last offset delta {last_offset_delta}")
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
        # As Kafka has it: each record is at fault.
        problem = "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
        raise InvalidTimestamp(
            "One or more records have been rejected due to invalid timestamp",
            [RecordProblem(number, problem) for number in range(min(count, PROBLEMS_NAMED_MAX))],
        )
    if attributes & DELETE_HORIZON_BIT:
        raise InvalidBatch("only compaction may say when a batch's marks are to go")


def is_intact(view: memoryview) -> bool:
    """Whether ``view`` is one whole stored batch with its right CRC."""
    size = len(view)
    if size < HEADER_BYTES:
        return False
    values = _unpack_header(view)
    _, batch_length, _, magic, crc, _, last_offset_delta, *_ = values
    if magic != MAGIC or batch_length + LENGTH_OVERHEAD != size or last_offset_delta < 0:
        return False
    return crc32c(view[CRC_START:]) == int(crc)


def stamp_append_time(view: memoryview, now_ms: int) -> None:
    """Give every record of the batch the broker's time, as ``message.timestamp.type=LogAppendTime`` asks."""
    (attributes,) = _ATTRIBUTES.unpack_from(view, ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(view, ATTRIBUTES_POSITION, attributes | TIMESTAMP_TYPE_BIT)
    _TIMESTAMP.pack_into(view, MAX_TIMESTAMP_POSITION, now_ms)
    _CRC.pack_into(view, CRC_POSITION, crc32c(view[CRC_START:]))


def set_max_timestamp(view: memoryview, max_timestamp: int) -> BatchHeader:
    """Write the largest time of the records into the header; the CRC follows. Returns the header as it is then."""
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
    """One batch holding ``records`` at consecutive offsets."""
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
    # Attributes come first: none are defined.
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
    """The records of the one batch in ``view``; ``budget_bytes`` bounds what a compressed payload may unfold to."""
    header = parse_header(view)
    if header.size_bytes != len(view):
        raise CorruptBatch(f"the batch says {header.size_bytes} bytes, {len(view)} were given")
    body = unfolded_records(view, header, budget_bytes)
    append_time_ms = header.max_timestamp if header.timestamp_type else None
    return _records(body, header, append_time_ms)


def unfolded_records(view: BytesLike, header: BatchHeader, budget_bytes: int) -> bytes:
    """The bytes of a batch's records, uncompressed; raises :class:`BudgetExceeded` when they are more than that."""
    payload = memoryview(view)[HEADER_BYTES:]
    codec = header.compression
    # Compaction can leave a batch of which only the header is kept: nothing is there to be unfolded.
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
            key, position = read_nullable(body, position, end)
            value, position = read_nullable(body, position, end)
            headers, position = _headers(body, position, end)
            if position != end:
                raise CorruptBatch("a record is not as long as it says")
            if append_time_ms is None:
                timestamp_ms = base_timestamp + ((timestamp >> 1) ^ -(timestamp & 1))
            else:
                timestamp_ms = append_time_ms
            yield Record(key, value, timestamp_ms, headers, base_offset + ((offset >> 1) ^ -(offset & 1)))
    except IndexError:
        raise CorruptBatch("a record runs past the end of its batch") from None
    if left:
        raise CorruptBatch(f"{left} records are missing")


def _headers(body: bytes, position: int, end: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, position = read_number(body, position)
    # Two bytes is the least a header takes, so a lying count fails before anything is built for it.
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


# The codecs' libraries take longer to load than all of storage, and a log whose batches stay opaque never needs them.


def _compress(codec: int, data: BytesLike) -> bytes:
    from storage.compression import compress

    return compress(codec, data)


def _decompress(codec: int, data: BytesLike, budget_bytes: int) -> bytes:
    from storage.compression import decompress

    return decompress(codec, data, budget_bytes)
