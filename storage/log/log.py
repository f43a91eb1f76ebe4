"""The log of one partition: appends, rolls, drops, replaces and truncates segments.

Invariants: Offsets only rise. The segments are in offset order. Only the last one, the active segment, takes appends.
An append that raises has changed nothing. :meth:`Log.read` returns batches byte by byte as :meth:`Log.append` stored
them. No offset is assigned twice, unless :meth:`Log.truncate` lowers the log end offset.

Reading is in :mod:`storage.log.reading`, syncs and checkpoints are in :mod:`storage.log.durability`. Thread rule: all
methods are called on one thread, the log's thread.
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

from storage.batch.format import CONTROL_BIT, LENGTH_OVERHEAD, LOG_APPEND_TIME, NO_TIMESTAMP, PLACEMENT
from storage.batch.markers import Marker, require_marker
from storage.batch.record_batch import BatchHeader, stamp_append_time
from storage.data_directory.disk_reserve import run_with_reserve
from storage.disk.files import Files
from storage.errors import (
    DiskFailure,
    OffsetOutOfRange,
    StorageError,
    StorageFailed,
    disk_errors,
)
from storage.log.durability import DurableLog
from storage.log.leader_epochs import LeaderEpochs
from storage.log.producers import ProducerStates
from storage.log.reading import Damage as Damage
from storage.log.reading import LogState as LogState
from storage.log.segment_replacement import Manifest, NewSegment, SegmentReplacement, check_replacement
from storage.log.settings import Background, LogSettings
from storage.recovery.checkpoint import Checkpoint
from storage.recovery.truncation import end_of_emptied, producers_below, write_prefix
from storage.segment.reading import RELATIVE_OFFSET_MAX
from storage.segment.segment import LogSegment
from storage.segment.time_search import TimestampAndOffset as TimestampAndOffset
from storage.segment.txn_index import AbortedEntry, encode_entries

# After a kill, recovery scans at most this many bytes, plus those appended while one checkpoint was written.
CHECKPOINT_INTERVAL_BYTES: Final = 16 * 1024 * 1024
_NEVER: Final = 2**63

# Called before the first append, to add the log to the unclean list. The first sync calls the result to sync the entry.
OnFirstAppend = Callable[[], Callable[[], None]]

_pack_placement = PLACEMENT.pack_into


class Appended(Struct, frozen=True, gc=False):
    """The offsets of an appended batch. ``log_append_time_ms`` is -1 unless the topic uses LogAppendTime."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    is_duplicate: bool


