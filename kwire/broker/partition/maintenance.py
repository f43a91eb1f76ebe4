"""Maintenance of a partition's log: the operations of retention, compaction, scrub, relocation, repair and metrics."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from storage.disk.files import Files
from storage.errors import StorageFailed
from storage.log.log import Damage, Log
from storage.log.quarantine import Quarantine
from storage.log.segment_ages import LogAges, open_log_ages
from storage.log.segment_replacement import NewSegment, SegmentReplacement
from storage.log.start_offset import LogStartUpdate
from storage.relocation.relocation import CopyRound, LogMove, MovedLog, can_switch
from storage.segment.facts import SegmentSurvey
from storage.segment.segment import LogSegment
from storage.snapshot.log_snapshot import LogSnapshot

if TYPE_CHECKING:
    from kwire.broker.partition.partition import Partition


class LogMaintenance:
    """The maintenance operations of one opened log of a partition.

    Methods are called in the event loop's thread, unless their docstring says otherwise. When the log is parked, moved
    to another data directory or deleted, `is_current` becomes False. Results of work on the log must then be discarded.
    """

    __slots__ = ("_log", "_partition")

    def __init__(self, partition: "Partition", log: Log) -> None:
        self._partition = partition
        self._log = log

    @property
    def is_current(self) -> bool:
        """Whether this is still the open log of the partition."""
        return self._partition._log is self._log

    # --- facts

    @property
    def directory(self) -> str:
        return self._log.directory

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def is_writable(self) -> bool:
        return self._log.is_writable

    @property
    def damage(self) -> Damage | None:
        return self._log.damage

    @property
    def quarantined(self) -> tuple[Quarantine, ...]:
        return self._log.quarantined

    @property
    def torn_bytes(self) -> int:
        """The bytes of an incomplete write that were truncated when the log was opened."""
        return self._log.torn_bytes

    @property
    def segment_count(self) -> int:
        return self._log.segment_count

    def segments(self) -> Iterator[LogSegment]:
        """All segments in the order of their offsets. The last one is the active segment, unless it is sealed."""
        return self._log.segments()

    def survey(self, after: int, count_max: int, files: Files) -> list[SegmentSurvey]:
        """Return the segments whose base offsets are above `after`, at most `count_max`, to read their facts."""
        above = (one for one in self._log.segments() if one.base_offset > after)
        return [SegmentSurvey(one, self._log.directory, files) for one in islice(above, count_max)]

    # --- periodic maintenance of open logs

    def tidy(self, now_ms: int, producer_id_expiration_ms: int) -> None:
        """Remove expired producers, release the resources of idle segments, and retry seals that have failed."""
        self._log.producers.expire(now_ms, producer_id_expiration_ms)
        self._log.release()
        self._log.retry_seals()

    def park(self) -> bool:
        """Close an idle log until it is used again. Returns False if the log is in use, not synced or damaged."""
        partition, log = self._partition, self._log
        is_in_use = partition.is_syncing or partition.has_waiting
        if not is_in_use and log.is_writable and log.synced_offset < log.log_end_offset:
            # A log can be parked only if it is synced. With `kwire.log.sync=os` no other code requests the sync.
            partition._syncs.add(partition)
            return False
        # A damaged log stays open, so that the metrics continue to report the damage.
        if is_in_use or log.quarantined or log.damage is not None or not log.park():
            return False
        partition.stored_bytes = log.size_bytes
        partition._parked_stable_offset = partition.last_stable_offset
        partition._log = None
        return True

    def end_background_work(self) -> None:
        """Wait for the background jobs of a log that is about to be deleted. No other jobs start after this call.

        May be called in any thread.
        """
        self._log.end_background_work()

    def fail(self, failure: StorageFailed) -> None:
        """Make the log refuse further records, because a failed sync may have lost some of its pages."""
        self._log.poison(failure)

    # --- the log start: retention and DeleteRecords

    def ages(self, files: Files) -> LogAges:
        """Return the sizes, offsets and ages of the segments, for retention. This reads nothing from the disk."""
        return open_log_ages(self._log, self._partition.high_watermark, files)

    def begin_start_update(self, offset: int) -> LogStartUpdate:
        """Begin to raise the log start offset durably.

        The caller runs the update in a thread, and then calls its `finish` or `fail` in the event loop's thread.
        """
        return LogStartUpdate(self._log, offset)

    def drop_segments(self) -> list[LogSegment]:
        """Remove segments that end at or below the log start offset from the log. Their files are not deleted."""
        first = next(self._log.segments(), None)
        if first is None or first.next_offset > self._log.log_start_offset:
            return []
        return self._log.drop_segments()

    # --- compaction

    @property
    def clean_upto(self) -> int:
        """The offset below which compaction has cleaned the log."""
        return self._log.clean_upto

    def encoded_producers(self) -> bytes:
        return self._log.producers.encode()

    def roll(self, now_ms: int) -> None:
        """Seal the active segment."""
        self._log.roll(now_ms)

    def begin_replacement(
        self, removed: Sequence[LogSegment], added: Sequence[NewSegment], clean_upto: int
    ) -> SegmentReplacement:
        """Begin to replace segments by cleaned segments.

        The caller runs the replacement in a thread, and then calls its `finish` or `fail` in the event loop's thread.
        """
        return self._log.begin_replacement(removed, added, clean_upto)

    # --- damage

    def quarantine(self, found: Quarantine) -> None:
        """Quarantine a range of damaged bytes. Reads in the range fail, also after a restart."""
        self._log.quarantine(found)

    def truncate(self, offset: int) -> None:
        """Remove all records from `offset` on. This blocks until the disk has finished."""
        self._log.truncate(offset)

    # --- backups

    def snapshot(self, previous: LogSnapshot | None = None) -> LogSnapshot:
        """Describe the files of the log as they are now. `previous` is an earlier snapshot of the same log."""
        return LogSnapshot(self._log, previous)

    # --- relocation

    @property
    def is_move_committed(self) -> bool:
        """Whether the last move of this log is committed, so that the log's old folder is no longer needed."""
        return not isinstance(self._log, MovedLog) or self._log.is_move_committed

    def commit_move(self) -> None:
        """Commit the last move of this log. May be called in any thread."""
        if isinstance(self._log, MovedLog):
            self._log.commit_move()

    def move_lag(self, move: LogMove) -> int:
        """Return the number of offsets that are not in the copy yet."""
        return move.lag(self._log)

    def plan_copy(self, move: LogMove) -> CopyRound:
        """Plan the next round of copying."""
        return move.plan(self._log)

    def switch(self, move: LogMove, rest_bytes_max: int) -> bool:
        """Switch the partition to the copy. Returns False if that is not possible now.

        This call copies the remaining bytes. If there are more than `rest_bytes_max`, it returns False. Committed
        records stay readable, and waiting calls continue to wait.
        """
        partition, log = self._partition, self._log
        if partition.is_syncing or not self.is_current or not can_switch(log):
            return False
        rest = move.plan(log)
        if not rest.is_small(rest_bytes_max):
            return False
        partition._log = move.switch(log, rest)
        return True
