"""Records as places in bytes: which keys a batch holds and which of its records stay, without making a record.

The two large loops run once per record of a log, so they read numbers in place: one or two bytes nearly always. They
begin alike and share no function for it, because a call or a generator would cost a fifth of the walk and more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.batch import BatchHeader
from storage.errors import CorruptBatch
from storage.format import MIN_RECORD_BYTES
from storage.key_map import NAME_BYTES, KeyMap, long_name
from storage.records import NULL, put_varint, read_number, record_heads

# As lengths are written: twice.
_LONG_KEY: Final = 2 * NAME_BYTES


class Kept(NamedTuple):
    """Which records of a batch stay: ``runs`` are places in its unfolded bytes, neighbours joined."""

    runs: list[tuple[int, int]]
    kept_count: int
    keyless_count: int
    has_tombstone: bool


def check_count(header: BatchHeader, size_bytes: int) -> None:
    """Before anything is done ``record_count`` times."""
    if header.record_count < 0 or header.record_count * MIN_RECORD_BYTES > size_bytes:
        raise CorruptBatch(f"{header.record_count} records cannot fit in {size_bytes} bytes")


def put_keys(body: bytes, position: int, end: int, header: BatchHeader, offsets: KeyMap) -> None:
    """Note the offset of every keyed record of the batch whose records lie at ``position`` up to ``end``."""
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
                    raise CorruptBatch("a record is not what it says")
                key = body[position:key_end]
                offsets[key if size < _LONG_KEY else long_name(key)] = base_offset + (delta >> 1)
            elif byte & 1 or position >= stop or stop > end:
                raise CorruptBatch("a record is not what it says")
            position = stop
    except IndexError:
        raise CorruptBatch("a record runs past the end of its batch") from None
    if position != end:
        raise CorruptBatch("the records do not end where their batch does")


def choose_records(
    body: bytes, position: int, end: int, header: BatchHeader, offsets: KeyMap, *, keeps_tombstones: bool
) -> Kept:
    """The records that are the last word of their key; tombstones only if they may still stay."""
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
                # As in Kafka: a record without a key cannot be told from others, so compaction takes it out.
                if byte & 1 or position >= stop or stop > end:
                    raise CorruptBatch("a record is not what it says")
                keyless_count += 1
                stays = False
            else:
                if size >= 0x80:
                    size, position = read_number(body, position - 1)
                key_end = position + (size >> 1)
                if (byte | size | delta) & 1 or key_end >= stop or stop > end or delta > delta_max:
                    raise CorruptBatch("a record is not what it says")
                key = body[position:key_end]
                name = key if size < _LONG_KEY else long_name(key)
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
    return Kept(runs, count, keyless_count, has_tombstone)


def largest_delta(body: bytes, runs: list[tuple[int, int]], limit: int) -> int:
    """The largest timestamp delta of the records in these runs, which :func:`choose_records` has checked.

    It is known to be ``limit`` at most, so the search ends there; the latest record mostly comes last.
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
    """The records of these runs with ``shift_ms`` added to their timestamp deltas: their base moved the other way."""
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
