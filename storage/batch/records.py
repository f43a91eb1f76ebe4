"""Reads and writes varints, and finds the positions of the records in the uncompressed bytes of a batch.

Numbers are zigzag varints and are handled in their encoded form, with the sign in the lowest bit. A length of 7 reads
as 14. An odd length is negative, and only :data:`NULL` may be negative.

:func:`record_heads` scans records. Five loops read record heads in place instead, because they run for every record
that is validated, compacted or delivered, and a generator would make them 4 to 70 % slower. These loops are in
``check_records`` (:mod:`storage.batch.record_checks`), ``put_keys`` and ``select_records``
(:mod:`storage.compaction.record_selection`), ``decompress_batch`` (:mod:`storage.batch.recompression`), and
``BatchCursor.take`` of the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from storage.errors import CorruptBatch

# The encoded number -1. It is the length of a key or value that is null.
NULL: Final = 1
# Upper bounds of a varint's bytes. The first is for a length, a count or an offset delta, the second for a timestamp
# delta.
INT_BYTES_MAX: Final = 5
LONG_BYTES_MAX: Final = 10

# (start, end, timestamp delta, offset delta, position of the key's length). The deltas are in zigzag form.
RecordHead = tuple[int, int, int, int, int]


def read_number(body: bytes, position: int, bytes_max: int = LONG_BYTES_MAX) -> tuple[int, int]:
    """The number at ``position``, in zigzag form, and the position after it.

    Raises :class:`CorruptBatch` if the number is too long, and ``IndexError`` if ``body`` ends inside the number.
    """
    byte = body[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    for shift in range(7, 7 * bytes_max, 7):
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, position
    raise CorruptBatch(f"a number is longer than {bytes_max} bytes or 64 bits")


def read_nullable(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """The key or value whose length is at ``position``, and the position after it. Raises like :func:`read_number`."""
    length = body[position]
    position += 1
    if length >= 0x80:
        more = body[position]
        if more < 0x80:
            length = more << 7 | length & 0x7F
            position += 1
        else:
            length, position = read_number(body, position - 1)
    if length == NULL:
        return None, position
    stop = position + (length >> 1)
    if length & 1 or stop > end:
        raise CorruptBatch("a field is longer than its record or has a negative length")
    return body[position:stop], stop


def put_number(out: bytearray, value: int) -> None:
    """Append a number that is already in zigzag form."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_varint(out: bytearray, value: int) -> None:
    put_number(out, (value << 1) ^ (value >> 63))


def _encoded(value: int) -> bytes:
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


# Varints of numbers below this bound come from a table. Most lengths, counts and deltas are that small.
SMALL_COUNT: Final = 4096
SMALL_VARINTS: Final = tuple(_encoded(value) for value in range(SMALL_COUNT))


def varint(value: int) -> bytes:
    """The encoded form of a length, a count or a delta."""
    return SMALL_VARINTS[value] if 0 <= value < SMALL_COUNT else _encoded(value)


def record_heads(body: bytes, position: int, end: int) -> Iterator[RecordHead]:
    """Yield the head of each record from ``position`` on. Raises :class:`CorruptBatch` if no record ends at ``end``."""
    try:
        while position < end:
            start = position
            length = body[position]
            position += 1
            if length >= 0x80:
                more = body[position]
                if more < 0x80:
                    length = more << 7 | length & 0x7F
                    position += 1
                else:
                    length, position = read_number(body, start)
            stop = position + (length >> 1)
            # The timestamp delta follows one byte of attributes.
            timestamp = body[position + 1]
            position += 2
            if timestamp >= 0x80:
                timestamp, position = read_number(body, position - 1)
            offset = body[position]
            position += 1
            if offset >= 0x80:
                more = body[position]
                if more < 0x80:
                    offset = more << 7 | offset & 0x7F
                    position += 1
                else:
                    offset, position = read_number(body, position - 1)
            if length & 1 or position >= stop or stop > end:
                raise CorruptBatch("a record is longer than its batch or shorter than a record")
            yield start, stop, timestamp, offset, position
            position = stop
    except IndexError:
        raise CorruptBatch("a record runs past the end of its batch") from None
