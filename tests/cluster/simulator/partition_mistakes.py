"""Mistakes that are planted in the replicas of partitions."""

from typing import Final

from kwire.cluster.core.store import replica, segment_store
from kwire.cluster.segment_files import partition_log, segment_files
from tests.cluster.simulator.mistakes import NO_BIAS, Mistake
from tests.cluster.simulator.stream_kinds import runs_partition

PARTITION_MISTAKES: Final = (
    Mistake(
        "P1",
        "a batch is not durable when the frame that refers to it is",
        segment_files.SegmentFiles,
        "_flush",
        "self._logs[stream].sync()",
        "pass",
        seed=87,
        bias=NO_BIAS,
        only=runs_partition,
    ),
    Mistake(
        "P2",
        "entries of a segment are stored before the one before it is closed",
        segment_store.SegmentStore,
        "_store",
        "if not self._has_all_before(request.segment):",
        "if False:",
        seed=3,
        bias=NO_BIAS,
        only=runs_partition,
    ),
    Mistake(
        "P3",
        "entries are stored after a gap",
        replica,
        "_last_without_gap",
        "return matched",
        "return max([matched, *(entry.index for entry in entries)])",
        seed=2,
        bias=NO_BIAS,
        only=runs_partition,
    ),
    Mistake(
        "P4",
        "the bytes of a batch are not compared when it is read",
        partition_log.PartitionLog,
        "read",
        "if len(batch) != ref.size_bytes or crc32c(batch) != ref.crc:",
        "if False:",
        seed=31,
        bias=NO_BIAS,
        only=runs_partition,
    ),
    Mistake(
        "P5",
        "a segment that lost batches stays closed",
        segment_files.SegmentFiles,
        "_rewrite",
        "generation=generation, closed_end=0",
        "generation=generation",
        seed=8,
        bias=NO_BIAS,
        only=runs_partition,
    ),
)
