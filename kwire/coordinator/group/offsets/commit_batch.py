"""The batch of a repeated commit: its bytes are prepared once, and each commit sets only the numbers.

A member commits the same partitions again and again. The records of its commits differ only in offset, leader epoch and
commit time.
"""

import struct
from collections.abc import Sequence

from crc32c import crc32c

from kwire.coordinator.group.commands import OffsetToCommit
from kwire.coordinator.group.records import encode_committed_offset
from storage.batch.builder import build_batch_from_bodies, encode_plain_body
from storage.batch.format import CRC_START, HEADER_BYTES, MAGIC, NO_LEADER_EPOCH
from storage.batch.record_batch import BatchHeader

# Placeholders that mark the positions of the numbers in an encoded record: offset and leader epoch, commit time.
_OFFSET_PLACEHOLDER = 0x0102030405060708
_EPOCH_PLACEHOLDER = 0x11121314
_TIME_PLACEHOLDER = 0x2122232425262728
_POSITION_BYTES = _OFFSET_PLACEHOLDER.to_bytes(8) + _EPOCH_PLACEHOLDER.to_bytes(4)
_TIME_BYTES = _TIME_PLACEHOLDER.to_bytes(8)

_pack_start = struct.Struct(">qiibI").pack
# The CRC covers: attributes and last offset delta (constant), base and max timestamp, the rest of the header
# (constant), and the records.
_TIMES_START, _TIMES_END = CRC_START + 6, CRC_START + 22
# Values before those of the first record, and values per record. A record has its constant start, offset, leader epoch,
# a constant, and the commit time. The constant end of a record is part of the start of the next one.
_HEAD_VALUES = 3
_RECORD_VALUES = 5


class CommitBatch:
    """Builds the batches of commits of the same partitions with the same metadata."""

    __slots__ = ("_count", "_length", "_pack", "_values")

    def __init__(self, group_id: str, offsets: Sequence[OffsetToCommit]) -> None:
        """Only topics, partitions, metadata and topic ids of `offsets` are used.

        Raises ValueError if a name, metadata or topic id contains a placeholder.
        """
        bodies = [
            encode_plain_body(
                *encode_committed_offset(
                    group_id,
                    one.topic,
                    one.partition,
                    _OFFSET_PLACEHOLDER,
                    _EPOCH_PLACEHOLDER,
                    one.metadata,
                    _TIME_PLACEHOLDER,
                    one.topic_id,
                )
            )
            for one in offsets
        ]
        batch, header = build_batch_from_bodies(bodies, 0)
        self._count = header.record_count
        self._length = header.batch_length
        # `values` are the arguments of `pack`: the constant bytes, and the numbers, which each commit sets.
        values: list[bytes | int] = [batch[CRC_START:_TIMES_START].tobytes(), 0, 0]
        numbers = batch[HEADER_BYTES:].tobytes().split(_POSITION_BYTES)
        if len(numbers) != self._count + 1:
            raise ValueError("a name or metadata contains the placeholder of an offset")
        before = batch[_TIMES_END:HEADER_BYTES].tobytes() + numbers[0]
        for rest in numbers[1:]:
            between, placeholder, after = rest.partition(_TIME_BYTES)
            if not placeholder or _TIME_BYTES in after:
                raise ValueError("a name or metadata contains the placeholder of a time")
            values += [before, 0, 0, between, 0]
            before = after
        values.append(before)
        record = "{}sqi{}sq"
        constants = [len(one) for one in values if isinstance(one, bytes)]
        pairs = zip(constants[1:-1:2], constants[2:-1:2], strict=True)
        records = "".join(record.format(*pair) for pair in pairs)
        self._pack = struct.Struct(f">{constants[0]}sqq{records}{constants[-1]}s").pack
        self._values = values

    def build(
        self, offsets: Sequence[int], leader_epochs: Sequence[int], now_ms: int
    ) -> tuple[memoryview, BatchHeader]:
        """Build the batch of a commit, in writable memory. The result is the same as that of `build_batch_from_bodies`.

        `offsets` and `leader_epochs` are in the order of the partitions.
        """
        values, count = self._values, self._count
        values[1] = values[2] = now_ms
        if count == 1:  # most commits
            values[4], values[5], values[7] = offsets[0], leader_epochs[0], now_ms
        else:
            values[_HEAD_VALUES + 1 :: _RECORD_VALUES] = offsets
            values[_HEAD_VALUES + 2 :: _RECORD_VALUES] = leader_epochs
            values[_HEAD_VALUES + 4 :: _RECORD_VALUES] = [now_ms] * count
        checked = self._pack(*values)
        crc = crc32c(checked)
        length = self._length
        batch = memoryview(bytearray(_pack_start(0, length, NO_LEADER_EPOCH, MAGIC, crc) + checked))
        return batch, BatchHeader(
            0, length, NO_LEADER_EPOCH, MAGIC, crc, 0, count - 1, now_ms, now_ms, -1, -1, -1, count
        )
