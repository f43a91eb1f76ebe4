"""Record scans for compaction: finds keys and the records to keep by position, without creating record objects.

The two large loops run once per record of a log, so they read numbers in place: most numbers take one or two bytes. The
loops begin with the same code and do not share a function, because a call or a generator would make the scan at least a
fifth slower.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.batch.format import MIN_RECORD_BYTES
from storage.batch.record_batch import BatchHeader
from storage.batch.records import NULL, put_varint, read_number, record_heads
from storage.compaction.key_map import NAME_BYTES, KeyMap, digest_name
from storage.errors import CorruptBatch

# Keys from this length on are named by a digest. The value is doubled, as in zigzag encoding.
_LONG_KEY: Final = 2 * NAME_BYTES


class KeptRecords(NamedTuple):
    """The records of a batch to keep. ``runs`` are (start, end) in the uncompressed bytes, merged if adjacent."""

    runs: list[tuple[int, int]]
    kept_count: int
    keyless_count: int
    has_tombstone: bool


def check_count(header: BatchHeader, size_bytes: int) -> None:
    """Raise if the records cannot fit in the bytes, because the loops below run ``record_count`` times."""
    if header.record_count < 0 or header.record_count * MIN_RECORD_BYTES > size_bytes:
        raise CorruptBatch(f"{header.record_count} records cannot fit in {size_bytes} bytes")


def put_keys(body: bytes, position: int, end: int, header: BatchHeader, offsets: KeyMap) -> None:
    """Put the key and offset of every record with a key, from ``position`` to ``end``, into ``offsets``."""
    base_offset, delta_max = header.base_offset, 2 * header.last_offset_delta
    try:
        for _ in range(header.record_count):
            byte = body[position]
            position += 1
            length = byte >> 1
            if byte >= 0x80:
                more = body[position]
                if more < 0x80:
                    length = (more << 7 | byte & 0x7F) >> 1
                    position += 1
                else:
                    byte, position = read_number(body, position - 1)
                    length = byte >> 1
            stop = position + length
            position += 1
            while body[position] >= 0x80:
                position += 1
            position += 1
            delta = body[position]
            position += 1
            if delta >= 0x80:
                more = body[position]
                if more < 0x80:
                    delta = more << 7 | delta & 0x7F
                    position += 1
                else:
                    delta, position = read_number(body, position - 1)
            size = body[position]
            position += 1
            if size != NULL:
                if size >= 0x80:
                    size, position = read_number(body, position - 1)
                key_end = position + (size >> 1)
                if (byte | size | delta) & 1 or key_end >= stop or stop > end or delta > delta_max:
                    raise CorruptBatch("the field lengths of a record do not match its length")
                key = body[position:key_end]
                offsets[key if size < _LONG_KEY else digest_name(key)] = base_offset + (delta >> 1)
            elif byte & 1 or position >= stop or stop > end:
                raise CorruptBatch("the field lengths of a record do not match its length")
            position = stop
    except IndexError:
        raise CorruptBatch("a record runs past the end of its batch") from None
    if position != end:
        raise CorruptBatch("the records do not end where their batch does")


def select_records(
    body: bytes, position: int, end: int, header: BatchHeader, offsets: KeyMap, *, keeps_tombstones: bool
) -> KeptRecords:
    """Select each record whose key has no later offset in ``offsets``; tombstones only if ``keeps_tombstones``."""
    base_offset, delta_max = header.base_offset, 2 * header.last_offset_delta
    runs: list[tuple[int, int]] = []
    run_start = -1
    count = keyless_count = 0
    has_tombstone = False
    last_of = offsets.get
    try:
        for _ in range(header.record_count):
            start = position
            byte = body[position]
            position += 1
            length = byte >> 1
            if byte >= 0x80:
                more = body[position]
                if more < 0x80:
                    length = (more << 7 | byte & 0x7F) >> 1
                    position += 1
                else:
                    byte, position = read_number(body, position - 1)
                    length = byte >> 1
            stop = position + length
            position += 1
            while body[position] >= 0x80:
                position += 1
            position += 1
            delta = body[position]
            position += 1
            if delta >= 0x80:
                more = body[position]
                if more < 0x80:
                    delta = more << 7 | delta & 0x7F
                    position += 1
                else:
                    delta, position = read_number(body, position - 1)
            size = body[position]
            position += 1
            if size == NULL:
                # As in Kafka, compaction removes records without a key.
                if byte & 1 or position >= stop or stop > end:
                    raise CorruptBatch("the field lengths of a record do not match its length")
                keyless_count += 1
                stays = False
            else:
                if size >= 0x80:
                    size, position = read_number(body, position - 1)
                key_end = position + (size >> 1)
                if (byte | size | delta) & 1 or key_end >= stop or stop > end or delta > delta_max:
                    raise CorruptBatch("the field lengths of a record do not match its length")
                key = body[position:key_end]
                name = key if size < _LONG_KEY else digest_name(key)
                stays = base_offset + (delta >> 1) >= last_of(name, -1)
                if stays and body[key_end] == NULL:
                    if keeps_tombstones:
                        has_tombstone = True
                    else:
                        stays = False
            position = stop
            if stays:
                count += 1
                if run_start < 0:
                    run_start = start
            elif run_start >= 0:
                runs.append((run_start, start))
                run_start = -1
    except IndexError:
        raise CorruptBatch("a record runs past the end of its batch") from None
    if position != end:
        raise CorruptBatch("the records do not end where their batch does")
    if run_start >= 0:
        runs.append((run_start, end))
    return KeptRecords(runs, count, keyless_count, has_tombstone)


def largest_delta(body: bytes, runs: list[tuple[int, int]], limit: int) -> int:
    """The largest timestamp delta of the records in these runs, which :func:`select_records` has checked.

    No delta is above ``limit``, so the search ends when it finds ``limit``. The search begins with the last run,
    because the latest record is usually in it.
    """
    largest: int | None = None
    for position, end in reversed(runs):
        for _, _, raw, _, _ in record_heads(body, position, end):
            delta = (raw >> 1) ^ -(raw & 1)
            if largest is None or delta > largest:
                largest = delta
                if largest >= limit:
                    return largest
    return largest or 0


def shift_timestamps(body: bytes, runs: list[tuple[int, int]], shift_ms: int) -> bytes:
    """The records of these runs with ``shift_ms`` added to their timestamp deltas, for a base lower by ``shift_ms``."""
    out = bytearray()
    for position, end in runs:
        while position < end:
            length, start = read_number(body, position)
            position = start + (length >> 1)
            raw, rest = read_number(body, start + 1)
            inner = bytearray(body[start : start + 1])
            put_varint(inner, ((raw >> 1) ^ -(raw & 1)) + shift_ms)
            inner += body[rest:position]
            put_varint(out, len(inner))
            out += inner
    return bytes(out)
