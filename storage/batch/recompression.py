"""A batch in another codec, as ``compression.type`` asks for: unfolded, every record looked at, folded again.

Records keep their bytes, and the batch keeps everything its header says beside codec, length and CRC. What Kafka puts
right when it writes a batch anew is put right here too: records that are not numbered one by one or have attributes,
and a largest timestamp that is not the largest of the records. What is not a batch of whole records is refused, because
nobody who reads the new one could tell any more that the producer wrote it so.

Nothing given is changed, so a batch that is refused in the end can be looked at again.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c
from msgspec.structs import replace

from storage.batch import BatchHeader
from storage.errors import CorruptBatch, InvalidBatch
from storage.format import (
    COMPRESSION_MASK,
    CRC_POSITION,
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MIN_RECORD_BYTES,
    NONE,
    TIMESTAMP_TYPE_BIT,
)
from storage.records import INT_BYTES_MAX, LONG_BYTES_MAX, NULL, put_varint, read_number

_CRC: Final = struct.Struct(">I")
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


class Unfolded(NamedTuple):
    """A batch out of its compression. ``header`` is that of the batch that ``body`` alone would make, CRC left out."""

    header: BatchHeader
    body: bytes

    def as_batch(self) -> memoryview:
        """The batch without compression and with no CRC, for those who look at records and at nothing else."""
        return memoryview(self.header.pack() + self.body)

    def fold(self, codec: int, level: int | None = None) -> tuple[memoryview, BatchHeader]:
        """(the batch in ``codec``, in memory of its own that may be written to; its header)."""
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


def unfold(batch: memoryview, header: BatchHeader, *, budget_bytes: int, record_bytes_max: int) -> Unfolded:
    """The records of a batch whose CRC fits, each of them checked.

    Raises :class:`BudgetExceeded` when they take more bytes than the budget, :class:`InvalidBatch` when they are not
    what the header says or, in a compressed batch, one is larger than ``record_bytes_max``, and
    :class:`DecompressionFailed`.
    """
    payload = batch[HEADER_BYTES:]
    if header.compression:
        body = _decompress(header.compression, payload, budget_bytes)
    else:
        # As it came over the wire; the limit is for what a few bytes can become.
        body, record_bytes_max = bytes(payload), len(payload)
    largest_delta, is_right = _checked(body, header.record_count, record_bytes_max)
    if not is_right:
        body = _put_right(body, header.record_count)
    max_timestamp = header.max_timestamp
    if not header.attributes & TIMESTAMP_TYPE_BIT:
        max_timestamp = header.base_timestamp + largest_delta
        if not _LONG_MIN <= max_timestamp <= _LONG_MAX:
            raise InvalidBatch("a timestamp of more than 64 bits")
    plain = replace(
        header,
        batch_length=HEADER_BYTES - LENGTH_OVERHEAD + len(body),
        crc=0,
        attributes=header.attributes & ~COMPRESSION_MASK,
        max_timestamp=max_timestamp,
    )
    return Unfolded(plain, body)


def _checked(body: bytes, count: int, record_bytes_max: int) -> tuple[int, bool]:
    """(the largest timestamp delta, whether they may stay as they are) of ``count`` well-formed records.

    It runs for every record that such a topic takes, so numbers are read in place: one or two bytes nearly always.
    """
    size = len(body)
    if count <= 0 or count * MIN_RECORD_BYTES > size:
        raise InvalidBatch(f"{count} records cannot fit in {size} bytes")
    position = number = 0
    largest = 2 * _LONG_MIN  # counted twice, as it is written
    is_right = True
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
            if body[position]:  # no attributes of a record are defined
                is_right = False
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
                is_right = False
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
                position = _behind_headers(body, position, end, headers, number)
            # A number with its lowest bit set is below zero: no length but that of null is.
            if position != end or (raw | key | value) & 1:
                raise InvalidBatch(f"record {number} is not what it says")
    except IndexError:
        raise InvalidBatch(f"record {number} runs past the end of its batch") from None
    except CorruptBatch as error:
        raise InvalidBatch(f"record {number}: {error}") from None
    if position != size:
        raise InvalidBatch("the records do not end where their batch does")
    return largest >> 1, is_right


def _behind_headers(body: bytes, position: int, end: int, raw: int, number: int) -> int:
    """Where the headers of a record end; ``raw`` is the first byte of their count, just in front of ``position``."""
    if raw >= 0x80:
        raw, position = read_number(body, position - 1, INT_BYTES_MAX)
    # Two bytes is the least a header takes, so a lying count fails before anything is done for it.
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
                raise InvalidBatch(f"a header of record {number} has a length that cannot be")
        if position > end:
            raise InvalidBatch(f"a header of record {number} is longer than the record")
    return position


def _put_right(body: bytes, count: int) -> bytes:
    """Well-formed records without attributes and with the offset deltas 0, 1, 2, …"""
    out = bytearray()
    position = 0
    for number in range(count):
        length, start = read_number(body, position)
        position = start + (length >> 1)
        _, before = read_number(body, start + 1)
        _, behind = read_number(body, before)
        inner = bytearray(1)
        inner += body[start + 1 : before]
        put_varint(inner, number)
        inner += body[behind:position]
        put_varint(out, len(inner))
        out += inner
    return bytes(out)


# The codecs' libraries take longer to load than all of storage, and most logs never need them.


def _compress(codec: int, data: bytes, level: int | None) -> bytes:
    from storage.compression import compress

    return compress(codec, data, level)


def _decompress(codec: int, data: memoryview, budget_bytes: int) -> bytes:
    from storage.compression import decompress

    return decompress(codec, data, budget_bytes)
