"""Repeated commits: a member commits the same partitions again, with other offsets.

The usual way of a command (`CoordinatorRuntime.submit`) takes longer than the append itself. A `RepeatedCommit` makes
the same decision in fewer steps: check the member, append the batch, apply the offsets, reply once committed. Whenever
anything else would have to be done, it does nothing, and its caller submits the command in the usual way.
"""

from collections.abc import Sequence
from itertools import repeat

from kwire.clock import Clock
from kwire.coordinator.decisions import Moment
from kwire.coordinator.group.commands import CommitOffsets, CommittedOffset
from kwire.coordinator.group.offsets.commit_batch import CommitBatch
from kwire.coordinator.group.shard import GroupShard
from kwire.coordinator.runtime import CoordinatorRuntime, Done, Shard


class RepeatedCommit:
    """Commits of the same member, partitions and metadata."""

    __slots__ = ("_batch", "_clock", "_command", "_keys", "_metadata", "_runtime", "_shard", "_topic_ids")

    def __init__(
        self, runtime: CoordinatorRuntime[GroupShard], clock: Clock, command: CommitOffsets, metadata_max_bytes: int
    ) -> None:
        """The offsets of `command` are not used. Raises ValueError if its commits cannot be repeated."""
        if command.transaction is not None or command.retention_time_ms >= 0:
            raise ValueError("the records of this commit are not plain ones")
        if any(len(one.metadata) > metadata_max_bytes for one in command.offsets):
            raise ValueError("metadata is too large")
        self._runtime = runtime
        self._clock = clock
        self._command = command
        self._batch = CommitBatch(command.group_id, command.offsets)
        self._keys = [(command.group_id, one.topic, one.partition) for one in command.offsets]
        self._metadata = [one.metadata for one in command.offsets]
        self._topic_ids = [one.topic_id for one in command.offsets]
        self._shard: Shard[GroupShard] | None = None

    def commit(self, offsets: Sequence[int], leader_epochs: Sequence[int]) -> bool:
        """Append and apply a commit, and return True. Return False, without effect, if the command must be submitted.

        `offsets` and `leader_epochs` are in the order of the command's offsets. After True, the caller checks
        `is_committed` or calls `on_committed`, before it commits again.
        """
        runtime, clock = self._runtime, self._clock
        shard = self._shard
        if shard is None:
            shard = self._shard = runtime.loaded_shard(self._command.group_id)
        if shard is None or not runtime.is_free(shard):
            return False
        machine = shard.machine
        now_ms = clock.now_ms()
        if not machine.may_commit_again(self._command, Moment(int(clock.monotonic() * 1000), now_ms)):
            return False
        batch, header = self._batch.build(offsets, leader_epochs, now_ms)
        if not runtime.append_batch(shard, batch, header, now_ms):
            return False
        committed = map(
            CommittedOffset, offsets, leader_epochs, self._metadata, repeat(now_ms), repeat(-1), self._topic_ids
        )
        machine.offsets.apply_committed(zip(self._keys, committed, strict=True))
        return True

    @property
    def is_committed(self) -> bool:
        """Whether the last commit is committed."""
        shard = self._shard
        return shard is not None and shard.committed_offset >= shard.end_offset

    def on_committed(self, done: Done) -> None:
        """Call `done` when the last commit is committed, or with the error. It may be called before this returns."""
        assert self._shard is not None
        self._runtime.on_committed(self._shard, done)
