"""The log of one partition: segments one behind the other, and the state that appends leave behind.

Invariants: offsets only rise; ``segments`` is in offset order and only the last one takes appends; an append that
raises has changed nothing. Batches enter through :meth:`Log.append` and leave through :meth:`Log.read`, as they came.
An offset is given once: only :meth:`Log.truncate` lets the log end go back.

How it is read is in :mod:`storage.log_reading`, how it is kept in :mod:`storage.log_durability`; here it grows and
shrinks. Thread rule: all methods belong to one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Final

from crc32c import crc32c
from msgspec import Struct
from msgspec.structs import replace

from storage.batch import BatchHeader, stamp_append_time
from storage.checkpoint import Checkpoint
from storage.disk_reserve import freeing
from storage.epochs import LeaderEpochs
from storage.errors import (
    DiskFailure,
    InvalidBatch,
    OffsetOutOfRange,
    StorageError,
    StorageFailed,
    disk_errors,
)
from storage.files import Files
from storage.format import CONTROL_BIT, LENGTH_OVERHEAD, LOG_APPEND_TIME, NO_TIMESTAMP, PLACEMENT
from storage.log_durability import DurableLog
from storage.log_reading import Damage as Damage
from storage.log_reading import LogState as LogState
from storage.markers import Marker, read_marker
from storage.producers import ProducerStates
from storage.replacement import Manifest, NewSegment, SegmentSwap, check_replacement
from storage.segment import LogSegment
from storage.settings import Background, LogSettings
from storage.times import TimestampAndOffset as TimestampAndOffset
from storage.truncation import end_of_emptied, producers_below, write_beginning
from storage.txn_index import AbortedEntry, encode_entries

# A killed process walks at most this much, and what one checkpoint takes to be written, when it starts again.
CHECKPOINT_INTERVAL_BYTES: Final = 16 * 1024 * 1024
# Offsets in an index entry are relative to the segment and end here, as in Kafka.
_RELATIVE_OFFSET_MAX: Final = 0x7FFFFFFF
_NEVER: Final = 2**63

# Called at the first append of a run; what it returns makes that fact durable, as part of the first sync.
OnFirstAppend = Callable[[], Callable[[], None]]

_pack_placement = PLACEMENT.pack_into


class Appended(Struct, frozen=True, gc=False):
    """Where a batch is. ``log_append_time_ms`` is -1 unless the topic stamps the broker's time."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    is_duplicate: bool


