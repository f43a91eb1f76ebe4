"""The event journal, the topic `__events`: the format of its records, and functions that write and read them.

A record is one commit. The record's offset is the global position of the first event of the commit. The record takes
one offset for each event, so a global position is looked up like any offset of a log. The value of a record is:

    u8   version (1)
    u8   flags: bit 0 is set if an order follows the list of parts
    i64  the sync checkpoint: every event below this global position is durable in its own topic too
    u32  number of parts
    for each part: 16 bytes topic id, i64 base offset in the topic, u32 size of the part's batch
    the order, if bit 0 is set: for each event of the commit, the u16 number of the part that contains it
    the batch of each part: the same bytes as in the topic, except that the magic byte is 0xfd

Without an order, the events of the commit are in the order of the parts.

The recovery of a log with a torn end searches the remaining bytes for a valid batch. Because of the different magic
byte, recovery does not mistake a batch inside a torn record for a batch of the journal.

The key of a record is null, or a 16-byte digest of the published events followed by the idempotency key.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from sys import byteorder
from typing import NamedTuple

from crc32c import crc32c
from msgspec.structs import replace

from kwire.broker.partition import Partition
from storage.batch.builder import encode_record_body
from storage.batch.format import (
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
from storage.batch.record_batch import BatchHeader, is_intact, parse_header, read_records
from storage.batch.records import varint
from storage.errors import CorruptBatch, QuarantinedRange

VERSION = 1
# Parts of one commit. The order stores part numbers in two bytes, so this must not exceed 65,536.
PARTS_MAX = 10_000
# Largest size of one commit, as computed by `record_bytes_max`.
COMMIT_BYTES_MAX = 64 * 1024 * 1024
DIGEST_BYTES = 16
READ_BYTES = 1024 * 1024
# Upper bound of the decompressed size of a journal batch. A batch contains either one commit, or several commits with a
# total of at most `GROUP_BYTES_MAX` (commit_pipeline.py), so this bound has a large margin.
BATCH_BYTES_MAX = 2 * COMMIT_BYTES_MAX

_HAS_ORDER = 1
_MAGIC_POSITION = 16
# No batch format has this magic byte.
_HIDDEN_MAGIC = 0xFD
_HEAD = struct.Struct(">BBqI")
_PART = struct.Struct(">16sqI")
_CRC = struct.Struct(">I")
_RECORD_OVERHEAD_BYTES = 64


class JournalPart(NamedTuple):
    """The batch that a commit adds to one topic."""

    topic_id: bytes
    base_offset: int
    batch: bytes | bytearray | memoryview


class JournalCommit(NamedTuple):
    """A decoded record of the journal.

    `position` is the global position of the first event. `order` is empty if the events are in the order of the parts.
    """

    position: int
    checkpoint: int
    parts: Sequence[JournalPart]
    order: Sequence[int]
    key: bytes | None


class NewRecord(NamedTuple):
    """A record to be written to the journal. It takes `event_count` offsets."""

    event_count: int
    key: bytes | None
    value: bytes | bytearray


def encode_value(checkpoint: int, parts: Sequence[JournalPart], order: Sequence[int] = ()) -> bytearray:
    chunks: list[bytes | bytearray | memoryview] = [
        _HEAD.pack(VERSION, _HAS_ORDER if order else 0, checkpoint, len(parts)),
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
    """Decode a record; raises CorruptBatch if it is malformed. The batches of the parts are writable copies."""
    try:
        version, flags, checkpoint, count = _HEAD.unpack_from(value, 0)
        if version != VERSION or count * _PART.size > len(value):
            raise CorruptBatch(f"a record of the event journal has version {version} and {count} parts")
        at = _HEAD.size
        heads = [_PART.unpack_from(value, at + number * _PART.size) for number in range(count)]
    except struct.error:
        raise CorruptBatch("a record of the event journal is truncated") from None
    at += count * _PART.size
    start = len(value) - sum(size for _, _, size in heads)
    if start < at or (flags & _HAS_ORDER == 0 and start != at):
        raise CorruptBatch("the parts of a record of the event journal do not fit in it")
    order = _order(value[at:start]) if flags & _HAS_ORDER else ()
    view, parts = memoryview(bytearray(value)), []
    for topic_id, base_offset, size in heads:
        if size < HEADER_BYTES or view[start + _MAGIC_POSITION] != _HIDDEN_MAGIC:
            raise CorruptBatch("a part of a record of the event journal is not a batch")
        view[start + _MAGIC_POSITION] = MAGIC
        parts.append(JournalPart(topic_id, base_offset, view[start : start + size]))
        start += size
    return JournalCommit(position, checkpoint, parts, order, key)


def _order_bytes(order: Sequence[int]) -> bytes:
    numbers = array("H", order)
    if byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def _order(raw: bytes) -> Sequence[int]:
    if len(raw) % 2:
        raise CorruptBatch("the order of a record of the event journal is truncated")
    numbers = array("H", raw)
    if byteorder == "little":
        numbers.byteswap()
    return numbers


def journal_batch(records: Sequence[NewRecord], now_ms: int) -> tuple[memoryview, BatchHeader]:
    """Build a journal batch from these records. Each record takes `event_count` offsets."""
    chunks: list[bytes] = [bytes(HEADER_BYTES)]
    delta = 0
    for event_count, key, value in records:
        head = b"\x00\x00" + varint(delta)
        tail = encode_record_body(key, value, 0, b"")
        chunks += (varint(len(head) + len(tail)), head, tail)
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
    """Return an upper bound of the bytes that a commit takes in a journal batch."""
    return _RECORD_OVERHEAD_BYTES + _HEAD.size + parts_bytes + part_count * _PART.size + 2 * event_count


def commits_in(batch: memoryview) -> Iterator[JournalCommit]:
    """Yield the commits of one journal batch. Raises CorruptBatch if the batch or one of its records is damaged."""
    if not is_intact(batch):
        raise CorruptBatch("the CRC does not match")
    for record in read_records(batch, BATCH_BYTES_MAX):
        if record.value is None:
            raise CorruptBatch("a record of the event journal has no value")
        yield decode_value(record.offset, record.key, record.value)


def batches_from(journal: Partition, position: int) -> Iterator[memoryview]:
    """Yield batches from the one that contains `position` up to the high watermark. Quarantined ranges are skipped."""
    position = max(position, journal.log_start_offset)
    while position < journal.high_watermark:
        try:
            read = journal.read(position, READ_BYTES)
        except QuarantinedRange as error:
            position = error.end_offset
            continue
        view, at = read.view, 0
        if not view:
            # No batch can be read at this position: continue after the next quarantined range.
            range_ends = [one.end_offset for one in journal.quarantined if one.end_offset > position]
            if not range_ends:
                return
            position = min(range_ends)
            continue
        while at < len(view):
            header = parse_header(view, at)
            end = at + header.size_bytes
            yield view[at:end]
            at, position = end, max(position, header.last_offset + 1)


def last_batches(journal: Partition, size_bytes: int) -> Iterator[memoryview]:
    """Return an iterator over the batches in about the last `size_bytes` of the journal."""
    start, left = journal.log_start_offset, size_bytes
    for segment in reversed(list(journal.maintenance().segments())):
        if segment.size_bytes > left:
            _, position = segment.index.find_position(segment.size_bytes - left)
            return batches_from(journal, max(position, start))
        left -= segment.size_bytes
    return batches_from(journal, start)
