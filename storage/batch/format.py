"""The layout of record batches of message format 2: field positions, attribute bits and limits.

A batch is 61 bytes of header followed by its records, compressed as one block. ``batch_length`` is the number of bytes
after that field, so the whole batch is 12 bytes longer. The CRC covers everything from the attributes on. The base
offset and the leader epoch are before the attributes, so the broker sets both without changing the CRC.
"""

from __future__ import annotations

import struct
from typing import Final

#      0 base_offset             q
#      8 batch_length            i
#     12 partition_leader_epoch  i
#     16 magic                   b
#     17 crc                     I
#     21 attributes              h   <- the CRC begins here
#     23 last_offset_delta       i
#     27 base_timestamp          q
#     35 max_timestamp           q
#     43 producer_id             q
#     51 producer_epoch          h
#     53 base_sequence           i
#     57 record_count            i
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
BATCH_LENGTH_POSITION: Final = 8
CRC_POSITION: Final = 17
CRC_START: Final = 21
ATTRIBUTES_POSITION: Final = 21
MAX_TIMESTAMP_POSITION: Final = 35

# base offset, batch length, last offset delta: the fields that a scan over batches needs.
STEP: Final = struct.Struct(">qi11xi")
# base offset, batch length, leader epoch: the fields that an append writes into the client's bytes.
PLACEMENT: Final = struct.Struct(">qii")

# batch_length does not include itself and the base offset.
LENGTH_OVERHEAD: Final = 12
MIN_BATCH_LENGTH: Final = HEADER_BYTES - LENGTH_OVERHEAD

MAGIC: Final = 2

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
# Set by compaction. The base timestamp is then the time from which the batch's tombstones and markers may be removed
# (KIP-534).
DELETE_HORIZON_BIT: Final = 0x40

# The types of transaction markers.
ABORT: Final = 0
COMMIT: Final = 1

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
MAX_SEQUENCE: Final = 0x7FFFFFFF

# length, attributes, timestamp delta, offset delta, key length, value length, header count: at least one byte each.
MIN_RECORD_BYTES: Final = 7
