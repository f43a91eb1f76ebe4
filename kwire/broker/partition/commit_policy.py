"""Commit policies decide when appended records are committed, and when a sync is requested for them.

Committed records are below the high watermark. They can be read, and produce requests with `acks=all` are answered for
them. A partition calls its policy after an append, after a sync and when its log is opened. The partition gets a new
policy when the settings of its topic change. A policy that waits for replicas would keep its own state, and call the
partition's `advance` when the replicas have answered.
"""

from typing import TYPE_CHECKING, Protocol

from kwire.config.resources.topic import TopicSettings

if TYPE_CHECKING:
    from kwire.broker.partition.partition import Partition

NEVER_MS = 2**63 - 1
NO_LIMIT = 2**63 - 1


class Syncs(Protocol):
    """Makes appended records durable without blocking the event loop: `sync_rounds.py`."""

    def add(self, partition: "Partition") -> None:
        """Sync everything appended to the partition so far, in the next round. Then call the partition's `end_sync`."""
        ...

    def add_within(self, partition: "Partition", delay_ms: int) -> None:
        """Call `add` for the partition after `delay_ms`."""
        ...


class CommitPolicy(Protocol):
    """Decides when appended records are committed."""

    @property
    def is_immediate(self) -> bool:
        """Whether every append is committed immediately. If so, the partition does not call `appended`."""
        ...

    def appended(self, partition: "Partition", log_end_offset: int, synced_offset: int) -> None:
        """Commit the appended records, or request the sync that they need first. Called after each append."""
        ...

    def committed_offset(self, log_end_offset: int, synced_offset: int) -> int:
        """The offset up to which records are committed after a sync."""
        ...

    def recovered_offset(self, log_end_offset: int, synced_offset: int) -> int:
        """The offset up to which records are committed in a log that has just been opened."""
        ...


class PageCache:
    """Records are committed when they are in the page cache of the operating system: `kwire.log.sync=os`.

    With `flush.messages`: if at least this many records are not synced after an append, only a sync commits the append.
    With `flush.ms`, the policy requests a sync this long after an append.
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
    """Records are committed when a sync round has written them to disk: `kwire.log.sync=group`."""

    __slots__ = ("_syncs",)

    is_immediate = False

    def __init__(self, syncs: Syncs) -> None:
        self._syncs = syncs

    def appended(self, partition: "Partition", log_end_offset: int, synced_offset: int) -> None:
        self._syncs.add(partition)

    def committed_offset(self, log_end_offset: int, synced_offset: int) -> int:
        return synced_offset

    def recovered_offset(self, log_end_offset: int, synced_offset: int) -> int:
        # If the server was killed, its last records may be only in the page cache. A power failure could lose them.
        return synced_offset


def commit_policy(settings: TopicSettings, syncs: Syncs) -> CommitPolicy:
    """The commit policy for a topic's settings."""
    if settings.is_group_synced:
        return SyncRound(syncs)
    return PageCache(syncs, settings.unsynced_messages_max, settings.flush_ms)
