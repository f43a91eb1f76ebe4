"""Converts a batch to the codec of ``compression.type``: decompresses it, checks every record, compresses it.

Records keep their bytes, and the batch keeps all header fields except codec, length and CRC. As in Kafka, three things
are corrected: offset deltas that are not consecutive, record attributes, and a max timestamp that is not the largest of
the records. Malformed records are refused: the recompressed batch has a new CRC, so a reader could no longer tell
whether the producer or the broker wrote the malformed record.

The input is not changed, so a batch that is refused can be examined again.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c
from msgspec.structs import replace

from storage.batch.format import (
    COMPRESSION_MASK,
    CRC_POSITION,
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MIN_RECORD_BYTES,
    NONE,
    TIMESTAMP_TYPE_BIT,
)
from storage.batch.record_batch import BatchHeader
from storage.batch.records import INT_BYTES_MAX, LONG_BYTES_MAX, NULL, put_varint, read_number
from storage.errors import CorruptBatch, InvalidBatch

_CRC: Final = struct.Struct(">I")
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


class DecompressedBatch(NamedTuple):
    """A decompressed batch. ``header`` has the length and codec of the uncompressed batch. Its CRC is 0."""

    header: BatchHeader
    body: bytes

    def as_batch(self) -> memoryview:
        """The batch, uncompressed and without a CRC, for callers that only read its records."""
        return memoryview(self.header.pack() + self.body)

    def compress_with(self, codec: int, level: int | None = None) -> tuple[memoryview, BatchHeader]:
        """Compress the batch with ``codec``. Returns the new batch, in writable memory, and its header."""
        payload = self.body if codec == NONE else _compress(codec, self.body, level)
        header = replace(
            self.header,
            batch_length=HEADER_BYTES - LENGTH_OVERHEAD + len(payload),
            attributes=self.header.attributes | codec,
        )
        batch = bytearray(header.pack())
        batch += payload
        crc = crc32c(memoryview(batch)[CRC_START:])
        _CRC.pack_into(batch, CRC_POSITION, crc)
        return memoryview(batch), replace(header, crc=crc)


def decompress_batch(
    batch: memoryview, header: BatchHeader, *, budget_bytes: int, record_bytes_max: int
) -> DecompressedBatch:
    """Decompress a batch whose CRC is valid, and check each record.

    Raises :class:`BudgetExceeded` if the records exceed the budget, and :class:`DecompressionFailed`. Raises
    :class:`InvalidBatch` if the records do not match the header, or if a record of a compressed batch is larger than
    ``record_bytes_max``.
    """
    payload = batch[HEADER_BYTES:]
    if header.compression:
        body = _decompress(header.compression, payload, budget_bytes)
    else:
        # The record limit bounds only records that decompression makes larger, so it does not apply here.
        body, record_bytes_max = bytes(payload), len(payload)
    largest_delta, is_correct = _check_records(body, header.record_count, record_bytes_max)
    if not is_correct:
        body = _correct_records(body, header.record_count)
    max_timestamp = header.max_timestamp
    if not header.attributes & TIMESTAMP_TYPE_BIT:
        max_timestamp = header.base_timestamp + largest_delta
        if not _LONG_MIN <= max_timestamp <= _LONG_MAX:
            raise InvalidBatch("a record timestamp does not fit in 64 bits")
    plain = replace(
        header,
        batch_length=HEADER_BYTES - LENGTH_OVERHEAD + len(body),
        crc=0,
        attributes=header.attributes & ~COMPRESSION_MASK,
        max_timestamp=max_timestamp,
    )
    return DecompressedBatch(plain, body)


def _check_records(body: bytes, count: int, record_bytes_max: int) -> tuple[int, bool]:
    """Return (largest timestamp delta, whether the records need no correction). Raises if a record is malformed.

    This runs for every record that is recompressed, so numbers are read in place: most take one or two bytes.
    """
    size = len(body)
    if count <= 0 or count * MIN_RECORD_BYTES > size:
        raise InvalidBatch(f"{count} records cannot fit in {size} bytes")
    position = number = 0
    largest = 2 * _LONG_MIN  # doubled, as in zigzag encoding
    is_correct = True
    try:
        for number in range(count):
            raw = body[position]
            position += 1
            if raw >= 0x80:
                more = body[position]
                if more < 0x80:
                    raw = more << 7 | raw & 0x7F
                    position += 1
                else:
                    raw, position = read_number(body, position - 1, INT_BYTES_MAX)
            length = raw >> 1
            end = position + length
            if length > record_bytes_max:
                raise InvalidBatch(
                    f"record {number} has {length} bytes, max.decompressed.message.bytes is {record_bytes_max}"
                )
            if body[position]:  # Kafka defines no record attributes
                is_correct = False
            delta = body[position + 1]
            position += 2
            if delta >= 0x80:
                more = body[position]
                if more < 0x80:
                    delta = more << 7 | delta & 0x7F
                    position += 1
                else:
                    delta, position = read_number(body, position - 1, LONG_BYTES_MAX)
            if delta & 1:
                delta = -delta - 1
            if delta > largest:
                largest = delta
            offset = body[position]
            position += 1
            if offset >= 0x80:
                more = body[position]
                if more < 0x80:
                    offset = more << 7 | offset & 0x7F
                    position += 1
                else:
                    offset, position = read_number(body, position - 1, INT_BYTES_MAX)
            if offset != number + number:
                is_correct = False
            key = body[position]
            position += 1
            if key != NULL:
                if key >= 0x80:
                    key, position = read_number(body, position - 1, INT_BYTES_MAX)
                position += key >> 1
            else:
                key = 0
            value = body[position]
            position += 1
            if value != NULL:
                if value >= 0x80:
                    more = body[position]
                    if more < 0x80:
                        value = more << 7 | value & 0x7F
                        position += 1
                    else:
                        value, position = read_number(body, position - 1, INT_BYTES_MAX)
                position += value >> 1
            else:
                value = 0
            headers = body[position]
            position += 1
            if headers:
                position = _skip_headers(body, position, end, headers, number)
            # A set lowest bit means a negative number, and only the length of null is negative.
            if position != end or (raw | key | value) & 1:
                raise InvalidBatch(f"record {number}: the lengths of its fields do not match the record's length")
    except IndexError:
        raise InvalidBatch(f"record {number} runs past the end of its batch") from None
    except CorruptBatch as error:
        raise InvalidBatch(f"record {number}: {error}") from None
    if position != size:
        raise InvalidBatch("the records do not end where their batch does")
    return largest >> 1, is_correct


def _skip_headers(body: bytes, position: int, end: int, raw: int, number: int) -> int:
    """The position after a record's headers. ``raw`` is the first byte of their count, just before ``position``."""
    if raw >= 0x80:
        raw, position = read_number(body, position - 1, INT_BYTES_MAX)
    # A header takes at least two bytes, so a wrong count is refused before any work is done for it.
    if raw & 1 or raw > end - position:
        raise InvalidBatch(f"the headers of record {number} cannot fit in it")
    for _ in range(raw >> 1):
        raw, position = read_number(body, position, INT_BYTES_MAX)
        if raw & 1:
            raise InvalidBatch(f"a header of record {number} has no key")
        position += raw >> 1
        raw, position = read_number(body, position, INT_BYTES_MAX)
        if raw != NULL:
            position += raw >> 1
            if raw & 1:
                raise InvalidBatch(f"a header of record {number} has a negative length")
        if position > end:
            raise InvalidBatch(f"a header of record {number} is longer than the record")
    return position


def _correct_records(body: bytes, count: int) -> bytes:
    """The records without attributes and with the offset deltas 0, 1, 2, …. The records are known to be well-formed."""
    out = bytearray()
    position = 0
    for number in range(count):
        length, start = read_number(body, position)
        position = start + (length >> 1)
        _, before = read_number(body, start + 1)
        _, after = read_number(body, before)
        inner = bytearray(1)
        inner += body[start + 1 : before]
        put_varint(inner, number)
        inner += body[after:position]
        put_varint(out, len(inner))
        out += inner
    return bytes(out)


# The codec libraries are imported on first use: they take longer to load than all of storage, and most logs never need
# them.


def _compress(codec: int, data: bytes, level: int | None) -> bytes:
    from storage.batch.compression import compress

    return compress(codec, data, level)


def _decompress(codec: int, data: memoryview, budget_bytes: int) -> bytes:
    from storage.batch.compression import decompress

    return decompress(codec, data, budget_bytes)
