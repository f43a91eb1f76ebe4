"""The log of one partition: segments one behind the other, and the state that appends leave behind.

Invariants: offsets only rise; ``segments`` is in offset order and only the last one takes appends; an append that
raises has changed nothing. Batches enter through :meth:`Log.append` and leave through :meth:`Log.read`, as they came.

Thread rule: all methods belong to one thread, except :meth:`Log.flush`, which may wait for the disk in another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from storage.batch import BatchHeader, parse_header, read_records, stamp_append_time
from storage.checkpoint import Checkpoint, CheckpointFile
from storage.epochs import LeaderEpochs
from storage.errors import (
    BudgetExceeded,
    CorruptBatch,
    DamagedLog,
    DiskFailure,
    LogClosed,
    OffsetOutOfRange,
    StorageError,
    StorageFailed,
    disk_errors,
)
from storage.files import Files
from storage.format import LENGTH_OVERHEAD, LOG_APPEND_TIME, NO_TIMESTAMP, PLACEMENT
from storage.index import NO_MAX_TIMESTAMP
from storage.producers import ProducerStates
from storage.segment import LogRead, LogSegment
from storage.settings import Background, LogSettings
from storage.windows import EMPTY

# A killed process walks at most this much, and what one checkpoint takes to be written, when it starts again.
CHECKPOINT_INTERVAL_BYTES: Final = 16 * 1024 * 1024
# What one compressed batch may unfold to while a timestamp is looked for.
TIMESTAMP_BUDGET_BYTES: Final = 64 * 1024 * 1024
# Offsets in an index entry are relative to the segment and end here, as in Kafka.
_RELATIVE_OFFSET_MAX: Final = 0x7FFFFFFF
_NEVER: Final = 2**63

_new_tuple = tuple.__new__
_pack_placement = PLACEMENT.pack_into


class Appended(NamedTuple):
    """Where a batch is. ``log_append_time_ms`` is -1 unless the topic stamps the broker's time."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    is_duplicate: bool


