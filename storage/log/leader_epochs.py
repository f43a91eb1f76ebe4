"""Leader epochs: the start offset of each epoch. No I/O: the checkpoint of the partition stores the epochs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

UNDEFINED: Final = -1


class LeaderEpochs:
    """The rising (epoch, start offset) pairs of a log. Only epochs in which batches were written are listed."""

    __slots__ = ("_epochs", "_starts", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that the batch at ``start_offset`` was written in ``epoch``; does nothing unless the epoch is new."""
        if epoch <= self.latest:
            if epoch < self.latest:
                raise ValueError(f"leader epoch {epoch} is below the latest one, {self.latest}")
            return
        # An epoch without batches is removed.
        while self._starts and self._starts[-1] >= start_offset:
            self._starts.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch

    def end_offset_for(self, epoch: int, log_end_offset: int, leader_epoch: int = UNDEFINED) -> tuple[int, int]:
        """(epoch, end offset) of the largest known epoch not above ``epoch``, for OffsetForLeaderEpoch.

        ``leader_epoch`` is the current epoch. While it has no batches, it begins at the log end offset. An epoch older
        than all known epochs ends where the first known epoch begins, because its records are gone. An epoch newer than
        all known epochs is unknown.
        """
        latest = max(self.latest, leader_epoch)
        if epoch == UNDEFINED or epoch > latest or latest == UNDEFINED:
            return UNDEFINED, UNDEFINED
        if epoch == latest:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        end_offset = self._starts[above] if above < len(self._starts) else log_end_offset
        return self._epochs[above - 1] if above else epoch, end_offset

    def epoch_for(self, offset: int) -> int:
        """The leader epoch in which ``offset`` was written."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or after the new log end offset."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs before the new log start offset. The epoch of that offset is kept and begins there."""
        gone = bisect_right(self._starts, start_offset) - 1
        if gone < 0:
            return
        del self._starts[:gone]
        del self._epochs[:gone]
        self._starts[0] = start_offset
