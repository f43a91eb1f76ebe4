"""Durability of a log: syncs, seals and checkpoints.

``synced_offset`` advances only when a sync has succeeded. Everything below it survives a power cut, including file
names and the folder. After any failed sync the log is *poisoned* until the next start: it takes no appends, syncs
nothing, and ``synced_offset`` does not change. The next start reads what is really on the disk.

Thread rule: all methods are called on the log's thread. Jobs passed to ``background`` have their own copies of the data
that they need. They pass results back through the :class:`~storage.log.syncing.SyncGate`, the
:class:`~storage.recovery.checkpoint.CheckpointFile` and single assignments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec.structs import replace

from storage.disk.files import Files
from storage.errors import (
    DamagedLog,
    DiskFailure,
    LogClosed,
    OffsetOutOfRange,
    StorageError,
    StorageFailed,
    disk_errors,
)
from storage.log.quarantine import QUARANTINE_NAME, Quarantine, add_range, write_quarantine
from storage.log.reading import LogState, ReadableLog
from storage.log.settings import Background
from storage.log.syncing import SYNC_FAILED_NAME, LogSync, SyncGate, mark_sync_failed
from storage.recovery.checkpoint import Checkpoint, CheckpointFile, ListedSegment
from storage.segment.index import NO_MAX_TIMESTAMP
from storage.segment.segment import LogSegment
from storage.segment.txn_index import AbortedEntry, encode_entries


def _first_unsealed(segments: list[LogSegment], last_base: int) -> int:
    """The base offset of the first segment whose seal is pending, else ``last_base``."""
    return min((segment.base_offset for segment in segments if segment.is_seal_pending), default=last_base)


class DurableLog(ReadableLog):
    """Adds syncs, seals and checkpoints to :class:`ReadableLog`. ``gate`` is closed once a sync has failed."""

    __slots__ = (
        "_background",
        "_boot_id",
        "_checkpoint_file",
        "_dropped",
        "_files",
        "_gaps_upto",
        "_generation",
        "_has_failed_seal",
        "_is_folder_new",
        "_is_sync_failure_marked",
        "_names_created",
        "_names_synced",
        "_pending_start_max",
        "_pending_starts",
        "_prerequisites",
        "_refusal",
        "_relisted",
        "_unsynced",
        "gate",
        "on_folder_durable",
        "synced_offset",
    )

    def __init__(self, directory: str, files: Files, background: Background, boot_id: str, state: LogState) -> None:
        super().__init__(directory, state)
        self._files = files
        self._background = background
        self._boot_id = boot_id
        self._checkpoint_file = CheckpointFile(directory, files)
        self._checkpoint_file.log_start_offset = state.log_start_offset
        self.gate = SyncGate(self._mark_sync_failure)
        self._is_sync_failure_marked = state.is_sync_failure_marked
        for segment in state.segments:
            segment.gate = self.gate
        # This is correct for a log that was stopped cleanly. After a recovery scan, finish_recovery lowers it.
        self.synced_offset = state.log_end_offset
        # Segments that take no more appends and have unsynced bytes.
        self._unsynced: list[LogSegment] = []
        # Segments dropped from the log. Some of their files may still exist.
        self._dropped: list[LogSegment] = []
        # File names created in the folder so far, and how many of them are known to be durable.
        self._names_created = 0
        self._names_synced = 0
        self._is_folder_new = False
        # Called once, after the first sync of a new folder.
        self.on_folder_durable: Callable[[], None] | None = None
        # The next sync calls these functions first. They make other files durable on which the records depend.
        self._prerequisites: tuple[Callable[[], None], ...] = ()
        # Incremented by a truncation. After it, offsets may be assigned again, to records that earlier syncs do not
        # cover.
        self._generation = 0
        # While a checkpoint with a new log start is pending: the largest log start offset that it can store. Otherwise
        # -1.
        self._pending_start_max = -1
        # A seal failed because the disk was full or no descriptor was available. `retry_seals` tries again.
        self._has_failed_seal = False
        # Log start offsets that are being made durable and that readers do not see yet.
        self._pending_starts: tuple[int, ...] = ()
        # While a replacement of segments is in progress, offset gaps may appear below this offset. Otherwise 0.
        self._gaps_upto = 0
        # For checkpoints during a replacement: the base offsets of the removed segments, and the new segments.
        self._relisted: tuple[frozenset[int], tuple[ListedSegment, ...]] = (frozenset(), ())
        # The error that appends raise, if they are refused.
        self._refusal: Exception | None = None
        if state.damage is not None:
            self._refusal = DamagedLog(f"{state.damage.path} is damaged at byte {state.damage.position}")

    @property
    def is_writable(self) -> bool:
        return self._refusal is None

    @property
    def is_closed(self) -> bool:
        return isinstance(self._refusal, LogClosed)

    # --- syncing

    def begin_sync(self) -> LogSync | None:
        """Create the sync that makes all records durable. None if all are durable, or the log is poisoned or closed.

        Raises :class:`DiskFailure` if no descriptor is available: nothing is lost, and the call may be repeated.
        """
        end_offset = self.log_end_offset
        if self.synced_offset >= end_offset or self.gate.failure is not None or self.is_closed:
            return None
        dirty: list[tuple[LogSegment, int, int]] = []
        try:
            for segment in self._unsynced:
                if segment.synced_bytes < segment.size_bytes:
                    dirty.append((segment, segment.size_bytes, segment.open_for_sync()))
            active = self._active
            if active is not None and active.synced_bytes < active.size_bytes and not active.is_sealed:
                dirty.append((active, active.size_bytes, active.open_for_sync()))
        except OSError as error:
            for _, _, fd in dirty:
                self._files.close(fd)
            raise DiskFailure(f"open {self._directory} to sync it: {error}", error.errno) from error
        names_created = self._names_created if self._names_created > self._names_synced or self._is_folder_new else 0
        return LogSync(
            self,
            self._files,
            end_offset,
            self._generation,
            dirty,
            names_created,
            self._is_folder_new,
            self._prerequisites,
        )

    def end_sync(self, sync: LogSync) -> None:
        """Record a successful sync. Has no effect if the log was truncated or another sync failed meanwhile."""
        if sync.generation != self._generation or self.gate.failure is not None:
            return
        for segment, size_bytes, _ in sync.dirty:
            segment.synced_bytes = max(segment.synced_bytes, size_bytes)
        if self._unsynced:
            self._drop_synced()
        if sync.names_created:
            self._names_synced = max(self._names_synced, sync.names_created)
            if sync.is_folder_new:
                self._is_folder_new = False
                if self.on_folder_durable is not None:
                    self.on_folder_durable()
                    self.on_folder_durable = None
        if sync.notes:
            self._prerequisites = self._prerequisites[len(sync.notes) :]
        if self._is_sync_failure_marked:
            # All bytes read from the disk when this log was opened are durable now, so the page cache is correct again.
            self._is_sync_failure_marked = False
            self._run_in_background(self._unmark_sync_failure)
        self.synced_offset = max(self.synced_offset, sync.end_offset)

    def poison(self, error: StorageFailed) -> None:
        """Poison the log after a failed sync: the state of the disk is unknown, so nothing is written or synced."""
        self.gate.close_gate(error)
        self._refuse_appends(error)

    def _mark_sync_failure(self) -> None:
        """Mark the folder, so that the next start does not trust the page cache. Runs in the failed sync's thread."""
        if not self.is_closed:
            mark_sync_failed(self._files, self._directory)

    def _unmark_sync_failure(self) -> None:
        # If the marker file stays, or reappears after a power cut, the next start scans the log once more.
        with suppress(OSError), self._checkpoint_file.held() as is_ours:
            if is_ours and self.gate.failure is None:
                self._files.unlink(os.path.join(self._directory, SYNC_FAILED_NAME))

    def flush(self) -> None:
        """Make everything appended so far durable. Waits for the disk. A failed sync poisons the log."""
        if self.gate.failure is not None:
            raise self.gate.failure
        sync = self.begin_sync()
        if sync is None:
            return
        try:
            sync.run()
        except StorageFailed as error:
            sync.fail(error)
            raise
        sync.finish()

    def _drop_synced(self) -> None:
        self._unsynced = [segment for segment in self._unsynced if segment.synced_bytes < segment.size_bytes]

    def _track_unsynced(self, segment: LogSegment) -> None:
        """Add a segment that takes no more appends to the unsynced segments, unless all its bytes are synced."""
        self._drop_synced()  # else the list would grow without bound in a log that is never synced
        if segment.synced_bytes < segment.size_bytes:
            self._unsynced.append(segment)

    # --- seals

    def finish_recovery(self, unsealed: list[LogSegment], known: Checkpoint | None, *, is_synced: bool = False) -> None:
        """After a recovery scan: seal segments without a seal and write a checkpoint, so that the next scan is short.

        Nothing is written if ``unsealed`` is empty and ``known``, the checkpoint on disk, has the same content apart
        from the producer states. If ``is_synced`` is False, a killed process wrote the scanned bytes, so they may not
        be synced.
        """
        # The folder, its partition.metadata and the file names in it may not be durable either.
        self._names_created += 1
        self._is_folder_new = True
        segment = self._active
        if segment is None:
            return
        if not is_synced:
            self._unsynced = [*unsealed, *([segment] if segment.is_sealed and segment not in unsealed else [])]
            for scanned in (*self._unsynced, segment):
                scanned.synced_bytes = 0
            self.synced_offset = min((one.base_offset for one in (*self._unsynced, segment)), default=0)
        checkpoint: Checkpoint | None = None
        if self.damage is None:
            with suppress(StorageError):  # the next append raises the same error
                checkpoint = replace(self._describe_end(is_clean=False), scan_from=segment.base_offset)
        is_new = checkpoint is not None and (
            known is None or replace(known, producers=b"") != replace(checkpoint, producers=b"")
        )
        if unsealed or is_new:
            self._seal_and_checkpoint(unsealed, checkpoint)

    def _seal_and_checkpoint(self, finished: list[LogSegment], checkpoint: Checkpoint | None) -> None:
        """In the background: seal the finished segments, sync the folder, then write the checkpoint."""
        finish_seals = [earlier.seal() for earlier in finished]
        pending = [earlier for earlier in self._segments if earlier.is_seal_pending]
        names_created = self._names_created
        has_new_name = checkpoint is not None and checkpoint.position == 0
        number, is_vital = self._checkpoint_file.take_number(), self._is_checkpoint_vital

        def settle() -> None:
            try:
                for finish_seal in finish_seals:
                    finish_seal()
                if finish_seals or has_new_name:
                    self.gate.sync(f"sync {self._directory}", self._files.fsync_dir, self._directory)
                    self._names_synced = max(self._names_synced, names_created)
                if checkpoint is not None:
                    scan_from = _first_unsealed(pending, checkpoint.segment_base)
                    self._checkpoint_file.write(number, replace(checkpoint, scan_from=scan_from), sync=is_vital)
            except StorageFailed as error:
                self._refuse_appends(error)
            except (DiskFailure, OSError):
                self._has_failed_seal = True  # without a retry, the next start scans the segment

        if not self._run_in_background(settle):
            self._has_failed_seal = True

    def retry_seals(self) -> None:
        """Retry, in the background, seals that failed because the disk was full or no descriptor was available."""
        if not self._has_failed_seal or self._refusal is not None:
            return
        self._has_failed_seal = False
        pending = [segment for segment in self._segments if segment.is_seal_pending]
        try:
            checkpoint = self._describe_end(is_clean=False)
        except DiskFailure:  # an index that is not in memory cannot be read now
            self._has_failed_seal = True
            return
        self._seal_and_checkpoint(pending, checkpoint)

    def _run_in_background(self, job: Callable[[], None]) -> bool:
        """Run ``job`` in the background. Returns False if no thread is available. Then the job is not run."""
        try:
            self._background(job)
        except RuntimeError:
            return False
        return True

    def _refuse_appends(self, error: StorageFailed) -> None:
        # A closed or deleted log keeps LogClosed as its error, because its directory may be gone.
        if self._refusal is None:
            self._refusal = error

    # --- damage

    def _store_quarantine(self) -> None:
        """Write the current quarantined ranges. A truncation removes ranges whose offsets may be assigned again."""
        try:
            with self._checkpoint_file.held() as is_ours:
                if is_ours and self._files.exists(os.path.join(self._directory, QUARANTINE_NAME)):
                    write_quarantine(self._directory, self._files, self.quarantined)
        except OSError as error:
            self.poison(StorageFailed(f"write the quarantined ranges of {self._directory}: {error}", error.errno))

    def quarantine(self, found: Quarantine) -> None:
        """Quarantine damaged bytes: reads of their offsets fail, also after a restart. Does not wait for the disk.

        A failed write is ignored: the next verification finds the range again.
        """
        self._set_quarantined(add_range(self.quarantined, found))

        def write() -> None:
            # held() admits one writer at a time. Each writer stores the newest list.
            with suppress(OSError), self._checkpoint_file.held() as is_ours:
                if is_ours:
                    write_quarantine(self._directory, self._files, self.quarantined)

        self._run_in_background(write)

    # --- checkpoints

    @property
    def _is_describable(self) -> bool:
        """Whether a checkpoint can describe the log: the log has had records, and its end is not damaged."""
        return self.damage is None and (self._active is not None or self.log_end_offset > 0)

    @property
    def _is_checkpoint_vital(self) -> bool:
        """Whether the checkpoint holds facts that a scan of the batches could not find again.

        Such a checkpoint is replaced only by a synced one: otherwise a power cut could destroy both.
        """
        return self.log_start_offset > 0 or self.clean_upto > 0 or self._gaps_upto > 0

    def checkpoint(self, *, is_clean: bool = False) -> None:
        """Write a checkpoint now. Recovery will start from it."""
        if not self._is_describable:
            return
        if self._active is not None:
            self._active.write_index()
        number = self._checkpoint_file.take_number()
        with disk_errors(f"checkpoint {self._directory}"):
            self._checkpoint_file.write(
                number, self._describe_end(is_clean=is_clean), sync=is_clean or self._is_checkpoint_vital
            )

    def _checkpoint_later(self) -> None:
        """Write a checkpoint of the current state in the background. If that fails, the next recovery scans more."""
        number, is_vital = self._checkpoint_file.take_number(), self._is_checkpoint_vital
        checkpoint = self._describe_end(is_clean=False)

        def write() -> None:
            with suppress(OSError):
                self._checkpoint_file.write(number, checkpoint, sync=is_vital)

        self._run_in_background(write)

    def _checkpoint_start_later(self) -> None:
        """Write the new log start offset in the background. Only one write is pending; it stores the newest offset."""
        if self.log_start_offset <= self._pending_start_max or not self._is_describable:
            return
        number = self._checkpoint_file.take_number()
        checkpoint = self._describe_end(is_clean=False)
        self._pending_start_max = checkpoint.offset

        def write() -> None:
            self._pending_start_max = -1
            with suppress(OSError):
                self._checkpoint_file.write(number, checkpoint, sync=True)

        try:
            self._background(write)
        except RuntimeError:
            self._pending_start_max = -1

    # --- the log start

    def check_start(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)

    def set_start(self, offset: int) -> None:
        """Set the log start offset for readers. The caller has written, or will write, a checkpoint."""
        self.log_start_offset = offset
        self._update_checkpoint_start()
        self.epochs.truncate_from_start(offset)

    def add_pending_start(self, offset: int) -> None:
        """Record that this log start offset is being made durable: no later checkpoint may have a lower one."""
        self._pending_starts = (*self._pending_starts, offset)
        self._update_checkpoint_start()

    def remove_pending_start(self, offset: int) -> None:
        expected = list(self._pending_starts)
        expected.remove(offset)
        self._pending_starts = tuple(expected)
        self._update_checkpoint_start()

    def _update_checkpoint_start(self) -> None:
        self._checkpoint_file.log_start_offset = max((self.log_start_offset, *self._pending_starts))

    def _describe_end(self, *, is_clean: bool) -> Checkpoint:
        position = self._active.size_bytes if self._active is not None else 0
        return self._describe(self._active, self.log_end_offset, position, is_clean=is_clean)

    def _describe(self, segment: LogSegment | None, offset: int, position: int, *, is_clean: bool) -> Checkpoint:
        """A checkpoint of the current state. ``segment`` is None if the log is empty and continues at ``offset``."""
        segment_base = segment.base_offset if segment is not None else offset
        return Checkpoint(
            boot_id=self._boot_id,
            is_clean=is_clean,
            log_start_offset=self.log_start_offset,
            offset=offset,
            segment_base=segment_base,
            position=position,
            scan_from=_first_unsealed(self._segments, segment_base),
            max_timestamp=segment.max_timestamp if segment is not None and position else NO_MAX_TIMESTAMP,
            first_timestamp=segment.first_timestamp if segment is not None else NO_MAX_TIMESTAMP,
            created_ms=segment.created_ms if segment is not None else 0,
            epochs=tuple(self.epochs.entries),
            producers=self.producers.encode(),
            clean_upto=max(self.clean_upto, self._gaps_upto),
            aborted=encode_entries(self._aborted_without_file(self._segments, offset)),
            segments=self._listed(segment, position) if segment is not None else (),
            has_quarantine=bool(self.quarantined),
        )

    def _listed(self, last: LogSegment, position: int) -> tuple[ListedSegment, ...]:
        """The list of segments for a checkpoint; empty if the other fields already describe the only segment.

        During a replacement, the list has the segments that the log will have after it. If the replacement fails, the
        next start finds files of other sizes, scans them and finds them intact.
        """
        gone, added = self._relisted
        listed = [
            ListedSegment(
                one.base_offset,
                position if one is last else one.size_bytes,
                one.has_aborted and one.is_aborted_on_file,
            )
            for one in self._segments
            if one.base_offset not in gone
        ]
        listed = sorted([*listed, *added])
        if len(listed) == 1 and listed[0].size_bytes and not listed[0].has_aborted:
            return ()
        return tuple(listed)

    def _relist(self, removed: Iterable[int] = (), added: Iterable[tuple[int, int, bool]] = ()) -> None:
        """Set the segments that a replacement removes and adds. Without arguments, clear them after the replacement."""
        self._relisted = frozenset(removed), tuple(ListedSegment(*one) for one in added)

    def _aborted_without_file(self, segments: list[LogSegment], end_offset: int) -> list[AbortedEntry]:
        """Aborted transactions below ``end_offset`` that are in no transaction index file, only in the checkpoint."""
        return [
            entry
            for segment in segments
            if segment.has_aborted and not segment.is_aborted_on_file
            for entry in self._aborted_of(segment)
            if entry.last_offset < end_offset
        ]

    # --- closing

    def close(self, *, is_clean: bool = True) -> None:
        """Close the log. If ``is_clean``, sync and seal all segments first, so that the next start reads no batches.

        Waits for the disk. Slices that readers hold stay valid.
        """
        if self.is_closed:
            return
        try:
            if is_clean and self._refusal is None and self.gate.failure is None:
                self.flush()
                self._refusal = LogClosed(f"{self._directory} is closed")
                for segment in self._segments:
                    if segment.is_seal_pending or not segment.is_sealed:
                        segment.seal()()
                self.checkpoint(is_clean=True)
                if self._is_sync_failure_marked:
                    self._unmark_sync_failure()
        finally:
            self._shut_down()

    def end_background_work(self) -> None:
        """Wait for the background jobs and prevent new ones, before a deleted or relocated log is closed.

        May be called in any thread, so that :meth:`close` on the log's thread need not wait for a sync.
        """
        self._checkpoint_file.retire()
        for segment in (*self._segments, *self._dropped):
            segment.stop_work()

    def _shut_down(self) -> None:
        self._refusal = LogClosed(f"{self._directory} is closed")
        self._checkpoint_file.retire()
        # Close dropped segments, too: their pending seals would open files by names that may soon belong to another
        # log.
        for segment in (*self._segments, *self._dropped):
            segment.close()
