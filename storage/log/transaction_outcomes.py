"""How the transactions of a stretch of log ended, found from its own control batches.

A transaction is the transactional batches of one producer up to its next marker. One whose marker has not been met is
open, and nothing from its first batch on may be compacted: it may still be aborted.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from storage.batch import BatchHeader
from storage.format import ABORT, COMMIT

# Transactions that are followed at once: aborted ones to be taken out, and open ones. Memory, so bounded.
TRANSACTIONS_MAX: Final = 200_000

_LATER: Final = 2**63


class TransactionFates:
    """First told of every batch in order (:meth:`note`), then asked about data batches."""

    __slots__ = ("_aborted", "_aborted_count", "_open")

    def __init__(self) -> None:
        # By producer: first offset and marker's offset of its aborted transactions, in order.
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        self._aborted_count = 0
        self._open: dict[int, int] = {}

    @property
    def is_full(self) -> bool:
        return self._aborted_count + len(self._open) >= TRANSACTIONS_MAX

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest transaction begins whose end was not met."""
        return min(self._open.values(), default=None)

    def note(self, header: BatchHeader, marker: int | None) -> None:
        """``marker`` is the type of a control batch's record."""
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
        """Whether a data batch belongs to a transaction that was aborted."""
        if not header.is_transactional:
            return False
        ranges = self._aborted.get(header.producer_id)
        if ranges is None:
            return False
        at = bisect_right(ranges, (header.base_offset, _LATER)) - 1
        return at >= 0 and header.base_offset < ranges[at][1]
