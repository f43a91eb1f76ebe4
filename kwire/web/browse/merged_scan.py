"""MergedScan: the scans of several partitions as one scan in the order of the timestamps.

The order is exact if the timestamps within each partition ascend. Otherwise a record with an early timestamp comes
late. The records of one partition always keep the order of their offsets.
"""

from collections.abc import AsyncGenerator, Sequence
from heapq import heapify, heappop, heappush

from kwire.web.browse.partition_scans import Pacer, PartitionScan
from kwire.web.browse.record_json import FoundRecord

# Records that one chunk of a partition may add.
PENDING_PER_CHUNK_MAX = 500
# The maximum size of the records that were found and not sent yet. Above it, all but one of each partition are dropped
# and found again later.
PENDING_BYTES_MAX = 2 * 1024 * 1024


class MergedScan:
    """Examines that partition next whose unexamined records come first in the order."""

    def __init__(self, scans: Sequence[PartitionScan]) -> None:
        self.scans = scans
        # Partitions that were not examined yet come first.
        self._examine = [(float("-inf"), index) for index in range(len(scans)) if not scans[index].is_done]
        heapify(self._examine)
        # The first pending record of each partition.
        self._first: list[tuple[float, int]] = []
        self._pending_bytes = 0

    async def records(self, pacer: Pacer, count_max: int) -> AsyncGenerator[FoundRecord, None]:
        """Iterate over at most `count_max` records, or all if all partitions were examined before."""
        left = count_max
        while left > 0:
            while self._first and left > 0 and (not self._examine or self._first[0][0] <= self._examine[0][0]):
                left -= 1
                yield self._take()
            if not left or not self._examine:
                return
            _, index = heappop(self._examine)
            await self._advance(index, pacer, min(left, PENDING_PER_CHUNK_MAX))
            if self._pending_bytes > PENDING_BYTES_MAX:
                self._shed()

    @property
    def is_done(self) -> bool:
        return not self._examine and not self._first

    @property
    def offsets_left(self) -> int:
        return sum(scan.offsets_left for scan in self.scans)

    def next_offsets(self) -> dict[int, int]:
        """Return where a later scan continues, by partition."""
        return {scan.log.partition: scan.next_offset for scan in self.scans}

    def release(self) -> None:
        """Release the memory of the logs before a longer wait."""
        for scan in self.scans:
            scan.release()

    async def _advance(self, index: int, pacer: Pacer, count_max: int) -> None:
        scan = self.scans[index]
        count = len(scan.pending)
        await scan.advance(pacer, count_max)
        self._pending_bytes += sum(scan.pending[at].record.kept_bytes for at in range(count, len(scan.pending)))
        if scan.pending and not count:
            heappush(self._first, (scan.pending[0].rank, index))
        if not scan.is_done:
            heappush(self._examine, (_rank(scan), index))

    def _take(self) -> FoundRecord:
        _, index = heappop(self._first)
        pending = self.scans[index].pending
        record = pending.popleft().record
        self._pending_bytes -= record.kept_bytes
        if pending:
            heappush(self._first, (pending[0].rank, index))
        return record

    def _shed(self) -> None:
        for scan in self.scans:
            scan.drop_after_first()
        self._pending_bytes = sum(scan.pending[0].record.kept_bytes for scan in self.scans if scan.pending)
        self._examine = [(_rank(scan), index) for index, scan in enumerate(self.scans) if not scan.is_done]
        heapify(self._examine)


def _rank(scan: PartitionScan) -> float:
    return float("-inf") if scan.rank is None else scan.rank
