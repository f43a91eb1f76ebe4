"""Transactions as one log sees them: open ones, ended ones that not everybody may know of yet, and aborted ones.

A transaction is the transactional batches of one producer up to its next marker, a control batch that commits or aborts
them. Readers of committed data read below the *last stable offset*: below the beginning of every transaction that is
open, or whose marker nobody may read yet. Pure; what is known is kept in the partition's checkpoint.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final, NamedTuple

# Ended transactions that are told apart while their markers wait to be readable; later ones count as one.
UNDECIDED_MAX: Final = 1000


class AbortedTransaction(NamedTuple):
    """``last_offset`` is that of the ABORT marker: up to it readers skip what the producer wrote."""

    producer_id: int
    first_offset: int
    last_offset: int


class OpenTransaction(NamedTuple):
    """``producer_epoch`` is the newest one known of its producer."""

    first_offset: int
    producer_epoch: int


class UnstableTransactions:
    """Where the transactions begin that readers of committed data have to wait for."""

    __slots__ = ("_undecided", "open")

    def __init__(self) -> None:
        # First offsets by producer; a transaction begins behind all others, so they are in order.
        self.open: OrderedDict[int, int] = OrderedDict()
        # (first offset, marker's offset), both rising: one that begins later and is decided earlier than another never
        # holds anybody up by itself, so it is left out.
        self._undecided: deque[tuple[int, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self.open or self._undecided)

    @property
    def undecided(self) -> list[tuple[int, int]]:
        return list(self._undecided)

    def restore(self, opened: Iterable[tuple[int, int]], undecided: Iterable[tuple[int, int]]) -> None:
        """``opened`` are producers with their first offsets, in any order."""
        in_order = sorted(opened, key=lambda one: one[1])
        self.open.clear()
        self.open.update(in_order)
        self._undecided = deque(undecided)

    def end(self, producer_id: int, marker_offset: int) -> int | None:
        """A marker was written; the first offset of the transaction that it ends, if there is one."""
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
        """Where the first transaction begins that is not decided for those who read below ``high_watermark``.

        It only rises, so what is decided once is forgotten.
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
        """The log now ends at ``end_offset``; what its markers had ended has to be opened again by the caller."""
        for producer_id in [one for one, first_offset in self.open.items() if first_offset >= end_offset]:
            del self.open[producer_id]
        kept = deque(one for one in self._undecided if one[1] < end_offset)
        if len(kept) < len(self._undecided):
            # Those that were left out for its sake may have markers that stay: up to there nobody passes it, either.
            first_offset = self._undecided[len(kept)][0]
            if first_offset < end_offset:
                kept.append((first_offset, end_offset - 1))
        self._undecided = kept
