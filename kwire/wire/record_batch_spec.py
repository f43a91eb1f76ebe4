"""The executable specification of the record batch, format 2.

The format is part of the protocol, because a batch is sent in the form in which it is stored. Like `spec.py`, this
module is slow. It is meant for readers, for tests (which compare it with `storage/batch/record_batch.py`) and for
`kwire log dump`.

    batch     61 bytes of header (`BatchHeaderSpec`), then the payload: all records, possibly compressed as one block
    record    varint size of the rest, int8 attributes (none are defined), varint timestamp minus the batch's base
              timestamp (milliseconds), varint offset minus the batch's base offset, key, value, headers
    key       varint size and bytes; size -1 is null
    value     the same as a key
    headers   varint count, then for each header a key (utf-8, never null) and a value
    varint    zigzag encoding, seven bits per byte, lowest bits first, at most ten bytes

The checksum is CRC32C over everything after the checksum. Base offset, batch length and leader epoch come before the
checksum, so a broker can set them without computing the checksum again. In a control batch the key consists of two
int16: a version and the control type.
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
# `batch_length` does not include the base offset (8 bytes) and itself (4 bytes).
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
    """Compute the CRC of a batch with this header and payload."""
    return int(crc32c((BatchHeaderSpec.build(header) + payload)[CHECKSUM_START:]))


def _completed(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the header with its three derived fields: batch length, magic and CRC."""
    length = HEADER_BYTES - LENGTH_OVERHEAD + len(batch["payload"])
    header = {**batch["header"], "batch_length": length, "magic": MAGIC, "crc": 0}
    return {**header, "crc": checksum(header, batch["payload"])}


# To build a batch, pass `header` without batch length, magic and CRC, and the encoded, possibly compressed `payload`.
RecordBatchSpec = "record_batch" / Fields(
    "header" / Rebuild(BatchHeaderSpec, _completed),
    Check(this.header.magic == MAGIC),
    Check(this.header.batch_length >= HEADER_BYTES - LENGTH_OVERHEAD),
    "payload" / Bytes(this.header.batch_length - (HEADER_BYTES - LENGTH_OVERHEAD)),
    "is_intact" / Computed(lambda batch: checksum(batch["header"], batch["payload"]) == batch["header"]["crc"]),
)


def records_spec(count: int) -> Construct:
    """Return the spec of an uncompressed payload: `count` records and nothing after them."""
    return FocusedSeq("records", "records" / Array(count, RecordSpec), Terminated)
