"""Builds batches from records whose key, value and headers are already encoded.

The *body* of a record is its key, value and headers. The body is encoded once, in advance. The record's length,
timestamp delta and offset delta are added when the batch is built. All records of such a batch have the same timestamp.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from storage.batch.format import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NONE,
)
from storage.batch.record_batch import BatchHeader
from storage.batch.records import NULL, SMALL_COUNT, SMALL_VARINTS, varint

# The header is packed in two parts, because the checksum covers everything from the attributes on.
_pack_start: Final = struct.Struct(">qiibI").pack
_pack_rest: Final = struct.Struct(">hiqqqhii").pack
_NULL: Final = bytes((NULL,))
# Upper bound of a record's bytes without its body: length, attributes, timestamp delta and offset delta.
_RECORD_OVERHEAD_BYTES_MAX: Final = 5 + 1 + 1 + 5


# The start of a record after its length, by offset delta: attributes (none), timestamp delta (0), offset delta.
_RECORD_PREFIXES: Final = tuple(b"\x00\x00" + number for number in SMALL_VARINTS)


def header_bytes(name: bytes, value: bytes | None) -> bytes:
    """Encode one record header."""
    head = varint(len(name)) + name
    return head + _NULL if value is None else head + varint(len(value)) + value


def encode_record_body(key: bytes | None, value: bytes | bytearray | None, header_count: int, headers: bytes) -> bytes:
    """Encode the key, value and headers of a record.

    ``headers`` are ``header_count`` concatenated results of :func:`header_bytes`.
    """
    return b"".join(
        (
            _NULL if key is None else varint(len(key)) + key,
            _NULL if value is None else varint(len(value)) + value,
            varint(header_count),
            headers,
        )
    )


def batch_bytes_max(bodies_bytes: int, count: int) -> int:
    """Upper bound of the bytes of a batch with ``count`` record bodies of ``bodies_bytes`` bytes in total."""
    return HEADER_BYTES + bodies_bytes + count * _RECORD_OVERHEAD_BYTES_MAX


def _framed(bodies: Sequence[bytes]) -> list[bytes]:
    """Return the parts of all records: for each its length, its prefix and its body."""
    parts: list[bytes] = []
    add = parts.append
    for number, body in enumerate(bodies):
        prefix = _RECORD_PREFIXES[number] if number < SMALL_COUNT else b"\x00\x00" + varint(number)
        length = len(prefix) + len(body)
        add(SMALL_VARINTS[length] if length < SMALL_COUNT else varint(length))
        add(prefix)
        add(body)
    return parts


def build_batch_from_bodies(bodies: Sequence[bytes], timestamp_ms: int) -> tuple[memoryview, BatchHeader]:
    """Build one batch, in writable memory. Returns the batch and its header."""
    count = len(bodies)
    if not count:
        raise ValueError("a batch holds at least one record")
    rest = _pack_rest(
        NONE, count - 1, timestamp_ms, timestamp_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count
    )
    if count == 1:  # a coordinator writes a batch of one record for most requests
        body, prefix = bodies[0], _RECORD_PREFIXES[0]
        checked = rest + varint(len(prefix) + len(body)) + prefix + body
    else:
        checked = b"".join((rest, *_framed(bodies)))
    crc = crc32c(checked)
    length = CRC_START - LENGTH_OVERHEAD + len(checked)
    batch = memoryview(bytearray(_pack_start(0, length, NO_LEADER_EPOCH, MAGIC, crc) + checked))
    return batch, BatchHeader(
        0,
        length,
        NO_LEADER_EPOCH,
        MAGIC,
        crc,
        NONE,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        count,
    )