class Log(DurableLog):
    """See the module's words. ``damage`` is set when the log could only be opened for reading."""

    __slots__ = (
        "_checkpoint_due_bytes",
        "_on_first_append",
        "_prepare_directory",
        "_roll_offset",
        "_roll_timestamp",
        "_roll_wall_ms",
        "_segment_bytes",
        "_settings",
        "_stamps_append_time",
        "_swap",
        "_tidied",
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
        on_first_append: OnFirstAppend | None = None,
    ) -> None:
        """``prepare_directory`` is called once, before the first file of an empty log is made."""
        if state is None:
            state = LogState([], 0, 0, LeaderEpochs(), ProducerStates())
        super().__init__(directory, files, background, boot_id, state)
        self._prepare_directory = prepare_directory
        self._on_first_append = on_first_append
        # The replacement that is under way: segments stay what they are until it has ended.
        self._swap: SegmentSwap | None = None
        # Log start, log end and clean_upto for which a clean checkpoint was written last.
        self._tidied: tuple[int, int, int] | None = None
        self._checkpoint_due_bytes = CHECKPOINT_INTERVAL_BYTES
        if self._active is not None:
            self._checkpoint_due_bytes += self._active.size_bytes
        self.settings = settings
        if len(self.quarantined) < len(state.quarantined):
            self._later(self._forget_damage)  # a truncation was cut off before it did

    # --- settings

    @property
    def settings(self) -> LogSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: LogSettings) -> None:
        self._settings = settings
        self._stamps_append_time = settings.timestamp_type == LOG_APPEND_TIME
        if self._active is not None:
            self._active.set_limits(settings.segment_bytes, settings.index_interval_bytes)
        self._set_roll_limits()

    def _set_roll_limits(self) -> None:
        """As Kafka: a segment's age counts in record time from its first batch, in our time if that has none."""
        settings = self._settings
        # Nothing fits into less than nothing: the first append of a run is looked at more closely.
        self._segment_bytes = settings.segment_bytes if self._on_first_append is None else -1
        self._roll_timestamp = self._roll_wall_ms = self._roll_offset = _NEVER
        active = self._active
        if active is None:
            return
        if active.is_sealed or active.is_spoiled or (active.aborted is not None and active.aborted.is_full):
            self._roll_offset = -1
            return
        self._roll_offset = active.base_offset + _RELATIVE_OFFSET_MAX
        segment_ms = settings.segment_ms - self._jitter_ms(active)
        if active.first_timestamp >= 0:
            self._roll_timestamp = active.first_timestamp + segment_ms
        elif active.created_ms > 0:
            self._roll_wall_ms = active.created_ms + segment_ms

    def _jitter_ms(self, segment: LogSegment) -> int:
        """The same for a segment at each start, and another for each log, so that they do not all roll at once."""
        jitter_ms = min(self._settings.segment_jitter_ms, self._settings.segment_ms)
        return int(crc32c(segment.path.encode())) % jitter_ms if jitter_ms > 0 else 0

    # --- appending

    def append(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> Appended:
        """Store one checked batch; its base offset and leader epoch are set in place, so ``batch`` is writable."""
        if self._refusal is not None:
            raise copy(self._refusal)  # a copy, or each raise would add to the traceback of one object
        producers = self.producers if header.producer_id >= 0 else None
        marker: Marker | None = None
        if producers is not None:
            if header.attributes & CONTROL_BIT:
                marker = self._check_marker(batch, header)
            elif (repeated := producers.check(header)) is not None:
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
            segment = self._append_with_care(batch, size, offset, last_offset, timestamp, now_ms)
        else:
            try:
                segment.append(batch, size, offset, last_offset, timestamp)
            except DiskFailure:
                self._set_roll_limits()
                raise
        # The batch is stored: nothing below may fail.
        self.log_end_offset = last_offset + 1
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, offset)
        if marker is not None:
            entry = self.producers.record_marker(header, marker, offset, append_time_ms, now_ms)
            if entry is not None:
                self._note_aborted(segment, entry)
        elif producers is not None:
            producers.record(header, offset, append_time_ms, now_ms)
        if segment.size_bytes > self._checkpoint_due_bytes:
            self._checkpoint_due_bytes = segment.size_bytes + CHECKPOINT_INTERVAL_BYTES
            segment.write_index()
            self._checkpoint_later()
        return Appended(offset, last_offset, append_time_ms, False)

    def _check_marker(self, batch: memoryview, header: BatchHeader) -> Marker:
        marker = read_marker(batch)
        if marker is None:
            raise InvalidBatch("a control batch of a producer that ends no transaction")
        self.producers.check_marker(header, marker)
        return marker

    def _note_aborted(self, segment: LogSegment, entry: AbortedEntry) -> None:
        aborted = self._aborted_of(segment)
        if not aborted:
            self._abort_segments.append(segment)
        aborted.add(entry)
        if aborted.is_full:
            self._set_roll_limits()

    def _append_with_care(
        self, batch: memoryview, size: int, offset: int, last_offset: int, timestamp: int, now_ms: int
    ) -> LogSegment:
        """The first append of a run, or one that does not go into the segment in use."""
        if self._on_first_append is not None:
            with disk_errors(f"note the first append to {self._directory}"):
                self._notes = (*self._notes, self._on_first_append())
            self._on_first_append = None
            self._segment_bytes = self._settings.segment_bytes
        segment = self._active
        # One that a start left without a batch takes whatever comes: the next one would have the same name.
        is_empty = segment is not None and not segment.size_bytes and not segment.is_sealed
        if segment is not None and (
            is_empty
            or (
                segment.size_bytes + size <= self._segment_bytes
                and timestamp <= self._roll_timestamp
                and now_ms <= self._roll_wall_ms
                and last_offset <= self._roll_offset
            )
        ):
            if is_empty:
                segment.first_timestamp = max(timestamp, NO_TIMESTAMP)
            try:
                segment.append(batch, size, offset, last_offset, timestamp)
            finally:
                self._set_roll_limits()
            return segment
        return self._append_to_next_segment(batch, size, offset, last_offset, timestamp, now_ms)

    def _append_to_next_segment(
        self, batch: memoryview, size: int, offset: int, last_offset: int, timestamp: int, now_ms: int
    ) -> LogSegment:
        """Start the next segment with this batch; the one before is sealed only when that has worked.

        Whatever can fail comes before the new segment is taken in: from there on the batch is stored.
        """
        before = self._active if self._active is not None and not self._active.is_sealed else None
        if before is not None:
            before.load_for_seal()
        if self._prepare_directory is not None:
            with disk_errors(f"make {self._directory}"):
                self._prepare_directory()
            self._prepare_directory = None
            self._is_folder_new = True
        segment = LogSegment(
            self._directory,
            offset,
            self._files,
            self._background,
            limit_bytes=self._settings.segment_bytes,
            index_interval_bytes=self._settings.index_interval_bytes,
            created_ms=now_ms,
        )
        segment.gate = self.gate
        segment.first_timestamp = max(timestamp, NO_TIMESTAMP)
        try:
            segment.append(batch, size, offset, last_offset, timestamp)
        except BaseException:
            segment.discard()
            raise
        if before is not None:
            self._leave_unsynced(before)
        self._active = segment
        self._segments.append(segment)
        self._bases.append(offset)
        self._names_made += 1
        self._set_roll_limits()
        self._checkpoint_due_bytes = CHECKPOINT_INTERVAL_BYTES
        # The facts are those before the first batch of the new segment: it is walked if we are killed now.
        checkpoint = self._describe(segment, offset, 0, is_clean=False)
        self._settle([before] if before is not None else [], checkpoint)
        return segment

    def roll(self, now_ms: int) -> None:
        """Close the segment in use; the next append starts a new one. Nothing happens if there is nothing to close."""
        active = self._active
        if active is None or active.is_sealed or not active.size_bytes or self._refusal is not None:
            return
        active.load_for_seal()
        self._leave_unsynced(active)
        self._settle([active], self._describe_end(is_clean=False))
        self._set_roll_limits()

    # --- the beginning goes

    def advance_log_start_offset(self, offset: int) -> None:
        """Records below ``offset`` are gone for readers at once: the checkpoint follows off the loop.

        A power cut may take it back. :class:`~storage.log_start.StartMove` makes it durable first.
        """
        self.check_start(offset)
        if offset == self.log_start_offset:
            return
        self.set_start(offset)
        self._checkpoint_start_later()

    def drop_segments(self) -> list[LogSegment]:
        """Let go of the segments that lie wholly below the log start, the one in use among them if it does.

        Nothing waits for the disk here. Slices of the segments stay good; their files stay until somebody calls their
        ``delete_files``, which first makes a checkpoint durable that knows the new start, so no offset is given twice.
        """
        if self._refusal is not None or self._swap is not None:
            return []
        start = self.log_start_offset
        count = 0
        while count < len(self._segments) and self._segments[count].next_offset <= start:
            count += 1
        if not count:
            return []
        dropped, kept = self._segments[:count], self._segments[count:]
        self._unsynced = [segment for segment in self._unsynced if segment not in dropped]
        self._set_segments(kept)
        self._set_quarantined(tuple(one for one in self.quarantined if one.end_offset > start))
        if not kept:
            # Nothing is left that could be lost; the log goes on where it ended.
            self.synced_offset = self.log_end_offset
            self._set_roll_limits()
        number, checkpoint = self._checkpoint_file.take_number(), self._describe_end(is_clean=False)
        for segment in dropped:
            segment.let_go(partial(self._remove_dropped, segment, number, checkpoint))
        self._dropped = [*self._still_there(), *dropped]
        return dropped

    def _remove_dropped(self, segment: LogSegment, number: int, checkpoint: Checkpoint) -> None:
        """In any thread."""
        note = partial(self._checkpoint_file.make_durable, number, checkpoint)
        with disk_errors(f"remove {segment.path}"), self._checkpoint_file.held() as is_ours:
            # A folder that is not ours any more is removed as a whole, or tidied up when it is opened again.
            if is_ours and freeing(self._files, segment.path, note):
                segment.unlink_files()

    def _still_there(self) -> list[LogSegment]:
        return [segment for segment in self._dropped if not segment.is_deleted]

    # --- segments for others

    def replace_segments(
        self, removed: Sequence[LogSegment], added: Sequence[NewSegment], clean_upto: int
    ) -> list[LogSegment]:
        """Put ``added`` in the place of ``removed``; see :mod:`storage.replacement`. Waits for the disk.

        Returns the old segments, to be closed by ``delete_files`` when no reader needs them any more. After a
        :class:`DiskFailure` the log is as it was.
        """
        return self._run_swap(self.begin_replacement(removed, added, clean_upto))

    def begin_replacement(
        self, removed: Sequence[LogSegment], added: Sequence[NewSegment], clean_upto: int
    ) -> SegmentSwap:
        """As :meth:`replace_segments`, in steps: ``run`` the swap in a thread, then ``finish`` or ``fail`` it here.

        ``removed`` are sealed, synced neighbours. If the last segment of the log is among them, the new ones must end
        where it ended: nothing else would remember the log end.
        """
        at = self._check_replacement(removed, added)
        for segment in removed:
            segment.keep_open()
            if segment.has_aborted:
                self._aborted_of(segment)  # its file is about to go, too
        manifest = Manifest(
            tuple(segment.base_offset for segment in removed),
            tuple(new.base_offset for new in added),
            clean_upto,
            tuple(new.base_offset for new in added if new.aborted),
        )
        # Saying that gaps are normal before there are any does no harm; the other way round they would be damage.
        self._gaps_upto = clean_upto
        self._relist(manifest.remove, [(new.base_offset, new.size_bytes, bool(new.aborted)) for new in added])
        checkpoint = self._describe_end(is_clean=False)

        def end(error: DiskFailure | None) -> list[LogSegment]:
            self._swap = None
            self._gaps_upto = 0
            self._relist()
            if error is not None:
                self._after_failed_swap(error)
                return []
            self.clean_upto = clean_upto
            segments = [self._taken_in(new, is_sealed=True) for new in added]
            self._set_segments([*self._segments[:at], *segments, *self._segments[at + len(removed) :]])
            self._set_quarantined(self.quarantined)
            self._set_roll_limits()
            return list(removed)

        new_sizes = {new.base_offset: new.size_bytes for new in added}
        self._swap = SegmentSwap(self._files, manifest, new_sizes, self._checkpoint_file, checkpoint, end)
        return self._swap

    def _check_replacement(self, removed: Sequence[LogSegment], added: Sequence[NewSegment]) -> int:
        if self._refusal is not None:
            raise copy(self._refusal)
        if self._swap is not None:
            raise DiskFailure(f"{self._directory}: segments are being replaced already")
        end_offset = self.log_end_offset
        return check_replacement(self._directory, self._segments, self.quarantined, end_offset, removed, added)

    def _taken_in(self, new: NewSegment, *, is_sealed: bool) -> LogSegment:
        segment = LogSegment.existing(
            self._directory,
            new.base_offset,
            self._files,
            self._background,
            limit_bytes=self._settings.segment_bytes,
            index_interval_bytes=self._settings.index_interval_bytes,
            next_offset=new.next_offset,
            size_bytes=new.size_bytes,
            is_sealed=is_sealed,
        )
        segment.gate = self.gate
        segment.adopt(new.index, new.max_timestamp)
        segment.first_timestamp = new.first_timestamp
        segment.adopt_aborted(new.aborted)
        return segment

    # --- the end goes

    def truncate(self, offset: int) -> None:
        """Everything from ``offset`` on is gone, with the whole batch that holds it; waits for the disk.

        Slices that readers hold stay good. After a :class:`DiskFailure` the log is as it was.
        """
        if self._refusal is not None:
            raise copy(self._refusal)
        if self._swap is not None:
            raise DiskFailure(f"{self._directory}: segments are being replaced")
        if offset < 0:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset >= self.log_end_offset:
            return
        start = self.log_start_offset
        kept = [segment for segment in self._segments if segment.next_offset <= offset]
        with disk_errors(f"truncate {self._directory}"):
            # In a gap the log ends with what is left before it: a walk would find no other end.
            position, end_offset = self._segments[len(kept)].end_below(offset)
            if not position:
                end_offset = kept[-1].next_offset if kept else start
            if end_offset < start or offset <= start:
                # Nothing that can be read is left.
                self._swap_end([], self._segments, min(start, offset))
                return
            gone, segments = self._segments[len(kept) :], kept
            if position:
                if gone[0].has_aborted:
                    self._aborted_of(gone[0])
                new = write_beginning(gone[0], position, end_offset, self._directory, self._files)
                segments = [*kept, self._taken_in(new, is_sealed=False)]
        self._swap_end(segments, gone, end_offset)

    def _swap_end(self, segments: list[LogSegment], gone: list[LogSegment], end_offset: int) -> None:
        last = segments[-1] if segments else None
        # The checkpoint is on file before the cut: it has to be true of the longer log as well, if that stays.
        with disk_errors(f"truncate {self._directory}"):
            known = (last, end_offset, last.size_bytes) if last else end_of_emptied(self._segments, end_offset)
        # Files that wait for their deletion may have the names that come next. From an emptied log they all go: what is
        # appended next does not follow them, and would be taken for what a power cut left behind a gap.
        waiting = [segment for segment in self._still_there() if not segments or segment.next_offset > end_offset]
        manifest = Manifest(
            tuple(segment.base_offset for segment in (*gone, *waiting)),
            (last.base_offset,) if last is not None and not last.is_sealed else (),
            min(self.clean_upto, end_offset),
        )
        epochs = LeaderEpochs(self.epochs.entries)
        epochs.truncate_from_end(end_offset)
        # The files that are there now are walked: those of the new segment do not have their names yet.
        left = self._segments[: -len(gone) + 1 or None]
        producers = producers_below(self.producers, end_offset, left, is_emptied=not segments)
        start_before = self.log_start_offset
        start = self._checkpoint_file.log_start_offset = min(start_before, end_offset)
        new_sizes = dict.fromkeys(manifest.add, last.size_bytes) if last is not None else {}
        self._relist(manifest.remove, [(base, size, False) for base, size in new_sizes.items()])
        described = replace(self._describe(*known, is_clean=False), log_start_offset=start)
        checkpoint = replace(
            described,
            epochs=tuple(epochs.entries),
            producers=producers.encode(),
            aborted=encode_entries(self._aborted_in_work(segments, described.offset)),
        )

        def end(error: DiskFailure | None) -> list[LogSegment]:
            self._swap = None
            self._relist()
            if error is not None:
                self._checkpoint_file.log_start_offset = start_before
                if not isinstance(error, StorageFailed):  # else the files may be gone: a seal would make empty ones
                    for segment in gone:
                        segment.stop_work(is_stopped=False)
                self._after_failed_swap(error)
                if start < start_before:
                    self._checkpoint_start_later()  # the start that the cut asked for may be on file
                return []
            self._generation += 1
            self._set_segments(segments)
            self._unsynced = [segment for segment in self._unsynced if segment not in gone]
            self._set_quarantined(tuple(one for one in self.quarantined if one.start_offset < end_offset))
            self.log_start_offset, self.log_end_offset = start, end_offset
            self.synced_offset = min(self.synced_offset, end_offset)
            self.clean_upto = manifest.clean_upto
            self.epochs, self.producers = epochs, producers
            self._checkpoint_due_bytes = CHECKPOINT_INTERVAL_BYTES + (last.size_bytes if last is not None else 0)
            self._set_roll_limits()
            for segment in (*gone, *waiting):
                segment.forget_files()
            self._forget_damage()
            return gone

        for segment in gone:
            segment.stop_work()
        is_less_clean = self.clean_upto > end_offset
        self._swap = SegmentSwap(self._files, manifest, new_sizes, self._checkpoint_file, checkpoint, end)
        self._run_swap(self._swap)
        if is_less_clean:
            # Before the cut gaps were normal up to there; from now on they would be records that are missing.
            number, file = self._checkpoint_file.take_number(), self._checkpoint_file
            try:
                file.make_durable(number, self._describe_end(is_clean=False))
            except OSError as error:
                self.poison(StorageFailed(f"checkpoint {self._directory}: {error}", error.errno))

    def _run_swap(self, swap: SegmentSwap) -> list[LogSegment]:
        try:
            swap.run()
        except DiskFailure as error:
            swap.fail(error)
            raise
        return swap.finish()

    def _after_failed_swap(self, error: DiskFailure) -> None:
        if isinstance(error, StorageFailed):
            self.poison(error)

    # --- the end

    def park(self) -> bool:
        """Leave everything as a clean stop would, so that the log can be opened again without reading any records.

        Only where nothing is left to be synced or sealed or removed; nothing waits for the disk. True: this object is
        closed. False: it goes on; where only a checkpoint has to be synced first, that is begun, so ask again later.
        """
        if (
            self._refusal is not None
            or self._swap is not None
            or self.synced_offset < self.log_end_offset
            or any(segment.is_seal_pending for segment in self._segments)
            or self._still_there()
            or self._checkpoint_file.is_busy
            or (self._active is not None and self._active.is_reserving)
        ):
            return False
        extent = self.log_start_offset, self.log_end_offset, self.clean_upto
        if self._is_describable and self._tidied != extent:
            try:
                self._tidy(extent)
            except (OSError, StorageError):
                return False
        if (self._is_describable and self._tidied != extent) or not self._checkpoint_file.retire(blocking=False):
            return False
        self._shut_down()
        return True

    def _tidy(self, extent: tuple[int, int, int]) -> None:
        if self._active is not None:
            self._active.tidy()
        number, is_vital = self._checkpoint_file.take_number(), self._is_checkpoint_vital
        checkpoint = self._describe_end(is_clean=True)

        def write() -> None:
            self._checkpoint_file.write(number, checkpoint, sync=is_vital, is_hasty=not is_vital)
            self._tidied = extent

        def write_off_the_loop() -> None:
            with suppress(OSError):
                write()

        if is_vital:
            self._later(write_off_the_loop)
        else:
            write()
