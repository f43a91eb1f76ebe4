"""The transactions of one log: open ones, ended ones whose marker is not visible yet, and aborted ones.

A transaction consists of the transactional batches of one producer up to the producer's next marker. A marker is a
control batch that commits or aborts the transaction. Readers of committed data (read_committed) read below the *last
stable offset*: below the first offset of every transaction that is open, or whose marker is not below the high
watermark. This module does no I/O. The state is stored in the partition's checkpoint.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final, NamedTuple

# At most this many ended transactions with an invisible marker are tracked separately. Further ones are merged into
# the last entry.
UNDECIDED_MAX: Final = 1000


class AbortedTransaction(NamedTuple):
    """An aborted transaction. Readers skip the producer's batches up to the ABORT marker, at ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int


class OpenTransaction(NamedTuple):
    """An open transaction. ``producer_epoch`` is the newest known epoch of its producer."""

    first_offset: int
    producer_epoch: int


class UnstableTransactions:
    """The first offsets of the transactions that readers of committed data have to wait for."""

    __slots__ = ("_undecided", "open")

    def __init__(self) -> None:
        # The first offset of each producer's open transaction. A new transaction begins after all others, so the
        # offsets rise.
        self.open: OrderedDict[int, int] = OrderedDict()
        # (first offset, marker offset), both rising. A transaction that begins later and ends earlier than another one
        # never limits the last stable offset, so it is left out.
        self._undecided: deque[tuple[int, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self.open or self._undecided)

    @property
    def undecided(self) -> list[tuple[int, int]]:
        return list(self._undecided)

    def restore(self, opened: Iterable[tuple[int, int]], undecided: Iterable[tuple[int, int]]) -> None:
        """Replace the state. ``opened`` has (producer id, first offset) pairs in any order."""
        in_order = sorted(opened, key=lambda one: one[1])
        self.open.clear()
        self.open.update(in_order)
        self._undecided = deque(undecided)

    def end(self, producer_id: int, marker_offset: int) -> int | None:
        """Record a marker. Returns the first offset of the transaction that it ends, if there is one."""
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None:
            return None
        undecided = self._undecided
        while undecided and undecided[-1][0] >= first_offset:
            undecided.pop()
        if len(undecided) >= UNDECIDED_MAX:
            first_offset_before, _ = undecided.pop()
            undecided.append((first_offset_before, marker_offset))
        else:
            undecided.append((first_offset, marker_offset))
        return first_offset

    def first_open(self) -> int | None:
        return next(iter(self.open.values())) if self.open else None

    def first_unstable(self, high_watermark: int) -> int | None:
        """The first offset of the earliest transaction that is open or whose marker is not below ``high_watermark``.

        The high watermark only rises, so transactions with visible markers are removed.
        """
        undecided = self._undecided
        while undecided and undecided[0][1] < high_watermark:
            undecided.popleft()
        first_open = self.first_open()
        if not undecided:
            return first_open
        first = undecided[0][0]
        return first if first_open is None else min(first, first_open)

    def truncate(self, end_offset: int) -> None:
        """Remove the state from ``end_offset`` on. The caller reopens transactions whose markers were removed."""
        for producer_id in [one for one, first_offset in self.open.items() if first_offset >= end_offset]:
            del self.open[producer_id]
        kept = deque(one for one in self._undecided if one[1] < end_offset)
        if len(kept) < len(self._undecided):
            # The first removed entry may have replaced transactions that began later and ended earlier, and whose
            # markers remain. So its first offset stays in the list for them.
            first_offset = self._undecided[len(kept)][0]
            if first_offset < end_offset:
                kept.append((first_offset, end_offset - 1))
        self._undecided = kept
