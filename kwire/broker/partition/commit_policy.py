"""Commit policies: when appended records are committed, and when a sync is requested for them.

Committed records lie below the high watermark: they can be read, and `acks=all` is answered for them. A partition asks
its policy after an append, after a sync and when its log is opened; it gets a new policy when the settings of its
topic change. A policy that waits for replicas keeps its own state and calls `advance` when they have answered.
"""

from typing import TYPE_CHECKING, Protocol

from kwire.topic_config import TopicSettings

if TYPE_CHECKING:
    from kwire.broker.partition.partition import Partition

NEVER_MS = 2**63 - 1
NO_LIMIT = 2**63 - 1


class Syncs(Protocol):
    """Makes appended records durable, off the event loop: `sync_rounds.py`."""

    def add(self, partition: "Partition") -> None:
        """Sync everything appended to it so far, soon; then its `end_sync` is called."""
        ...

    def add_within(self, partition: "Partition", delay_ms: int) -> None:
        """The same after `delay_ms`."""
        ...


class CommitPolicy(Protocol):
    @property
    def is_immediate(self) -> bool:
        """Whether each append is committed at once and needs nothing else: then `appended` is not called."""
        ...

    def appended(self, partition: "Partition", log_end_offset: int, synced_offset: int) -> None:
        """Records have been appended: commit them, or request what has to come first."""
        ...

    def committed_offset(self, log_end_offset: int, synced_offset: int) -> int:
        """Up to which offset records are committed after a sync."""
        ...

    def recovered_offset(self, log_end_offset: int, synced_offset: int) -> int:
        """Up to which offset records are committed in a log that was opened just now."""
        ...


class PageCache:
    """Records are committed when the operating system has them: `kwire.log.sync=os`.

    With `flush.messages` an append that leaves this many records unsynced waits for a sync. With `flush.ms` a sync
    follows within this time.
    """

    __slots__ = ("_flush_messages", "_flush_ms", "_syncs", "is_immediate")

    def __init__(self, syncs: Syncs, flush_messages: int = NO_LIMIT, flush_ms: int = NEVER_MS) -> None:
        self._syncs = syncs
        self._flush_messages = flush_messages
        self._flush_ms = flush_ms
        self.is_immediate = flush_messages == NO_LIMIT and flush_ms == NEVER_MS

    def appended(self, partition: "Partition", log_end_offset: int, synced_offset: int) -> None:
        if log_end_offset - synced_offset >= self._flush_messages:
            self._syncs.add(partition)
            return
        partition.commit_all()
        if self._flush_ms != NEVER_MS:
            partition.sync_within(self._flush_ms)

    def committed_offset(self, log_end_offset: int, synced_offset: int) -> int:
        return log_end_offset if log_end_offset - synced_offset < self._flush_messages else synced_offset

    def recovered_offset(self, log_end_offset: int, synced_offset: int) -> int:
        return log_end_offset


class SyncRound:
    """Records are committed when a sync round has put them on disk: `kwire.log.sync=group`."""

    __slots__ = ("_syncs",)

    is_immediate = False

    def __init__(self, syncs: Syncs) -> None:
        self._syncs = syncs

    def appended(self, partition: "Partition", log_end_offset: int, synced_offset: int) -> None:
        self._syncs.add(partition)

    def committed_offset(self, log_end_offset: int, synced_offset: int) -> int:
        return synced_offset

    def recovered_offset(self, log_end_offset: int, synced_offset: int) -> int:
        # A killed server left records in the page cache that a power cut could still take back.
        return synced_offset


def commit_policy(settings: TopicSettings, syncs: Syncs) -> CommitPolicy:
    """The policy that a topic's settings ask for."""
    if settings.is_group_synced:
        return SyncRound(syncs)
    return PageCache(syncs, settings.unsynced_messages_max, settings.flush_ms)
