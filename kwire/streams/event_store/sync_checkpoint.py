"""The sync checkpoint: every event below this journal position is durable in its own topic.

Recovery therefore reads the journal from the checkpoint on. After CHECKPOINT_BYTES of commits, all topics that were
written to are synced. When all these syncs have finished, the checkpoint advances. Commits do not wait for these syncs.
Only a stop of the server waits for them.
"""

from collections.abc import Iterable

from kwire.broker.partition import Partition, Syncs

# Size of the commits between two checkpoints. Recovery reads at most about twice as much of the journal. Syncing this
# much takes a few milliseconds. Commits that arrive meanwhile share the next sync of the journal.
CHECKPOINT_BYTES = 8 * 1024 * 1024


class SyncCheckpoint:
    """The sync checkpoint, `position`, and the syncs that advance it. Use it only in the event loop's thread."""

    def __init__(self, syncs: Syncs, position: int) -> None:
        self.position = position
        self._syncs = syncs
        # Partitions written to since the last syncs were requested.
        self._touched: dict[Partition, None] = {}
        self._bytes = 0
        self._pending: tuple[int, dict[Partition, int]] | None = None

    @property
    def is_pending(self) -> bool:
        return self._pending is not None

    @property
    def is_stuck(self) -> bool:
        """Whether the checkpoint cannot advance before the next start, because the sync of a topic has failed."""
        return self._pending is not None and any(one.is_open and not one.is_writable for one in self._pending[1])

    def touch(self, partitions: Iterable[Partition], size_bytes: int) -> None:
        """Record that `size_bytes` in total were written to these partitions."""
        self._touched |= dict.fromkeys(partitions)
        self._bytes += size_bytes

    def request_syncs_if_due(self, position: int, bytes_min: int = CHECKPOINT_BYTES) -> None:
        """Request syncs if none are pending and at least `bytes_min` were written since the last request.

        When the syncs have finished, `position` becomes the checkpoint. All events below `position` must have been
        appended to their topics before this call.
        """
        self.advance()
        if self._pending is not None or self._bytes < bytes_min or position <= self.position:
            return
        touched, self._touched, self._bytes = self._touched, {}, 0
        ends = {one: one.log_end_offset for one in touched if _may_need_sync(one)}
        self._pending = position, ends
        for partition in ends:
            self._syncs.add(partition)
        self.advance()

    def advance(self) -> None:
        """Advance the checkpoint if all requested syncs have finished."""
        if self._pending is None:
            return
        position, ends = self._pending
        for partition in [one for one, end in ends.items() if not _may_need_sync(one) or _is_synced(one, end)]:
            del ends[partition]
        if not ends:
            self.position = position
            self._pending = None


def _may_need_sync(partition: Partition) -> bool:
    # A log is closed only after a sync. A deleted log needs no sync.
    return partition.is_open and not partition.is_forgotten


def _is_synced(partition: Partition, end: int) -> bool:
    return partition.synced_offset >= end
