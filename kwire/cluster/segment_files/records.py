"""The records in the journal of a replica. Integers are big-endian.

Every frame begins with a FRAME record. Its cookie and generation are those of the file: a frame of another file, which
a misdirected write or a recycled page may show, is not accepted. `number` counts the frames of the file. `touched` is
the range of indexes that the frame before changed, so that the loss of one frame makes only these indexes unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from kwire.cluster.core.entries import Entry, Kind, Range, Run
from kwire.cluster.segment_files.partition_log import BatchRef

_FRAME: Final = struct.Struct(">BQQQQQ")
HEAD_BYTES: Final = _FRAME.size
# The CRC32C is over the cookie and generation of the file and the bytes after it.
_ENTRY: Final = struct.Struct(">BIQBQQ")
_ENTRY_CRC_END: Final = 5
_INDEX: Final = struct.Struct(">BQ")
_RUN: Final = struct.Struct(">QQBQQ")
_RANGE: Final = struct.Struct(">QQ")
_SALT: Final = struct.Struct(">QQ")
# Index, birth and stamp epoch of an event whose payload is a batch of the log: offset, next offset, size and CRC32C.
_BATCH: Final = struct.Struct(">BQQQQQII")


class Code(IntEnum):
    """The first byte of a record."""

    FRAME = 1
    ENTRY = 2
    STAMPS = 3
    REMOVE_AFTER = 4
    ACKED = 5
    UNKNOWN = 6
    COMPLETE = 7
    BATCH = 8
    DAMAGED = 9
    TRIMMED = 10


class FileId(NamedTuple):
    """The identity of a file: the cookie of the disk, and the generation of the replica."""

    cookie: int
    generation: int

    @property
    def salt(self) -> int:
        return int(crc32c(_SALT.pack(*self)))


class FrameHead(NamedTuple):
    """The content of a FRAME record."""

    file: FileId
    number: int
    touched: Range


class RecordDamaged(ValueError):
    """A record of a valid frame can not be decoded."""


def encode_head(head: FrameHead) -> bytes:
    return _FRAME.pack(Code.FRAME, *head.file, head.number, *head.touched)


def decode_head(record: bytes) -> FrameHead | None:
    """The head of a frame; None if the record is not one."""
    if len(record) != _FRAME.size or record[0] != Code.FRAME:
        return None
    _, cookie, generation, number, first, last = _FRAME.unpack(record)
    return FrameHead(FileId(cookie, generation), number, Range(first, last))


def encode_entry(file: FileId, entry: Entry) -> bytes:
    head = _ENTRY.pack(Code.ENTRY, 0, entry.index, entry.kind, entry.birth_epoch, entry.stamp_epoch)
    body = head[_ENTRY_CRC_END:] + entry.payload
    return b"%c%s%s" % (Code.ENTRY, crc32c(body, file.salt).to_bytes(4, "big"), body)


def decode_entry(file: FileId, record: bytes) -> Entry:
    """The entry, with the stamp it had when it was stored. Raises RecordDamaged."""
    if len(record) < _ENTRY.size or record[0] != Code.ENTRY:
        raise RecordDamaged("the record is not an entry")
    _, crc, index, kind, birth_epoch, stamp_epoch = _ENTRY.unpack_from(record)
    if crc32c(record[_ENTRY_CRC_END:], file.salt) != crc:
        raise RecordDamaged(f"the checksum of the entry at index {index} is wrong")
    return Entry(index, Kind(kind), birth_epoch, stamp_epoch, record[_ENTRY.size :])


def encode_batch(entry: Entry, ref: BatchRef) -> bytes:
    return _BATCH.pack(Code.BATCH, entry.index, entry.birth_epoch, entry.stamp_epoch, *ref)


def decode_batch(record: bytes) -> tuple[Entry, BatchRef]:
    """The event, without its payload, and the batch that is its payload."""
    _, index, birth_epoch, stamp_epoch, *place = _BATCH.unpack(record)
    return Entry(index, Kind.EVENT, birth_epoch, stamp_epoch), BatchRef(*place)


def encode_runs(runs: Sequence[Run]) -> bytes:
    return bytes([Code.STAMPS]) + b"".join(_RUN.pack(*run) for run in runs)


def decode_runs(record: bytes) -> list[Run]:
    return [
        Run(first, last, Kind(kind), birth_epoch, stamp_epoch)
        for first, last, kind, birth_epoch, stamp_epoch in _RUN.iter_unpack(record[1:])
    ]


def encode_trimmed(first: int, runs: Sequence[Run]) -> bytes:
    return _INDEX.pack(Code.TRIMMED, first) + encode_runs(runs)


def decode_trimmed(record: bytes) -> tuple[int, list[Run]]:
    return decode_index(record[: _INDEX.size]), decode_runs(record[_INDEX.size :])


def encode_index(code: Code, index: int) -> bytes:
    return _INDEX.pack(code, index)


def decode_index(record: bytes) -> int:
    index: int = _INDEX.unpack(record)[1]
    return index


def encode_ranges(ranges: Sequence[Range]) -> bytes:
    return bytes([Code.UNKNOWN]) + b"".join(_RANGE.pack(*one) for one in ranges)


def decode_ranges(record: bytes) -> list[Range]:
    return [Range(first, last) for first, last in _RANGE.iter_unpack(record[1:])]
