"""Rows of a frame one after the other, in order, with few of them in memory.

Spark hands the driver a whole partition of a frame at a time, and sorts into as many partitions as its settings say,
however much there is. So a frame is divided by how much there is before it is sorted.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark divides by a sample, so some parts are larger, and the next one is fetched while one is being read.
PART_ROWS = 20_000
PART_BYTES = 16 * 1024 * 1024
# Each costs the driver some memory and every task that sorts an open block; past this, parts get larger.
PARTS_MAX = 10_000


def part_count(rows: int, size_bytes: int) -> int:
    return min(PARTS_MAX, max(rows // PART_ROWS, size_bytes // PART_BYTES) + 1)


def rows_in_order(frame: "DataFrame", by: Sequence[str], rows: int, size_bytes: int = 0) -> Iterator[Any]:
    """`rows` and `size_bytes` say about how much there is."""
    parts = frame.repartitionByRange(part_count(rows, size_bytes), *by)
    yield from parts.sortWithinPartitions(*by).toLocalIterator(prefetchPartitions=True)
