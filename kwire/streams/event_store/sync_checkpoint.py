"""How far the topics are on disk by themselves: below the mark nobody needs the journal for a repair.

After some megabytes of commits the topics that were written to are asked for a sync; when each has one that covers what
it had then, the mark moves there. Nobody waits for it but the stop.
"""

from collections.abc import Iterable

from kwire.broker.partition import Partition, Syncs

# A start reads about twice as much of the journal at most. A sync of so much takes a few milliseconds, and the commits
# that come meanwhile share the next round.
MARK_BYTES = 8 * 1024 * 1024


class SyncMark:
    """Called from the event loop. `position` is the mark: every event below it is safe in its topic."""

    def __init__(self, syncs: Syncs, position: int) -> None:
        self.position = position
        self._syncs = syncs
        # Written to since the last sync was asked for.
        self._touched: dict[Partition, None] = {}
        self._bytes = 0
        self._pending: tuple[int, dict[Partition, int]] | None = None

    @property
    def is_pending(self) -> bool:
        return self._pending is not None

    @property
    def is_stuck(self) -> bool:
        """Whether a topic will not be synced before the next start, because a sync of it has failed."""
        return self._pending is not None and any(one.is_open and not one.is_writable for one in self._pending[1])

    def touch(self, partitions: Iterable[Partition], size_bytes: int) -> None:
        self._touched |= dict.fromkeys(partitions)
        self._bytes += size_bytes

    def begin_if_due(self, position: int, bytes_min: int = MARK_BYTES) -> None:
        """Everything below `position` has been applied: ask for syncs if that is worth it, and none are under way."""
        self.look()
        if self._pending is not None or self._bytes < bytes_min or position <= self.position:
            return
        touched, self._touched, self._bytes = self._touched, {}, 0
        ends = {one: one.log_end_offset for one in touched if _may_be_behind(one)}
        self._pending = position, ends
        for partition in ends:
            self._syncs.add(partition)
        self.look()

    def look(self) -> None:
        """Move the mark if what was asked for has come."""
        if self._pending is None:
            return
        position, ends = self._pending
        for partition in [one for one, end in ends.items() if not _may_be_behind(one) or _is_synced(one, end)]:
            del ends[partition]
        if not ends:
            self.position = position
            self._pending = None


def _may_be_behind(partition: Partition) -> bool:
    # A log is put away only when it is synced; one that was deleted needs nothing.
    return partition.is_open and not partition.is_forgotten


def _is_synced(partition: Partition, end: int) -> bool:
    return partition.synced_offset >= end
