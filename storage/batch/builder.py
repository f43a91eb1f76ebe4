"""Batches put together from records that are encoded already: for writers of many records that are nearly alike.

What a record says apart from its place is its *tail*: key, value and headers. It is made once, whenever that is
convenient, and gets its place in a batch later. All records of such a batch have the same time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from storage.batch import BatchHeader
from storage.format import (
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NONE,
)
from storage.records import NULL, SMALL_COUNT, SMALL_VARINTS, varint

_CRC: Final = struct.Struct(">I")
_NULL: Final = bytes((NULL,))
# What a record takes around its tail at most: its length, attributes, time and number.
_AROUND_TAIL_BYTES: Final = 5 + 1 + 1 + 5


# Attributes (none), time (that of the batch), place in the batch.
_PLACES: Final = tuple(b"\x00\x00" + number for number in SMALL_VARINTS)


def header_bytes(name: bytes, value: bytes | None) -> bytes:
    """One header of a record."""
    head = varint(len(name)) + name
    return head + _NULL if value is None else head + varint(len(value)) + value


def record_tail(key: bytes | None, value: bytes | bytearray | None, header_count: int, headers: bytes) -> bytes:
    """``headers`` are ``header_count`` results of :func:`header_bytes`, one behind the other."""
    return b"".join(
        (
            _NULL if key is None else varint(len(key)) + key,
            _NULL if value is None else varint(len(value)) + value,
            varint(header_count),
            headers,
        )
    )


def batch_bytes_max(tails_bytes: int, count: int) -> int:
    """What a batch of so many tails takes at most."""
    return HEADER_BYTES + tails_bytes + count * _AROUND_TAIL_BYTES


def batch_of_tails(tails: Sequence[bytes], timestamp_ms: int) -> tuple[memoryview, BatchHeader]:
    """One batch, in memory that may be written to, and its header."""
    count = len(tails)
    if not count:
        raise ValueError("a batch holds at least one record")
    parts = [b"\x00" * HEADER_BYTES]
    add = parts.append
    for number, tail in enumerate(tails):
        place = _PLACES[number] if number < SMALL_COUNT else b"\x00\x00" + varint(number)
        length = len(place) + len(tail)
        add(SMALL_VARINTS[length] if length < SMALL_COUNT else varint(length))
        add(place)
        add(tail)
    batch = bytearray().join(parts)
    header = (
        0,
        len(batch) - LENGTH_OVERHEAD,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        NONE,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        count,
    )
    HEADER.pack_into(batch, 0, *header)
    view = memoryview(batch)
    crc = crc32c(view[CRC_START:])
    _CRC.pack_into(batch, CRC_POSITION, crc)
    return view, BatchHeader(*header[:4], crc, *header[5:])
