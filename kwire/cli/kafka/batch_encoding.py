"""Encodes records into batches, many at a time.

`encode_values` is the fast path for records that are only a value: it makes no object per record except the parts
that are joined. All other records are encoded one by one as bodies (`storage.batch.builder`), and `encode_bodies` adds
their lengths, timestamps and offsets.
"""

import struct
from collections.abc import Sequence
from itertools import islice
from typing import Final

from crc32c import crc32c

from storage.batch.format import CRC_START, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, NO_LEADER_EPOCH, NONE
from storage.batch.records import SMALL_COUNT, SMALL_VARINTS, varint

# Upper bound of the bytes that a batch adds to the key, value and headers of one record: the length of the record,
# attributes, timestamp delta, offset delta, and the lengths of key and value and the number of headers.
RECORD_OVERHEAD_BYTES_MAX: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
# Upper bound of the bytes around the value of a record without key, headers and timestamp delta.
VALUE_OVERHEAD_BYTES_MAX: Final = 5 + 1 + 1 + 5 + 1 + 5 + 1
BATCH_OVERHEAD_BYTES: Final = HEADER_BYTES

_pack_start: Final = struct.Struct(">qiibI").pack
_pack_rest: Final = struct.Struct(">hiqqqhii").pack

_NULL_KEY: Final = b"\x01"
_NO_HEADERS: Final = b"\x00"
# Attributes, and timestamp delta 0.
_PLAIN: Final = b"\x00\x00"
# An offset delta below each of these bounds takes one byte more than one below the bound before it.
_DELTA_BOUNDS: Final = (1 << 6, 1 << 13, 1 << 20, 1 << 27, 1 << 31)
# Lengths above this bound are not kept in the tables: such records are few.
_TABLE_LENGTH_MAX: Final = 1 << 14


class _RecordStarts(dict[int, bytes]):
    """The bytes from the end of the record before up to the offset delta, by the length of the record's value."""

    def __init__(self, delta_bytes: int) -> None:
        self._delta_bytes = delta_bytes

    def __missing__(self, length: int) -> bytes:
        size = len(_PLAIN) + self._delta_bytes + len(_NULL_KEY) + len(varint(length)) + length + len(_NO_HEADERS)
        start = _NO_HEADERS + varint(size) + _PLAIN
        if length <= _TABLE_LENGTH_MAX:
            self[length] = start
        return start


class _ValueStarts(dict[int, bytes]):
    """The bytes between the offset delta and the value, by the length of the value."""

    def __missing__(self, length: int) -> bytes:
        start = _NULL_KEY + varint(length)
        if length <= _TABLE_LENGTH_MAX:
            self[length] = start
        return start


_RECORD_STARTS: Final = tuple(_RecordStarts(delta_bytes) for delta_bytes in range(1, len(_DELTA_BOUNDS) + 1))
_VALUE_STARTS: Final = _ValueStarts()


def encode_values(values: Sequence[bytes]) -> bytes:
    """Encode records that have a value, and no key, headers or timestamp delta. There must be at least one."""
    count = len(values)
    lengths = list(map(len, values))
    # Four parts for each record: the end of the record before with the start of this one, offset delta, start of the
    # value, value.
    parts = [b""] * (4 * count)
    first = 0
    for starts, bound in zip(_RECORD_STARTS, _DELTA_BOUNDS, strict=True):
        if first >= count:
            break
        stop = min(count, bound)
        parts[4 * first : 4 * stop : 4] = map(starts.__getitem__, islice(lengths, first, stop))
        first = stop
    parts[1::4] = SMALL_VARINTS[:count] if count <= SMALL_COUNT else map(varint, range(count))
    parts[2::4] = map(_VALUE_STARTS.__getitem__, lengths)
    parts[3::4] = values
    # The first record has none before it, and the last has none after it that would end it.
    parts[0] = parts[0][len(_NO_HEADERS) :]
    parts.append(_NO_HEADERS)
    return b"".join(parts)


def encode_bodies(bodies: Sequence[bytes], timestamps_ms: Sequence[int]) -> bytes:
    """Encode records whose key, value and headers are encoded already. The first timestamp is the batch's base."""
    base = timestamps_ms[0]
    parts: list[bytes] = []
    add = parts.append
    for number, (body, timestamp_ms) in enumerate(zip(bodies, timestamps_ms, strict=True)):
        delta = timestamp_ms - base
        start = (_PLAIN if not delta else b"\x00" + varint(delta)) + varint(number)
        add(varint(len(start) + len(body)))
        add(start)
        add(body)
    return b"".join(parts)


def build(
    records: bytes,
    count: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    codec: int = NONE,
) -> bytes:
    """Build a batch of encoded records, which are compressed with `codec`."""
    if codec != NONE:
        # Imported here, because the libraries take longer to load than a small produce takes.
        from storage.batch.compression import compress

        records = compress(codec, records)
    rest = _pack_rest(
        codec,
        count - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    crc = crc32c(records, crc32c(rest))
    length = CRC_START - LENGTH_OVERHEAD + len(rest) + len(records)
    return b"".join((_pack_start(0, length, NO_LEADER_EPOCH, MAGIC, crc), rest, records))
