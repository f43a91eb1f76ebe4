"""The outcomes of the transactions in a range of a log, for compaction. The control batches determine them.

A transaction consists of the transactional batches of one producer up to the producer's next marker. Without a marker
the transaction is open. It may still be aborted, so nothing from its first batch on may be compacted.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from storage.batch.format import ABORT, COMMIT
from storage.batch.record_batch import BatchHeader

# At most this many aborted and open transactions are tracked, to bound memory.
TRANSACTIONS_MAX: Final = 200_000

_LATER: Final = 2**63


class TransactionOutcomes:
    """Transaction outcomes: call :meth:`add` for every batch in order, then :meth:`is_aborted` for data batches."""

    __slots__ = ("_aborted", "_aborted_count", "_open")

    def __init__(self) -> None:
        # By producer: (first offset, marker offset) of its aborted transactions, in order.
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        self._aborted_count = 0
        self._open: dict[int, int] = {}

    @property
    def is_full(self) -> bool:
        return self._aborted_count + len(self._open) >= TRANSACTIONS_MAX

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return min(self._open.values(), default=None)

    def add(self, header: BatchHeader, marker: int | None) -> None:
        """Record a batch. ``marker`` is the type of a control batch's record."""
        producer_id = header.producer_id
        if not header.is_control:
            if header.is_transactional:
                self._open.setdefault(producer_id, header.base_offset)
            return
        if marker not in (ABORT, COMMIT):
            return
        first_offset = self._open.pop(producer_id, None)
        if marker == ABORT and first_offset is not None:
            self._aborted.setdefault(producer_id, []).append((first_offset, header.base_offset))
            self._aborted_count += 1

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        ranges = self._aborted.get(header.producer_id)
        if ranges is None:
            return False
        at = bisect_right(ranges, (header.base_offset, _LATER)) - 1
        return at >= 0 and header.base_offset < ranges[at][1]
