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
    ABORT,
    ATTRIBUTES_POSITION,
    COMMIT,
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

BytesLike = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]

_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")
_MARKER_VERSION: Final = 0
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")

# A varint of 64 bits takes at most ten bytes.
_VARINT_BYTES_MAX: Final = 10


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


def build_marker(
    producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool, timestamp_ms: int
) -> bytes:
    """The control batch that ends a transaction."""
    key = _MARKER_KEY.pack(_MARKER_VERSION, COMMIT if is_commit else ABORT)
    value = _MARKER_VALUE.pack(_MARKER_VERSION, coordinator_epoch)
    return bytes(
        build_batch(
            [Record(key, value, timestamp_ms)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_control=True,
            is_transactional=True,
        )
    )


def _put_record(parts: list[bytes], record: Record, timestamp_delta: int, offset_delta: int) -> None:
    key, value, _, headers, _ = record
    # Attributes come first: none are defined.
    fields = [b"\0", _varint(timestamp_delta), _varint(offset_delta)]
    _put_nullable(fields, key)
    _put_nullable(fields, value)
    fields.append(_varint(len(headers)))
    for name, header_value in headers:
        _put_nullable(fields, name.encode())
        _put_nullable(fields, header_value)
    inner = b"".join(fields)
    parts.append(_varint(len(inner)))
    parts.append(inner)


def _put_nullable(fields: list[bytes], data: bytes | None) -> None:
    if data is None:
        fields.append(b"\x01")  # zigzag of -1
        return
    fields.append(_varint(len(data)))
    fields.append(data)


def _encode_varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Most lengths and deltas are small.
_SMALL_VARINTS: Final = tuple(_encode_varint(value) for value in range(1024))


def _varint(value: int) -> bytes:
    """A zigzag number."""
    return _SMALL_VARINTS[value] if 0 <= value < 1024 else _encode_varint(value)


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
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(body, position)
        end = position + length
        if length < 0 or end > len(body):
            raise CorruptBatch("a record is longer than its batch")
        record, position = _record(body, position + 1, end, header, append_time_ms)
        if position != end:
            raise CorruptBatch("a record is not as long as it says")
        yield record
    if position != len(body):
        raise CorruptBatch("bytes follow the last record")


def _record(
    body: bytes, position: int, end: int, header: BatchHeader, append_time_ms: int | None
) -> tuple[Record, int]:
    timestamp_delta, position = read_varint(body, position)
    offset_delta, position = read_varint(body, position)
    key, position = _nullable(body, position, end)
    value, position = _nullable(body, position, end)
    header_count, position = read_varint(body, position)
    # Two bytes is the least a header takes, so a lying count fails before anything is built for it.
    if header_count < 0 or header_count * 2 > end - position:
        raise CorruptBatch(f"{header_count} headers cannot fit in their record")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(header_count):
        raw, position = _nullable(body, position, end)
        if raw is None:
            raise CorruptBatch("a header has no key")
        try:
            name = raw.decode()
        except UnicodeDecodeError as error:
            raise CorruptBatch("a header key is not UTF-8") from error
        header_value, position = _nullable(body, position, end)
        headers.append((name, header_value))
    timestamp_ms = header.base_timestamp + timestamp_delta if append_time_ms is None else append_time_ms
    return Record(key, value, timestamp_ms, headers, header.base_offset + offset_delta), position


def _nullable(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(body, position)
    if length < 0:
        if length != -1:
            raise CorruptBatch(f"a length of {length}")
        return None, position
    stop = position + length
    if stop > end:
        raise CorruptBatch("a field is longer than its record")
    return body[position:stop], stop


def read_varint(body: bytes, position: int) -> tuple[int, int]:
    """The zigzag number at ``position`` and where the next byte is; raises :class:`CorruptBatch`."""
    try:
        byte = body[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        value = byte & 0x7F
        for shift in range(7, 7 * _VARINT_BYTES_MAX, 7):
            position += 1
            byte = body[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return (value >> 1) ^ -(value & 1), position + 1
    except IndexError:
        raise CorruptBatch("a number runs past the end of its batch") from None
    raise CorruptBatch("a number of more than 64 bits")


# The codecs' libraries take longer to load than all of storage, and a log whose batches stay opaque never needs them.


def _compress(codec: int, data: BytesLike) -> bytes:
    from storage.compression import compress

    return compress(codec, data)


def _decompress(codec: int, data: BytesLike, budget_bytes: int) -> bytes:
    from storage.compression import decompress

    return decompress(codec, data, budget_bytes)
