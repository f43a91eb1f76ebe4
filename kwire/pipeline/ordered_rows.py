"""Iterates over the rows of a DataFrame in order, with only a small part of them in memory.

The driver receives one partition of a DataFrame at a time. By default a sorted DataFrame has a fixed number of
partitions, so the partitions of a large DataFrame would be too large for the driver. So the DataFrame is first divided
into a number of partitions that depends on its size.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The intended size of a partition. Spark computes the bounds of partitions from a sample of the rows, so some
# partitions are larger. The driver holds two partitions: it fetches the next one while the current one is read.
PART_ROWS = 20_000
PART_BYTES = 16 * 1024 * 1024
# The maximum number of partitions. Each needs memory in the driver, and an open block in every task that distributes
# rows. Above this number, the partitions are larger.
PARTS_MAX = 10_000


def part_count(rows: int, size_bytes: int) -> int:
    return min(PARTS_MAX, max(rows // PART_ROWS, size_bytes // PART_BYTES) + 1)


def rows_in_order(frame: "DataFrame", by: Sequence[str], rows: int, size_bytes: int = 0) -> Iterator[Any]:
    """Yield the rows of a DataFrame, sorted by these columns. `rows` and `size_bytes` are estimates of its size."""
    parts = frame.repartitionByRange(part_count(rows, size_bytes), *by)
    yield from parts.sortWithinPartitions(*by).toLocalIterator(prefetchPartitions=True)