class TimestampAndOffset(NamedTuple):
    timestamp_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are neither batches nor empty: the log is served up to ``offset`` and takes no appends."""

    path: str
    position: int
    offset: int
    reason: str


@dataclass(slots=True)
class LogState:
    """What a log starts from: nothing, or what :mod:`storage.recovery` found."""

    segments: list[LogSegment]
    log_start_offset: int
    log_end_offset: int
    epochs: LeaderEpochs
    producers: ProducerStates
    damage: Damage | None = None


def _walk_from(segments: list[LogSegment], last: LogSegment) -> int:
    """The first segment whose seal is still in work."""
    return min((segment.base_offset for segment in segments if segment.is_seal_pending), default=last.base_offset)


class Log:
    """See the module's words. ``damage`` is set when the log could only be opened for reading."""

    __slots__ = (
        "_active",
        "_background",
        "_bases",
        "_boot_id",
        "_checkpoint_due_bytes",
        "_checkpoint_file",
        "_directory",
        "_files",
        "_prepare_directory",
        "_refusal",
        "_roll_offset",
        "_roll_timestamp",
        "_roll_wall_ms",
        "_segment_bytes",
        "_segments",
        "_settings",
        "_stamps_append_time",
        "damage",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "producers",
    )

    def __init__(
        self,
        directory: str,
        files: Files,
        background: Background,
        settings: LogSettings,
        boot_id: str = "",
        state: LogState | None = None,
        prepare_directory: Callable[[], None] | None = None,
    ) -> None:
        """``prepare_directory`` is called once, before the first file of an empty log is made."""
        if state is None:
            state = LogState([], 0, 0, LeaderEpochs(), ProducerStates())
        self._directory = directory
        self._files = files
        self._background = background
        self._boot_id = boot_id
        self._prepare_directory = prepare_directory
        self._checkpoint_file = CheckpointFile(directory, files)
        self._segments = state.segments
        self._bases = [segment.base_offset for segment in state.segments]
        self._active = state.segments[-1] if state.segments else None
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = state.log_end_offset
        self.epochs = state.epochs
        self.producers = state.producers
        self.damage = state.damage
        # Why appends are refused, if they are; looked at first by every append.
        self._refusal: Exception | None = None
        if state.damage is not None:
            self._refusal = DamagedLog(f"{state.damage.path} is damaged at {state.damage.position}")
        self._checkpoint_due_bytes = CHECKPOINT_INTERVAL_BYTES
        if self._active is not None:
            self._checkpoint_due_bytes += self._active.size_bytes
        self.settings = settings

    # --- settings

    @property
    def settings(self) -> LogSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: LogSettings) -> None:
        self._settings = settings
        self._segment_bytes = settings.segment_bytes
        self._stamps_append_time = settings.timestamp_type == LOG_APPEND_TIME
        if self._active is not None:
            self._active.set_limits(settings.segment_bytes, settings.index_interval_bytes)
        self._set_roll_limits()

    def _set_roll_limits(self) -> None:
        """As Kafka: a segment's age counts in record time from its first batch, in our time if that has none."""
        self._roll_timestamp = self._roll_wall_ms = self._roll_offset = _NEVER
        active = self._active
        if active is None:
            return
        self._roll_offset = active.base_offset + _RELATIVE_OFFSET_MAX
        if active.first_timestamp >= 0:
            self._roll_timestamp = active.first_timestamp + self._settings.segment_ms
        elif active.created_ms > 0:
            self._roll_wall_ms = active.created_ms + self._settings.segment_ms

    # --- appending

    def append(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> Appended:
        """Store one checked batch; its base offset and leader epoch are set in place, so ``batch`` is writable."""
        if self._refusal is not None:
            raise copy(self._refusal)  # a copy, or each raise would add to the traceback of one object
        producer_id = header.producer_id
        if producer_id >= 0:
            repeated = self.producers.check(header)
            if repeated is not None:
                return Appended(repeated.base_offset, repeated.last_offset, repeated.append_time_ms, True)
        offset = self.log_end_offset
        last_offset = offset + header.last_offset_delta
        size = len(batch)
        if self._stamps_append_time:
            stamp_append_time(batch, now_ms)
            timestamp = append_time_ms = now_ms
        else:
            timestamp = header.max_timestamp
            append_time_ms = -1
        _pack_placement(batch, 0, offset, size - LENGTH_OVERHEAD, leader_epoch)
        segment = self._active
        if (
            segment is None
            or segment.size_bytes + size > self._segment_bytes
            or timestamp > self._roll_timestamp
            or now_ms > self._roll_wall_ms
            or last_offset > self._roll_offset
        ):
            segment = self._append_to_next_segment(batch, size, offset, last_offset, timestamp, now_ms)
        else:
            segment.append(batch, size, offset, last_offset, timestamp)
        # The batch is stored: nothing below may fail.
        self.log_end_offset = last_offset + 1
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, offset)
        if producer_id >= 0:
            self.producers.record(header, offset, append_time_ms, now_ms)
        if segment.size_bytes > self._checkpoint_due_bytes:
            self._checkpoint_later(segment)
        return _new_tuple(Appended, (offset, last_offset, append_time_ms, False))

    def _append_to_next_segment(
        self, batch: memoryview, size: int, offset: int, last_offset: int, timestamp: int, now_ms: int
    ) -> LogSegment:
        """Start the next segment with this batch; the one before is sealed only when that has worked.

        Whatever can fail comes before the new segment is taken in: from there on the batch is stored.
        """
        before = self._active
        if before is not None:
            before.load_for_seal()
        if self._prepare_directory is not None:
            with disk_errors(f"make {self._directory}"):
                self._prepare_directory()
            self._prepare_directory = None
        segment = LogSegment(
            self._directory,
            offset,
            self._files,
            self._background,
            limit_bytes=self._settings.segment_bytes,
            index_interval_bytes=self._settings.index_interval_bytes,
            created_ms=now_ms,
        )
        segment.first_timestamp = max(timestamp, NO_TIMESTAMP)
        try:
            segment.append(batch, size, offset, last_offset, timestamp)
        except BaseException:
            segment.discard()
            raise
        self._active = segment
        self._segments.append(segment)
        self._bases.append(offset)
        self._set_roll_limits()
        self._checkpoint_due_bytes = CHECKPOINT_INTERVAL_BYTES
        # The facts are those before the first batch of the new segment: it is walked if we are killed now.
        checkpoint = self._describe(segment, offset, 0, is_clean=False)
        self._settle([before] if before is not None else [], segment, checkpoint)
        return segment

    def settle_walked(self, unsealed: list[LogSegment], known: Checkpoint | None) -> None:
        """After a walk: seal what had no seal, and write down where the walk ended, so that the next one starts there.

        Nothing is written when ``known``, the checkpoint on file, says the same already.
        """
        segment = self._active
        if segment is None:
            return
        checkpoint: Checkpoint | None = None
        if self.damage is None:
            with suppress(StorageError):  # the next append meets the same trouble and reports it
                checkpoint = replace(self._describe_end(segment, is_clean=False), walk_from=segment.base_offset)
        is_new = checkpoint is not None and (
            known is None or replace(known, producers=b"") != replace(checkpoint, producers=b"")
        )
        if unsealed or is_new:
            self._settle(unsealed, segment, checkpoint)

    def _settle(self, finished: list[LogSegment], segment: LogSegment, checkpoint: Checkpoint | None) -> None:
        """Off the loop: make the finished segments durable, then the new name, then say so in the checkpoint."""
        finish_seals = [earlier.seal() for earlier in finished]
        pending = [earlier for earlier in self._segments if earlier.is_seal_pending]
        has_new_name = checkpoint is not None and checkpoint.position == 0
        number = self._checkpoint_file.take_number()

        def settle() -> None:
            try:
                for finish_seal in finish_seals:
                    finish_seal()
                if finish_seals or has_new_name:
                    self._sync_directory()
                if checkpoint is not None:
                    self._checkpoint_file.write(number, replace(checkpoint, walk_from=_walk_from(pending, segment)))
            except StorageFailed as error:
                self._refuse_after(error)
            except (DiskFailure, OSError):
                return  # a full disk: the seal is tried again at the stop, or the segment is walked at the next start

        self._later(settle)

    def _later(self, job: Callable[[], None]) -> None:
        # No thread to be had counts like work that failed: it is made up for at the stop or at the next start.
        with suppress(RuntimeError):
            self._background(job)

    def _sync_directory(self) -> None:
        try:
            self._files.fsync_dir(self._directory)
        except OSError as error:
            raise StorageFailed(f"sync {self._directory}: {error}", error.errno) from error

    def _refuse_after(self, error: StorageFailed) -> None:
        # A log that was deleted meanwhile has no directory to sync; nobody appends to it any more.
        if self._refusal is None:
            self._refusal = error

    # --- reading

    def read(self, offset: int, max_bytes: int, upto: int, *, at_least_one: bool = True) -> LogRead:
        """Whole batches from the one that holds ``offset``, all below offset ``upto``, out of one segment.

        The view is empty when nothing lies below ``upto`` yet, or when nothing fits and ``at_least_one`` is not set.
        """
        if offset >= upto or offset >= self.log_end_offset:
            if offset > self.log_end_offset or offset < self.log_start_offset:
                raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
            if offset == self.log_end_offset and self._active is not None:
                self._active.remember_end()
            return LogRead(EMPTY, offset, None, 0)
        if offset < self.log_start_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        segment = self._active
        if segment is None:
            raise LogClosed(f"{self._directory} is closed")
        if offset < segment.base_offset:
            segment = self._segment_for(offset)
        return segment.read(offset, max_bytes, upto, at_least_one)

    def _segment_for(self, offset: int) -> LogSegment:
        at = max(bisect_right(self._bases, offset) - 1, 0)
        segment = self._segments[at]
        if offset >= segment.next_offset and at + 1 < len(self._segments):
            segment = self._segments[at + 1]  # compaction removed the end of the one before
        return segment

    def is_start_warm(self, offset: int) -> bool:
        """Whether :meth:`read` from ``offset`` on would find its place without waiting for the disk."""
        active = self._active
        if active is None or not self.log_start_offset <= offset < self.log_end_offset:
            return True
        return (active if offset >= active.base_offset else self._segment_for(offset)).is_start_warm(offset)

    def warm_start(self, offset: int) -> None:
        """Load what that read needs (index, first pages); waits for the disk, so it belongs in a thread."""
        if self._segments and self.log_start_offset <= offset < self.log_end_offset:
            with disk_errors(f"read {self._directory}"):
                self._segment_for(offset).warm_start(offset)

    # --- timestamps

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first record stored with ``timestamp_ms`` or later."""
        first = max(bisect_right(self._bases, self.log_start_offset) - 1, 0)
        for segment in self._segments[first:]:
            if segment.max_timestamp < timestamp_ms:
                continue
            for batch in segment.batches_for_timestamp(timestamp_ms):
                found = self._find_timestamp(batch, timestamp_ms)
                if found is not None:
                    return found
        return None

    def _find_timestamp(self, batch: memoryview, timestamp_ms: int) -> TimestampAndOffset | None:
        header = parse_header(batch)
        start = self.log_start_offset
        if header.max_timestamp < timestamp_ms or header.last_offset < start:
            return None
        try:
            for record in read_records(batch, TIMESTAMP_BUDGET_BYTES):
                if record.timestamp_ms >= timestamp_ms and record.offset >= start:
                    return TimestampAndOffset(record.timestamp_ms, record.offset)
        except (BudgetExceeded, CorruptBatch):
            # The records cannot be looked at; the batch as a whole is the nearest answer there is.
            return TimestampAndOffset(header.max_timestamp, max(header.base_offset, start))
        return None

    def max_timestamp_offset(self) -> TimestampAndOffset | None:
        """The record with the largest timestamp, the first of them when there are several."""
        first = max(bisect_right(self._bases, self.log_start_offset) - 1, 0)
        largest = max((segment.max_timestamp for segment in self._segments[first:]), default=NO_MAX_TIMESTAMP)
        if largest < 0:
            return None
        return self.offset_for_timestamp(largest)

    # --- facts

    @property
    def directory(self) -> str:
        return self._directory

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def is_writable(self) -> bool:
        return self._refusal is None

    def segments(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    # --- checkpoints

    def advance_log_start_offset(self, offset: int) -> None:
        """Records below ``offset`` are gone for readers, also after a restart."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset == self.log_start_offset:
            return
        before, self.log_start_offset = self.log_start_offset, offset
        try:
            self.checkpoint()
        except DiskFailure:
            self.log_start_offset = before
            raise
        self.epochs.truncate_from_start(offset)

    def checkpoint(self, *, is_clean: bool = False) -> None:
        """Write down now where recovery may start."""
        if self._active is None or self.damage is not None:
            return
        self._active.write_index()
        number = self._checkpoint_file.take_number()
        with disk_errors(f"checkpoint {self._directory}"):
            self._checkpoint_file.write(number, self._describe_end(self._active, is_clean=is_clean), sync=is_clean)

    def _checkpoint_later(self, segment: LogSegment) -> None:
        """Gather the facts here, write them off the loop; a failure only makes the next recovery walk further."""
        self._checkpoint_due_bytes = segment.size_bytes + CHECKPOINT_INTERVAL_BYTES
        segment.write_index()
        number = self._checkpoint_file.take_number()
        checkpoint = self._describe_end(segment, is_clean=False)

        def write() -> None:
            with suppress(OSError):
                self._checkpoint_file.write(number, checkpoint)

        self._later(write)

    def _describe_end(self, segment: LogSegment, *, is_clean: bool) -> Checkpoint:
        return self._describe(segment, self.log_end_offset, segment.size_bytes, is_clean=is_clean)

    def _describe(self, segment: LogSegment, offset: int, position: int, *, is_clean: bool) -> Checkpoint:
        return Checkpoint(
            boot_id=self._boot_id,
            is_clean=is_clean,
            log_start_offset=self.log_start_offset,
            offset=offset,
            segment_base=segment.base_offset,
            position=position,
            walk_from=_walk_from(self._segments, segment),
            max_timestamp=segment.max_timestamp if position else NO_MAX_TIMESTAMP,
            first_timestamp=segment.first_timestamp,
            created_ms=segment.created_ms,
            epochs=tuple(self.epochs.entries),
            producers=self.producers.encode(),
        )

    # --- the end

    def flush(self) -> None:
        """Make everything appended so far durable; waits for the disk. After a failure the log takes no appends."""
        segment = self._active
        if segment is None:
            return
        try:
            segment.flush()
        except StorageFailed as error:
            self._refuse_after(error)
            raise

    def release(self) -> None:
        """Give back the descriptors and maps of sealed segments; they come back when somebody reads there."""
        for segment in self._segments:
            segment.release()

    def close(self, *, is_clean: bool = True) -> None:
        """Stop. Clean: cut, sync and seal everything, so that the next start reads no batches; waits for the disk.

        Slices that readers still hold stay good.
        """
        if isinstance(self._refusal, LogClosed):
            return
        is_sound = self._refusal is None
        self._refusal = LogClosed(f"{self._directory} is closed")
        try:
            if is_clean and is_sound and self._active is not None:
                for segment in self._segments:
                    if segment.is_seal_pending or segment is self._active:
                        segment.seal()()
                self.checkpoint(is_clean=True)
        finally:
            self._checkpoint_file.retire()
            for segment in self._segments:
                segment.close()
