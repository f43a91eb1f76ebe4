"""Which leader wrote what: the offset at which each leader epoch began. Pure; kept in the partition's checkpoint."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

UNDEFINED: Final = -1


class LeaderEpochs:
    """Rising (epoch, start offset) pairs; only epochs that wrote something are listed."""

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
        """The batch at ``start_offset`` was written under ``epoch``; nothing happens unless the epoch is new."""
        if epoch <= self.latest:
            if epoch < self.latest:
                raise ValueError(f"epoch {epoch} after {self.latest}")
            return
        # An epoch that wrote nothing before its successor began is forgotten.
        while self._starts and self._starts[-1] >= start_offset:
            self._starts.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch

    def end_offset_for(self, epoch: int, log_end_offset: int, leader_epoch: int = UNDEFINED) -> tuple[int, int]:
        """The largest known epoch not above ``epoch`` and where it ended: OffsetForLeaderEpoch's answer.

        ``leader_epoch`` is the one in force: as long as it has written nothing, it begins where the log ends. An epoch
        older than all known ones ends where the first known one begins (its records are gone), and so does one that
        cannot be; one that is newer than all is unknown.
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
        """The epoch that wrote ``offset``."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at ``end_offset``."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at ``start_offset``; the epoch in force there is kept and begins there."""
        gone = bisect_right(self._starts, start_offset) - 1
        if gone < 0:
            return
        del self._starts[:gone]
        del self._epochs[:gone]
        self._starts[0] = start_offset