class Log(DurableLog):
    """The log of one partition. ``damage`` is set if the log could only be opened for reading."""

    __slots__ = (
        "_checkpoint_due_bytes",
        "_clean_extent",
        "_on_first_append",
        "_prepare_directory",
        "_replacement",
        "_roll_offset",
        "_roll_timestamp",
        "_roll_wall_ms",
        "_segment_bytes",
        "_settings",
        "_stamps_append_time",
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
        """``prepare_directory`` is called once, before the first file of an empty log is created."""
        if state is None:
            state = LogState([], 0, 0, LeaderEpochs(), ProducerStates())
        super().__init__(directory, files, background, boot_id, state)
        self._prepare_directory = prepare_directory
        self._on_first_append = on_first_append
        # The replacement in progress. Until it ends, appends may add segments, but no segment is removed.
        self._replacement: SegmentReplacement | None = None
        # Log start offset, log end offset and clean_upto of the last clean checkpoint that was written.
        self._clean_extent: tuple[int, int, int] | None = None
        self._checkpoint_due_bytes = CHECKPOINT_INTERVAL_BYTES
        if self._active is not None:
            self._checkpoint_due_bytes += self._active.size_bytes
        self.settings = settings
        if len(self.quarantined) < len(state.quarantined):
            self._run_in_background(self._store_quarantine)  # a crash interrupted a truncation before this step

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
        """Set the roll limits. As in Kafka, a segment's age starts at its first timestamp, or else at its creation."""
        settings = self._settings
        # -1 sends the first append of a run through _append_slow_path.
        self._segment_bytes = settings.segment_bytes if self._on_first_append is None else -1
        self._roll_timestamp = self._roll_wall_ms = self._roll_offset = _NEVER
        active = self._active
        if active is None:
            return
        if active.is_sealed or active.must_roll or (active.aborted is not None and active.aborted.is_full):
            self._roll_offset = -1
            return
        self._roll_offset = active.base_offset + RELATIVE_OFFSET_MAX
        segment_ms = settings.segment_ms - self._jitter_ms(active)
        if active.first_timestamp >= 0:
            self._roll_timestamp = active.first_timestamp + segment_ms
        elif active.created_ms > 0:
            self._roll_wall_ms = active.created_ms + segment_ms

    def _jitter_ms(self, segment: LogSegment) -> int:
        """The roll jitter of a segment. It is constant, and differs between logs so that not all logs roll at once."""
        jitter_ms = min(self._settings.segment_jitter_ms, self._settings.segment_ms)
        return int(crc32c(segment.path.encode())) % jitter_ms if jitter_ms > 0 else 0

    # --- appending

    def append(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> Appended:
        """Append one checked batch. Sets its base offset and leader epoch in place, so ``batch`` must be writable."""
        if self._refusal is not None:
            raise copy(self._refusal)  # a copy: each raise would extend the traceback of the stored exception
        marker: Marker | None = None
        if header.producer_id >= 0:
            if header.attributes & CONTROL_BIT:
                marker = require_marker(batch)
                self.producers.check_marker(header, marker)
            elif (repeated := self.producers.check(header)) is not None:
                return Appended(repeated.base_offset, repeated.last_offset, repeated.append_time_ms, True)
        append_time_ms = now_ms if self._stamps_append_time else NO_TIMESTAMP
        if self._stamps_append_time:
            stamp_append_time(batch, now_ms)
        _pack_placement(batch, 0, self.log_end_offset, len(batch) - LENGTH_OVERHEAD, leader_epoch)
        return self._store(batch, header, marker, leader_epoch, append_time_ms, now_ms)

    def _store(
        self,
        batch: memoryview,
        header: BatchHeader,
        marker: Marker | None,
        leader_epoch: int,
        append_time_ms: int,
        now_ms: int,
    ) -> Appended:
        """Store a batch that has its offset and its leader epoch."""
        offset = self.log_end_offset
        last_offset = offset + header.last_offset_delta
        size = len(batch)
        timestamp = header.max_timestamp if append_time_ms < 0 else append_time_ms
        segment = self._active
        if (
            segment is None
            or segment.size_bytes + size > self._segment_bytes
            or timestamp > self._roll_timestamp
            or now_ms > self._roll_wall_ms
            or last_offset > self._roll_offset
        ):
            segment = self._append_slow_path(batch, size, offset, last_offset, timestamp, now_ms)
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
                self._add_aborted(segment, entry)
        elif header.producer_id >= 0:
            self.producers.record(header, offset, append_time_ms, now_ms)
        if segment.size_bytes > self._checkpoint_due_bytes:
            self._checkpoint_due_bytes = segment.size_bytes + CHECKPOINT_INTERVAL_BYTES
            segment.write_index()
            self._checkpoint_later()
        return Appended(offset, last_offset, append_time_ms, False)

    def _add_aborted(self, segment: LogSegment, entry: AbortedEntry) -> None:
        aborted = self._aborted_of(segment)
        if not aborted:
            self._abort_segments.append(segment)
        aborted.add(entry)
        if aborted.is_full:
            self._set_roll_limits()

    def _append_slow_path(
        self, batch: memoryview, size: int, offset: int, last_offset: int, timestamp: int, now_ms: int
    ) -> LogSegment:
        """Handle the first append of a run, and appends that may not fit into the active segment."""
        if self._on_first_append is not None:
            with disk_errors(f"record the first append to {self._directory}"):
                self._prerequisites = (*self._prerequisites, self._on_first_append())
            self._on_first_append = None
            self._segment_bytes = self._settings.segment_bytes
        segment = self._active
        # An active segment that recovery left empty takes any batch: a new segment would have the same name.
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
        """Roll: start the next segment with this batch, then seal the segment before.

        Every step that can fail is done before the new segment is added to the log. From then on the batch is stored.
        """
        before = self._active if self._active is not None and not self._active.is_sealed else None
        if before is not None:
            before.prepare_seal()
        if self._prepare_directory is not None:
            with disk_errors(f"create {self._directory}"):
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
            self._track_unsynced(before)
        self._active = segment
        self._segments.append(segment)
        self._bases.append(offset)
        self._names_created += 1
        self._set_roll_limits()
        self._checkpoint_due_bytes = CHECKPOINT_INTERVAL_BYTES
        # The checkpoint ends before the first batch of the new segment: recovery after a kill scans that segment.
        checkpoint = self._describe(segment, offset, 0, is_clean=False)
        self._seal_and_checkpoint([before] if before is not None else [], checkpoint)
        return segment

    def roll(self, now_ms: int) -> None:
        """Close the active segment, unless it is empty or already closed. The next append starts a new segment."""
        active = self._active
        if active is None or active.is_sealed or not active.size_bytes or self._refusal is not None:
            return
        active.prepare_seal()
        self._track_unsynced(active)
        self._seal_and_checkpoint([active], self._describe_end(is_clean=False))
        self._set_roll_limits()

    # --- log start offset

    def advance_log_start_offset(self, offset: int) -> None:
        """Advance the log start offset for readers now. The checkpoint is written in the background.

        A power cut may undo this. :class:`~storage.log.start_offset.LogStartUpdate` makes the new offset durable first.
        """
        self.check_start(offset)
        if offset == self.log_start_offset:
            return
        self.set_start(offset)
        self._checkpoint_start_later()

    def drop_segments(self) -> list[LogSegment]:
        """Drop the segments that are entirely below the log start offset, even the active one. Returns these segments.

        Does not wait for the disk. Slices of the segments stay valid. The files stay until the caller calls
        ``delete_files`` of each segment. ``delete_files`` first makes a checkpoint with the new log start durable, so
        that no offset is assigned twice.
        """
        if self._refusal is not None or self._replacement is not None:
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
            # No records are left to sync. The log continues at its end offset.
            self.synced_offset = self.log_end_offset
            self._set_roll_limits()
        number, checkpoint = self._checkpoint_file.take_number(), self._describe_end(is_clean=False)
        for segment in dropped:
            segment.mark_dropped(partial(self._remove_dropped, segment, number, checkpoint))
        self._dropped = [*self._undeleted(), *dropped]
        return dropped

    def _remove_dropped(self, segment: LogSegment, number: int, checkpoint: Checkpoint) -> None:
        """Remove the files of a dropped segment. May be called in any thread."""
        note = partial(self._checkpoint_file.make_durable, number, checkpoint)
        with disk_errors(f"remove {segment.path}"), self._checkpoint_file.held() as is_ours:
            # If the log was closed meanwhile, its folder is removed as a whole, or cleaned up at the next opening.
            if is_ours and run_with_reserve(self._files, segment.path, note):
                segment.unlink_files()

    def _undeleted(self) -> list[LogSegment]:
        return [segment for segment in self._dropped if not segment.is_deleted]

    # --- replacing segments

    def replace_segments(
        self, removed: Sequence[LogSegment], added: Sequence[NewSegment], clean_upto: int
    ) -> list[LogSegment]:
        """Replace ``removed`` by ``added``; see :mod:`storage.log.segment_replacement`. Waits for the disk.

        Returns the old segments. Call their ``delete_files`` when no reader needs them. After a :class:`DiskFailure`
        the log is unchanged.
        """
        return self._run_replacement(self.begin_replacement(removed, added, clean_upto))

    def begin_replacement(
        self, removed: Sequence[LogSegment], added: Sequence[NewSegment], clean_upto: int
    ) -> SegmentReplacement:
        """Begin a replacement. Call ``run`` of the result in a thread, then ``finish`` or ``fail`` on the log's thread.

        ``removed`` are adjacent segments that are sealed and synced. If they include the last segment of the log, the
        new segments must end at the log end offset, because that offset is stored nowhere else.
        """
        at = self._check_replacement(removed, added)
        for segment in removed:
            segment.keep_open()
            if segment.has_aborted:
                self._aborted_of(segment)  # load the transaction index: its file will be removed, too
        manifest = Manifest(
            tuple(segment.base_offset for segment in removed),
            tuple(new.base_offset for new in added),
            clean_upto,
            tuple(new.base_offset for new in added if new.aborted),
        )
        # Set before the gaps exist: after a crash, recovery reports a gap at or above this offset as damage.
        self._gaps_upto = clean_upto
        self._relist(manifest.remove, [(new.base_offset, new.size_bytes, bool(new.aborted)) for new in added])
        checkpoint = self._describe_end(is_clean=False)

        def end(error: DiskFailure | None) -> list[LogSegment]:
            self._replacement = None
            self._gaps_upto = 0
            self._relist()
            if error is not None:
                if isinstance(error, StorageFailed):
                    self.poison(error)
                return []
            self.clean_upto = clean_upto
            segments = [self._open_new_segment(new, is_sealed=True) for new in added]
            self._set_segments([*self._segments[:at], *segments, *self._segments[at + len(removed) :]])
            self._set_quarantined(self.quarantined)
            self._set_roll_limits()
            return list(removed)

        new_sizes = {new.base_offset: new.size_bytes for new in added}
        self._replacement = SegmentReplacement(self._files, manifest, new_sizes, self._checkpoint_file, checkpoint, end)
        return self._replacement

    def _check_replacement(self, removed: Sequence[LogSegment], added: Sequence[NewSegment]) -> int:
        if self._refusal is not None:
            raise copy(self._refusal)
        if self._replacement is not None:
            raise DiskFailure(f"{self._directory}: another replacement of segments is in progress")
        end_offset = self.log_end_offset
        return check_replacement(self._directory, self._segments, self.quarantined, end_offset, removed, added)

    def _open_new_segment(self, new: NewSegment, *, is_sealed: bool) -> LogSegment:
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

    # --- truncation

    def truncate(self, offset: int) -> None:
        """Remove the batch that holds ``offset`` and everything after it. Waits for the disk.

        Slices that readers hold stay valid. After a :class:`DiskFailure` the log is unchanged.
        """
        if self._refusal is not None:
            raise copy(self._refusal)
        if self._replacement is not None:
            raise DiskFailure(f"{self._directory}: a replacement of segments is in progress")
        if offset < 0:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset >= self.log_end_offset:
            return
        start = self.log_start_offset
        kept = [segment for segment in self._segments if segment.next_offset <= offset]
        with disk_errors(f"truncate {self._directory}"):
            # If offset is in a gap, the log ends with the last batch before the gap. A scan would find the same end.
            position, end_offset = self._segments[len(kept)].end_below(offset)
            if not position:
                end_offset = kept[-1].next_offset if kept else start
            if end_offset < start or offset <= start:
                self._replace_end([], self._segments, min(start, offset))  # no readable record is left
                return
            gone, segments = self._segments[len(kept) :], kept
            if position:
                if gone[0].has_aborted:
                    self._aborted_of(gone[0])
                new = write_prefix(gone[0], position, end_offset, self._directory, self._files)
                segments = [*kept, self._open_new_segment(new, is_sealed=False)]
        self._replace_end(segments, gone, end_offset)

    def _replace_end(self, segments: list[LogSegment], gone: list[LogSegment], end_offset: int) -> None:
        last = segments[-1] if segments else None
        # The truncation may fail after the checkpoint is written, so the checkpoint must fit the old log, too.
        with disk_errors(f"truncate {self._directory}"):
            known = (last, end_offset, last.size_bytes) if last else end_of_emptied(self._segments, end_offset)
        # Dropped files that are not deleted yet may have the names of future segments. If the log is emptied, all
        # dropped files are removed: otherwise recovery would find a gap between them and the next append.
        waiting = [segment for segment in self._undeleted() if not segments or segment.next_offset > end_offset]
        manifest = Manifest(
            tuple(segment.base_offset for segment in (*gone, *waiting)),
            (last.base_offset,) if last is not None and not last.is_sealed else (),
            min(self.clean_upto, end_offset),
        )
        epochs = LeaderEpochs(self.epochs.entries)
        epochs.truncate_from_end(end_offset)
        # Scan the current segments, because the files of the new segment do not have their final names yet.
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
            aborted=encode_entries(self._aborted_without_file(segments, described.offset)),
        )

        def end(error: DiskFailure | None) -> list[LogSegment]:
            self._replacement = None
            self._relist()
            if error is not None:
                self._checkpoint_file.log_start_offset = start_before
                if not isinstance(error, StorageFailed):  # else the files may be gone, and a seal would create new ones
                    for segment in gone:
                        segment.stop_work(is_stopped=False)
                if isinstance(error, StorageFailed):
                    self.poison(error)
                if start < start_before:
                    self._checkpoint_start_later()  # the checkpoint with the lower start may be on disk
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
                segment.mark_deleted()
            self._store_quarantine()
            return gone

        for segment in gone:
            segment.stop_work()
        is_less_clean = self.clean_upto > end_offset
        self._replacement = SegmentReplacement(self._files, manifest, new_sizes, self._checkpoint_file, checkpoint, end)
        self._run_replacement(self._replacement)
        if is_less_clean:
            # Compaction left gaps up to the old clean_upto. From now on, a gap after end_offset means missing records.
            number, file = self._checkpoint_file.take_number(), self._checkpoint_file
            try:
                file.make_durable(number, self._describe_end(is_clean=False))
            except OSError as error:
                self.poison(StorageFailed(f"checkpoint {self._directory}: {error}", error.errno))

    def _run_replacement(self, replacement: SegmentReplacement) -> list[LogSegment]:
        try:
            replacement.run()
        except DiskFailure as error:
            replacement.fail(error)
            raise
        return replacement.finish()

    # --- parking

    def park(self) -> bool:
        """Close an idle log as a clean stop does, so that it can be opened again without reading records.

        Does not wait for the disk. Returns False, and the log stays open, if something is left to sync, seal or remove.
        If only a checkpoint is left to sync, its write is started, so call again later.
        """
        if (
            self._refusal is not None
            or self._replacement is not None
            or self.synced_offset < self.log_end_offset
            or any(segment.is_seal_pending for segment in self._segments)
            or self._undeleted()
            or self._checkpoint_file.is_busy
            or (self._active is not None and self._active.is_reserving)
        ):
            return False
        extent = self.log_start_offset, self.log_end_offset, self.clean_upto
        if self._is_describable and self._clean_extent != extent:
            try:
                self._write_clean_checkpoint(extent)
            except (OSError, StorageError):
                return False
        if (self._is_describable and self._clean_extent != extent) or not self._checkpoint_file.retire(blocking=False):
            return False
        self._shut_down()
        return True

    def _write_clean_checkpoint(self, extent: tuple[int, int, int]) -> None:
        if self._active is not None:
            self._active.seal_unsynced()
        number, is_vital = self._checkpoint_file.take_number(), self._is_checkpoint_vital
        checkpoint = self._describe_end(is_clean=True)

        def write() -> None:
            self._checkpoint_file.write(number, checkpoint, sync=is_vital, is_unsynced=not is_vital)
            self._clean_extent = extent

        def write_off_the_loop() -> None:
            with suppress(OSError):
                write()

        if is_vital:
            self._run_in_background(write_off_the_loop)
        else:
            write()
