"""The journal of the event store: what a record of `__events` says, and how batches of them are written and read.

A record is one commit. Its offset is the global position of its first event, and it takes as many offsets as the commit
has events, so a position is looked up in this log as an offset is in any other. The value:

    u8   version (1)
    u8   flags: 1, an order follows the parts
    i64  the mark: every event below this position is synced in its own topic too
    u32  count of parts
    each part: 16 bytes topic id, i64 base offset in the topic, u32 size of its batch
    with an order: for each event in turn the u16 number of its part (without one: part after part)
    the batches, one behind the other, as they are in the topics but for their magic byte, which is 0xfd here

The walk over a log whose end was torn looks for the next good batch. The magic byte keeps it from taking the batches
inside a torn record for batches of the journal.

The key is null, or 16 bytes of a digest of what was published and the idempotency key.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from sys import byteorder
from typing import NamedTuple

from crc32c import crc32c
from msgspec.structs import replace

from kwire.broker.partition import Partition
from storage.batch import BatchHeader, is_intact, parse_header, read_records
from storage.batch_writing import record_tail
from storage.errors import CorruptBatch, QuarantinedRange
from storage.format import (
    CRC_POSITION,
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
from storage.records import varint

VERSION = 1
# The order names parts by two bytes.
PARTS_MAX = 10_000
# Parts of one commit, all together.
COMMIT_BYTES_MAX = 64 * 1024 * 1024
DIGEST_BYTES = 16
READ_BYTES = 1024 * 1024
# A batch of the journal is a group of commits: one that is as large as it may be, and those before it.
BATCH_BYTES_MAX = 2 * COMMIT_BYTES_MAX

_HAS_ORDER = 1
_MAGIC_POSITION = 16
# No batch has it.
_HIDDEN_MAGIC = 0xFD
_HEAD = struct.Struct(">BBqI")
_PART = struct.Struct(">16sqI")
_CRC = struct.Struct(">I")
_AROUND_RECORD_BYTES = 64


class JournalPart(NamedTuple):
    """What one commit adds to one topic."""

    topic_id: bytes
    base_offset: int
    batch: bytes | bytearray | memoryview


class JournalCommit(NamedTuple):
    """A record, decoded. `position` is that of its first event, `order` is empty where events follow part by part."""

    position: int
    mark: int
    parts: Sequence[JournalPart]
    order: Sequence[int]
    key: bytes | None


class NewRecord(NamedTuple):
    """A record that is to be written: `event_count` is how many positions it takes."""

    event_count: int
    key: bytes | None
    value: bytes | bytearray


def encode_value(mark: int, parts: Sequence[JournalPart], order: Sequence[int] = ()) -> bytearray:
    chunks: list[bytes | bytearray | memoryview] = [
        _HEAD.pack(VERSION, _HAS_ORDER if order else 0, mark, len(parts)),
    ]
    chunks += [_PART.pack(topic_id, base_offset, len(batch)) for topic_id, base_offset, batch in parts]
    if order:
        chunks.append(_order_bytes(order))
    position = sum(map(len, chunks))
    chunks += [batch for _, _, batch in parts]
    value = bytearray().join(chunks)
    for _, _, batch in parts:
        value[position + _MAGIC_POSITION] = _HIDDEN_MAGIC
        position += len(batch)
    return value


def decode_value(position: int, key: bytes | None, value: bytes) -> JournalCommit:
    """Raises CorruptBatch when it is not what `encode_value` wrote. The batches may be written to."""
    try:
        version, flags, mark, count = _HEAD.unpack_from(value, 0)
        if version != VERSION or count * _PART.size > len(value):
            raise CorruptBatch(f"a record of the event journal with version {version} and {count} parts")
        at = _HEAD.size
        heads = [_PART.unpack_from(value, at + number * _PART.size) for number in range(count)]
    except struct.error:
        raise CorruptBatch("a record of the event journal is cut short") from None
    at += count * _PART.size
    start = len(value) - sum(size for _, _, size in heads)
    if start < at or (flags & _HAS_ORDER == 0 and start != at):
        raise CorruptBatch("the parts of a record of the event journal do not fit in it")
    order = _order(value[at:start]) if flags & _HAS_ORDER else ()
    view, parts = memoryview(bytearray(value)), []
    for topic_id, base_offset, size in heads:
        if size < HEADER_BYTES or view[start + _MAGIC_POSITION] != _HIDDEN_MAGIC:
            raise CorruptBatch("a part of a record of the event journal is no batch")
        view[start + _MAGIC_POSITION] = MAGIC
        parts.append(JournalPart(topic_id, base_offset, view[start : start + size]))
        start += size
    return JournalCommit(position, mark, parts, order, key)


def _order_bytes(order: Sequence[int]) -> bytes:
    numbers = array("H", order)
    if byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def _order(raw: bytes) -> Sequence[int]:
    if len(raw) % 2:
        raise CorruptBatch("the order of a record of the event journal is cut short")
    numbers = array("H", raw)
    if byteorder == "little":
        numbers.byteswap()
    return numbers


def journal_batch(records: Sequence[NewRecord], now_ms: int) -> tuple[memoryview, BatchHeader]:
    """One batch of these records, each as many offsets behind the one before as that has events."""
    chunks: list[bytes] = [bytes(HEADER_BYTES)]
    delta = 0
    for event_count, key, value in records:
        place = b"\x00\x00" + varint(delta)
        tail = record_tail(key, value, 0, b"")
        chunks += (varint(len(place) + len(tail)), place, tail)
        delta += event_count
    batch = bytearray().join(chunks)
    header = BatchHeader(
        0,
        len(batch) - LENGTH_OVERHEAD,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        NONE,
        delta - 1,
        now_ms,
        now_ms,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        len(records),
    )
    batch[:HEADER_BYTES] = header.pack()
    view = memoryview(batch)
    crc = crc32c(view[CRC_START:])
    _CRC.pack_into(batch, CRC_POSITION, crc)
    return view, replace(header, crc=crc)


def record_bytes_max(parts_bytes: int, part_count: int, event_count: int) -> int:
    """What a commit takes in a batch of the journal at most."""
    return _AROUND_RECORD_BYTES + _HEAD.size + parts_bytes + part_count * _PART.size + 2 * event_count


def commits_in(batch: memoryview) -> Iterator[JournalCommit]:
    """The commits of one batch of the journal; raises CorruptBatch."""
    if not is_intact(batch):
        raise CorruptBatch("the CRC does not fit the bytes")
    for record in read_records(batch, BATCH_BYTES_MAX):
        if record.value is None:
            raise CorruptBatch("a record of the event journal says nothing")
        yield decode_value(record.offset, record.key, record.value)


def batches_from(journal: Partition, position: int) -> Iterator[memoryview]:
    """Batches from the one that holds `position` up to the high watermark. What is damaged is passed over."""
    position = max(position, journal.log_start_offset)
    while position < journal.high_watermark:
        try:
            read = journal.read(position, READ_BYTES)
        except QuarantinedRange as error:
            position = error.end_offset
            continue
        view, at = read.view, 0
        if not view:
            # Nothing can be read up to the next damaged place.
            behind = [one.end_offset for one in journal.quarantined if one.end_offset > position]
            if not behind:
                return
            position = min(behind)
            continue
        while at < len(view):
            header = parse_header(view, at)
            end = at + header.size_bytes
            yield view[at:end]
            at, position = end, max(position, header.last_offset + 1)


def last_batches(journal: Partition, size_bytes: int) -> Iterator[memoryview]:
    """The batches of about the last `size_bytes` of the journal, as `batches_from` yields them."""
    start, left = journal.log_start_offset, size_bytes
    for segment in reversed(list(journal.maintenance().segments())):
        if segment.size_bytes > left:
            _, position = segment.index.boundary_before(segment.size_bytes - left)
            return batches_from(journal, max(position, start))
        left -= segment.size_bytes
    return batches_from(journal, start)
