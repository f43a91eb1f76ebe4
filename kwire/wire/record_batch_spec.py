"""The record batch as an executable specification: format 2, from its first byte to the last header of its last record.

It stands beside the protocol's specification because a batch travels as it is stored. Like that one it is slow, meant
for reading, for tests (which keep it and `storage/batch.py` equal) and for `kwire log dump`.

    batch     61 bytes of header (`BatchHeaderSpec`), then the payload: all records, compressed as one block or not
    record    varint size, then: int8 attributes (none defined), varint milliseconds after the batch's base timestamp,
              varint offset after the batch's base offset, key, value, headers
    key       varint size and bytes; size -1 is null. The same for values
    headers   varint count; each a key (never null, utf-8) and a value
    varint    zigzag, seven bits per byte, lowest first; at most ten bytes

The checksum is CRC32C over everything behind it. Base offset, length and leader epoch stand before it, so a broker
places a batch without touching it. In a control batch the key is two int16: a version, and what the marker says.
"""

from collections.abc import Mapping
from typing import Any

from construct import (
    Array,
    Bytes,
    Check,
    Computed,
    Construct,
    ExprAdapter,
    ExprValidator,
    FocusedSeq,
    GreedyBytes,
    If,
    Int8sb,
    Int16sb,
    Prefixed,
    Rebuild,
    StringEncoded,
    Terminated,
    this,
)
from construct import Struct as Fields
from crc32c import crc32c

from kwire.wire.spec import BatchHeaderSpec, uvarint_spec

HEADER_BYTES = 61
# Base offset and the length itself are not counted by the length.
LENGTH_OVERHEAD = 12
CHECKSUM_START = 21
MAGIC = 2
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CONTROL_TYPES = {0: "abort", 1: "commit", 2: "leader change", 3: "snapshot header", 4: "snapshot footer"}

VARINT_BYTES_MAX = 10

Varint = ExprAdapter(
    ExprValidator(uvarint_spec(VARINT_BYTES_MAX), lambda coded, _: 0 <= coded < 2**64),
    lambda coded, _: (coded >> 1) ^ -(coded & 1),
    lambda number, _: 2 * number if number >= 0 else -2 * number - 1,
)

Nullable = FocusedSeq(
    "data",
    "size" / Rebuild(Varint, lambda field: -1 if field["data"] is None else len(field["data"])),
    Check(this.size >= -1),
    "data" / If(this.size >= 0, Bytes(this.size)),
)

HeaderKey = FocusedSeq(
    "text",
    "size" / Rebuild(Varint, lambda field: len(field["text"].encode())),
    Check(this.size >= 0),
    "text" / StringEncoded(Bytes(this.size), "utf-8"),
)

HeadersSpec = FocusedSeq(
    "headers",
    "count" / Rebuild(Varint, lambda field: len(field["headers"])),
    Check(this.count >= 0),
    "headers" / Array(this.count, Fields("key" / HeaderKey, "value" / Nullable)),
)

_RecordBody = "record" / Fields(
    "attributes" / Int8sb,
    "timestamp_delta" / Varint,
    "offset_delta" / Varint,
    "key" / Nullable,
    "value" / Nullable,
    "headers" / HeadersSpec,
    Terminated,
)

RecordSpec = Prefixed(ExprValidator(Varint, lambda size, _: size >= 0), _RecordBody)

ControlKeySpec = "control_key" / Fields("version" / Int16sb, "type" / Int16sb, "rest" / GreedyBytes)


def checksum(header: Mapping[str, Any], payload: bytes) -> int:
    """The CRC that belongs into a batch with these fields."""
    return int(crc32c((BatchHeaderSpec.build(header) + payload)[CHECKSUM_START:]))


def _completed(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The header with the three fields that follow from the others."""
    length = HEADER_BYTES - LENGTH_OVERHEAD + len(batch["payload"])
    header = {**batch["header"], "batch_length": length, "magic": MAGIC, "crc": 0}
    return {**header, "crc": checksum(header, batch["payload"])}


# To build: `header` without length, magic and checksum, and the payload as `RecordsSpec` and the codec make it.
RecordBatchSpec = "record_batch" / Fields(
    "header" / Rebuild(BatchHeaderSpec, _completed),
    Check(this.header.magic == MAGIC),
    Check(this.header.batch_length >= HEADER_BYTES - LENGTH_OVERHEAD),
    "payload" / Bytes(this.header.batch_length - (HEADER_BYTES - LENGTH_OVERHEAD)),
    "is_intact" / Computed(lambda batch: checksum(batch["header"], batch["payload"]) == batch["header"]["crc"]),
)


def records_spec(count: int) -> Construct:
    """`count` records and nothing behind them: a payload that is not, or no longer, compressed."""
    return FocusedSeq("records", "records" / Array(count, RecordSpec), Terminated)
