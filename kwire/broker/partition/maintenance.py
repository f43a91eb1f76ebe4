"""Maintenance of a partition's log: the operations of retention, compaction, scrub, relocation, repair and metrics."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from storage.errors import StorageFailed
from storage.files import Files
from storage.log import Damage, Log
from storage.log_ages import AgingLog, age_open_log
from storage.log_start import StartMove
from storage.moving import CopyRound, LogMove, MovedLog, can_switch
from storage.quarantine import Quarantine
from storage.replacement import NewSegment, SegmentSwap
from storage.segment import LogSegment

if TYPE_CHECKING:
    from kwire.broker.partition.partition import Partition


class LogMaintenance:
    """The handle for one opened log of a partition. Called from the event loop, except where a method says otherwise.

    A partition that is parked, moved to another data directory or deleted leaves its log: `is_current` is False from
    then on, and results of work on the old log have to be dropped.
    """

    __slots__ = ("_log", "_partition")

    def __init__(self, partition: "Partition", log: Log) -> None:
        self._partition = partition
        self._log = log

    @property
    def is_current(self) -> bool:
        """Whether the partition still has this log."""
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
        """Bytes of unfinished writes that were cut off when the log was opened."""
        return self._log.torn_bytes

    @property
    def segment_count(self) -> int:
        return self._log.segment_count

    def segments(self) -> Iterator[LogSegment]:
        """In the order of their offsets; the last one takes the appends, unless it is sealed."""
        return self._log.segments()

    # --- every open log, now and then

    def tidy(self, now_ms: int, producer_id_expiration_ms: int) -> None:
        """Forget expired producers, release what idle segments hold, and retry seals that have failed."""
        self._log.producers.expire(now_ms, producer_id_expiration_ms)
        self._log.release()
        self._log.retry_seals()

    def park(self) -> bool:
        """Close an idle log until it is needed again; False if it is in use just now."""
        partition, log = self._partition, self._log
        is_in_use = partition.is_syncing or partition.has_waiting
        if not is_in_use and log.is_writable and log.synced_offset < log.log_end_offset:
            # With `os` nothing else requests the sync, and a log that is not synced cannot be parked.
            partition._syncs.add(partition)
            return False
        # A damaged log stays open, so that the metrics continue to report it.
        if is_in_use or log.quarantined or log.damage is not None or not log.park():
            return False
        partition.stored_bytes = log.size_bytes
        partition._parked_stable_offset = partition.last_stable_offset
        partition._log = None
        return True

    def end_background_work(self) -> None:
        """In any thread: wait until no job works on the files of a log that is about to be deleted, and start none."""
        self._log.end_background_work()

    def fail(self, failure: StorageFailed) -> None:
        """Take no more records: pages of the log may be lost."""
        self._log.poison(failure)

    # --- the log start: retention and DeleteRecords

    def ages(self, files: Files) -> AgingLog:
        """The extent and the segments of the log as retention judges them; reads nothing from the disk."""
        return age_open_log(self._log, self._partition.high_watermark, files)

    def begin_start_move(self, offset: int) -> StartMove:
        """Let the log start at `offset`, durably: run the move in a thread, then finish it, or fail it, here."""
        return StartMove(self._log, offset)

    def drop_segments(self) -> list[LogSegment]:
        """Take out the segments that lie wholly below the log start; their files stay for now."""
        first = next(self._log.segments(), None)
        if first is None or first.next_offset > self._log.log_start_offset:
            return []
        return self._log.drop_segments()

    # --- compaction

    @property
    def clean_upto(self) -> int:
        """Compaction has cleaned everything below this offset."""
        return self._log.clean_upto

    def encoded_producers(self) -> bytes:
        return self._log.producers.encode()

    def roll(self, now_ms: int) -> None:
        """Seal the segment that takes the appends."""
        self._log.roll(now_ms)

    def begin_replacement(
        self, removed: Sequence[LogSegment], added: Sequence[NewSegment], clean_upto: int
    ) -> SegmentSwap:
        """Replace segments by cleaned ones: run the swap in a thread, then finish it, or fail it, here."""
        return self._log.begin_replacement(removed, added, clean_upto)

    # --- damage

    def quarantine(self, found: Quarantine) -> None:
        """Keep readers away from damaged bytes, also after a restart."""
        self._log.quarantine(found)

    def truncate(self, offset: int) -> None:
        """Remove everything from `offset` on; waits for the disk."""
        self._log.truncate(offset)

    # --- relocation

    @property
    def is_settled(self) -> bool:
        """Whether no earlier move of this log still needs the folder that it came from."""
        return not isinstance(self._log, MovedLog) or self._log.is_settled

    def settle(self) -> None:
        """In any thread: make an earlier move final."""
        if isinstance(self._log, MovedLog):
            self._log.settle()

    def move_lag(self, move: LogMove) -> int:
        """Offsets that the copy does not have yet."""
        return move.lag(self._log)

    def plan_copy(self, move: LogMove) -> CopyRound:
        """What is to be copied now."""
        return move.plan(self._log)

    def switch(self, move: LogMove, rest_bytes_max: int) -> bool:
        """Continue in the other data directory, in this loop turn; False if this is not the moment for it.

        The rest, at most `rest_bytes_max`, is copied here. Committed records stay readable, and waiting callers
        continue to wait.
        """
        partition, log = self._partition, self._log
        if partition.is_syncing or not self.is_current or not can_switch(log):
            return False
        rest = move.plan(log)
        if not rest.is_rest(rest_bytes_max):
            return False
        partition._log = move.switch(log, rest)
        return True
