"""What a log has made durable and what it has still to: seals, sync rounds and checkpoints.

``synced_offset`` only moves when a sync has come back: everything below it survives a power cut, its file names and
its folder included. After any failed sync the log is poisoned: it takes no appends, syncs nothing any more and
``synced_offset`` stays where it is, until the next start reads from the disk what is really there.

Thread rule: all methods belong to the log's thread. Jobs handed to ``background`` take what they need with them; what
they find out comes back through the :class:`~storage.syncing.SyncGate`, :class:`~storage.checkpoint.CheckpointFile`
and single assignments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec.structs import replace

from storage.checkpoint import Checkpoint, CheckpointFile, ListedSegment
from storage.errors import (
    DamagedLog,
    DiskFailure,
    LogClosed,
    OffsetOutOfRange,
    StorageError,
    StorageFailed,
    disk_errors,
)
from storage.files import Files
from storage.index import NO_MAX_TIMESTAMP
from storage.log_reading import LogState, ReadableLog
from storage.quarantine import QUARANTINE_NAME, Quarantine, add_range, write_quarantine
from storage.segment import LogSegment
from storage.settings import Background
from storage.syncing import SYNC_FAILED_NAME, LogSync, SyncGate, mark_sync_failed
from storage.txn_index import AbortedEntry, encode_entries


def _walk_from(segments: list[LogSegment], last_base: int) -> int:
    """The first segment whose seal is still in work."""
    return min((segment.base_offset for segment in segments if segment.is_seal_pending), default=last_base)


class DurableLog(ReadableLog):
    """Adds to the readable log how it is kept; ``gate`` is shut once a sync has failed."""

    __slots__ = (
        "_background",
        "_boot_id",
        "_checkpoint_file",
        "_dropped",
        "_expected_starts",
        "_files",
        "_gaps_upto",
        "_generation",
        "_has_failed_seal",
        "_is_folder_new",
        "_is_sync_failure_noted",
        "_names_made",
        "_names_synced",
        "_notes",
        "_pending_start_max",
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
        self.gate = SyncGate(self._note_sync_failure)
        self._is_sync_failure_noted = state.is_sync_failure_noted
        for segment in state.segments:
            segment.gate = self.gate
        # A log that was stopped cleanly is synced; of one that had to be walked settle_walked says otherwise.
        self.synced_offset = state.log_end_offset
        # Segments that take no more appends and had unsynced bytes when they took the last one.
        self._unsynced: list[LogSegment] = []
        # Given back to be deleted; some of their files may still be there.
        self._dropped: list[LogSegment] = []
        # Names made in the folder so far, and how many of them are durable for certain.
        self._names_made = 0
        self._names_synced = 0
        self._is_folder_new = False
        # Called once, after the first sync of a new folder.
        self.on_folder_durable: Callable[[], None] | None = None
        # What the next sync has to make durable besides files of this log.
        self._notes: tuple[Callable[[], None], ...] = ()
        # Goes up when offsets may come to mean other records: a sync begun before says nothing of them.
        self._generation = 0
        # A checkpoint with a new log start waits to be written; it can hold one up to here. -1: none waits.
        self._pending_start_max = -1
        # A seal got no further because the disk was full or no descriptor was to be had; `retry_seals` tries again.
        self._has_failed_seal = False
        # Log starts that are being made durable and that readers do not see yet.
        self._expected_starts: tuple[int, ...] = ()
        # While a replacement is under way, gaps may come to be below this.
        self._gaps_upto = 0
        # What that replacement takes out of the list of segments, and what it puts there.
        self._relisted: tuple[frozenset[int], tuple[ListedSegment, ...]] = (frozenset(), ())
        # Why appends are refused, if they are; looked at first by every append.
        self._refusal: Exception | None = None
        if state.damage is not None:
            self._refusal = DamagedLog(f"{state.damage.path} is damaged at {state.damage.position}")

    @property
    def is_writable(self) -> bool:
        return self._refusal is None

    @property
    def is_closed(self) -> bool:
        return isinstance(self._refusal, LogClosed)

    # --- syncing

    def begin_sync(self) -> LogSync | None:
        """What has to be synced now so that everything appended is durable; None when it is, or can never be.

        Raises :class:`DiskFailure` when there is no descriptor to be had: nothing is lost, and it may be asked again.
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
        names_made = self._names_made if self._names_made > self._names_synced or self._is_folder_new else 0
        return LogSync(
            self, self._files, end_offset, self._generation, dirty, names_made, self._is_folder_new, self._notes
        )

    def end_sync(self, sync: LogSync) -> None:
        """The sync came back. It is not believed when another one of this log has failed meanwhile."""
        if sync.generation != self._generation or self.gate.failure is not None:
            return
        for segment, size_bytes, _ in sync.dirty:
            segment.synced_bytes = max(segment.synced_bytes, size_bytes)
        if self._unsynced:
            self._forget_synced()
        if sync.names_made:
            self._names_synced = max(self._names_synced, sync.names_made)
            if sync.is_folder_new:
                self._is_folder_new = False
                if self.on_folder_durable is not None:
                    self.on_folder_durable()
                    self.on_folder_durable = None
        if sync.notes:
            self._notes = self._notes[len(sync.notes) :]
        if self._is_sync_failure_noted:
            # What was read back from the disk when this log was opened is durable: the cache tells the truth again.
            self._is_sync_failure_noted = False
            self._later(self._forget_sync_failure)
        self.synced_offset = max(self.synced_offset, sync.end_offset)

    def poison(self, error: StorageFailed) -> None:
        """A sync failed, so what the disk holds is unknown: nothing is taken or called durable until the next start."""
        self.gate.shut(error)
        self._refuse_after(error)

    def _note_sync_failure(self) -> None:
        """In the thread that met it, at once: whoever opens this folder next must not believe the cache."""
        if not self.is_closed:
            mark_sync_failed(self._files, self._directory)

    def _forget_sync_failure(self) -> None:
        # If the note stays, or comes back by a power cut, the log is walked once more.
        with suppress(OSError), self._checkpoint_file.held() as is_ours:
            if is_ours and self.gate.failure is None:
                self._files.unlink(os.path.join(self._directory, SYNC_FAILED_NAME))

    def flush(self) -> None:
        """Make everything appended so far durable; waits for the disk. After a failed sync the log is poisoned."""
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

    def _forget_synced(self) -> None:
        self._unsynced = [segment for segment in self._unsynced if segment.synced_bytes < segment.size_bytes]

    def _leave_unsynced(self, segment: LogSegment) -> None:
        """This segment takes no more appends; its last bytes may not be durable."""
        self._forget_synced()  # or they would pile up where nobody asks for syncs
        if segment.synced_bytes < segment.size_bytes:
            self._unsynced.append(segment)

    # --- settling

    def settle_walked(self, unsealed: list[LogSegment], known: Checkpoint | None, *, is_synced: bool = False) -> None:
        """After a walk: seal what had no seal, and write down where the walk ended, so that the next one starts there.

        Nothing is written when ``known``, the checkpoint on file, says the same already. Unless it ``is_synced``, what
        was walked was written by a process that was killed, so nobody knows whether it was ever synced.
        """
        # Nor does anybody know of the folder, of what names its topic, and of the names in it.
        self._names_made += 1
        self._is_folder_new = True
        segment = self._active
        if segment is None:
            return
        if not is_synced:
            self._unsynced = [*unsealed, *([segment] if segment.is_sealed and segment not in unsealed else [])]
            for walked in (*self._unsynced, segment):
                walked.synced_bytes = 0
            self.synced_offset = min((one.base_offset for one in (*self._unsynced, segment)), default=0)
        checkpoint: Checkpoint | None = None
        if self.damage is None:
            with suppress(StorageError):  # the next append meets the same trouble and reports it
                checkpoint = replace(self._describe_end(is_clean=False), walk_from=segment.base_offset)
        is_new = checkpoint is not None and (
            known is None or replace(known, producers=b"") != replace(checkpoint, producers=b"")
        )
        if unsealed or is_new:
            self._settle(unsealed, checkpoint)

    def _settle(self, finished: list[LogSegment], checkpoint: Checkpoint | None) -> None:
        """Off the loop: make the finished segments durable, then the new name, then say so in the checkpoint."""
        finish_seals = [earlier.seal() for earlier in finished]
        pending = [earlier for earlier in self._segments if earlier.is_seal_pending]
        names_made = self._names_made
        has_new_name = checkpoint is not None and checkpoint.position == 0
        number, is_vital = self._checkpoint_file.take_number(), self._is_checkpoint_vital

        def settle() -> None:
            try:
                for finish_seal in finish_seals:
                    finish_seal()
                if finish_seals or has_new_name:
                    self.gate.sync(f"sync {self._directory}", self._files.fsync_dir, self._directory)
                    self._names_synced = max(self._names_synced, names_made)
                if checkpoint is not None:
                    walk_from = _walk_from(pending, checkpoint.segment_base)
                    self._checkpoint_file.write(number, replace(checkpoint, walk_from=walk_from), sync=is_vital)
            except StorageFailed as error:
                self._refuse_after(error)
            except (DiskFailure, OSError):
                self._has_failed_seal = True  # if nobody retries it, the segment is walked at the next start

        if not self._later(settle):
            self._has_failed_seal = True

    def retry_seals(self) -> None:
        """Begin again, off the loop, what a full disk or the lack of descriptors kept from being sealed."""
        if not self._has_failed_seal or self._refusal is not None:
            return
        self._has_failed_seal = False
        pending = [segment for segment in self._segments if segment.is_seal_pending]
        try:
            checkpoint = self._describe_end(is_clean=False)
        except DiskFailure:  # an index that is not in memory cannot be read just now
            self._has_failed_seal = True
            return
        self._settle(pending, checkpoint)

    def _later(self, job: Callable[[], None]) -> bool:
        """False: no thread takes it now. It counts as failed: later work, or the next start, makes up for it."""
        try:
            self._background(job)
        except RuntimeError:
            return False
        return True

    def _refuse_after(self, error: StorageFailed) -> None:
        # A log that was deleted meanwhile has no directory to sync; nobody appends to it any more.
        if self._refusal is None:
            self._refusal = error

    # --- damage

    def _forget_damage(self) -> None:
        """Offsets of ranges on file may soon belong to good records."""
        try:
            with self._checkpoint_file.held() as is_ours:
                if is_ours and self._files.exists(os.path.join(self._directory, QUARANTINE_NAME)):
                    write_quarantine(self._directory, self._files, self.quarantined)
        except OSError as error:
            self.poison(StorageFailed(f"write the damage of {self._directory}: {error}", error.errno))

    def quarantine(self, found: Quarantine) -> None:
        """These bytes are damaged: keep readers away from them, also after a restart. It is written off the loop.

        A write that fails costs another look: whoever found the range finds it again.
        """
        self._set_quarantined(add_range(self.quarantined, found))

        def write() -> None:
            # One writer at a time, and each takes the newest list there is.
            with suppress(OSError), self._checkpoint_file.held() as is_ours:
                if is_ours:
                    write_quarantine(self._directory, self._files, self.quarantined)

        self._later(write)

    # --- checkpoints

    @property
    def _is_describable(self) -> bool:
        """A log that never had a record has nothing to write down; a damaged one has an end that is none."""
        return self.damage is None and (self._active is not None or self.log_end_offset > 0)

    @property
    def _is_checkpoint_vital(self) -> bool:
        """Whether it says what no walk over the batches could find out again.

        Then it is never replaced by one that is not synced: a power cut could leave neither of the two.
        """
        return self.log_start_offset > 0 or self.clean_upto > 0 or self._gaps_upto > 0

    def checkpoint(self, *, is_clean: bool = False) -> None:
        """Write down now where recovery may start."""
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
        """Gather the facts here, write them off the loop; a failure only makes the next recovery walk further."""
        number, is_vital = self._checkpoint_file.take_number(), self._is_checkpoint_vital
        checkpoint = self._describe_end(is_clean=False)

        def write() -> None:
            with suppress(OSError):
                self._checkpoint_file.write(number, checkpoint, sync=is_vital)

        self._later(write)

    def _checkpoint_start_later(self) -> None:
        """The log start has moved. One write at a time: it takes the newest start there is when it happens."""
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
        """Records below ``offset`` are gone for readers; it is on file, or will be."""
        self.log_start_offset = offset
        self._note_start()
        self.epochs.truncate_from_start(offset)

    def expect_start(self, offset: int) -> None:
        """It is being made durable: no later checkpoint may take it back."""
        self._expected_starts = (*self._expected_starts, offset)
        self._note_start()

    def forget_expected_start(self, offset: int) -> None:
        expected = list(self._expected_starts)
        expected.remove(offset)
        self._expected_starts = tuple(expected)
        self._note_start()

    def _note_start(self) -> None:
        self._checkpoint_file.log_start_offset = max((self.log_start_offset, *self._expected_starts))

    def _describe_end(self, *, is_clean: bool) -> Checkpoint:
        position = self._active.size_bytes if self._active is not None else 0
        return self._describe(self._active, self.log_end_offset, position, is_clean=is_clean)

    def _describe(self, segment: LogSegment | None, offset: int, position: int, *, is_clean: bool) -> Checkpoint:
        """``segment`` is None for a log that has no records left: it goes on at ``offset``."""
        segment_base = segment.base_offset if segment is not None else offset
        return Checkpoint(
            boot_id=self._boot_id,
            is_clean=is_clean,
            log_start_offset=self.log_start_offset,
            offset=offset,
            segment_base=segment_base,
            position=position,
            walk_from=_walk_from(self._segments, segment_base),
            max_timestamp=segment.max_timestamp if segment is not None and position else NO_MAX_TIMESTAMP,
            first_timestamp=segment.first_timestamp if segment is not None else NO_MAX_TIMESTAMP,
            created_ms=segment.created_ms if segment is not None else 0,
            epochs=tuple(self.epochs.entries),
            producers=self.producers.encode(),
            clean_upto=max(self.clean_upto, self._gaps_upto),
            aborted=encode_entries(self._aborted_in_work(self._segments, offset)),
            segments=self._listed(segment, position) if segment is not None else (),
            has_quarantine=bool(self.quarantined),
        )

    def _listed(self, last: LogSegment, position: int) -> tuple[ListedSegment, ...]:
        """The segments as a checkpoint names them; none where the other facts of the checkpoint tell as much.

        While segments are being replaced these are the ones that will be there. Should the replacement not come about,
        a start finds files of other sizes, looks at them and finds them whole.
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
        """Segments are about to be replaced, from now on; without arguments: no longer."""
        self._relisted = frozenset(removed), tuple(ListedSegment(*one) for one in added)

    def _aborted_in_work(self, segments: list[LogSegment], end_offset: int) -> list[AbortedEntry]:
        """Aborted transactions below ``end_offset`` of which only the checkpoint knows after a restart."""
        return [
            entry
            for segment in segments
            if segment.has_aborted and not segment.is_aborted_on_file
            for entry in self._aborted_of(segment)
            if entry.last_offset < end_offset
        ]

    # --- the end

    def close(self, *, is_clean: bool = True) -> None:
        """Stop. Clean: cut, sync and seal everything, so that the next start reads no batches; waits for the disk.

        Slices that readers still hold stay good.
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
                if self._is_sync_failure_noted:
                    self._forget_sync_failure()
        finally:
            self._shut_down()

    def end_background_work(self) -> None:
        """Wait until no job is at work on the files, and let none begin: for a log that is about to be deleted.

        In any thread, so that :meth:`close` on the log's own need not wait for a sync.
        """
        self._checkpoint_file.retire()
        for segment in (*self._segments, *self._dropped):
            segment.stop_work()

    def _shut_down(self) -> None:
        self._refusal = LogClosed(f"{self._directory} is closed")
        self._checkpoint_file.retire()
        # Also those that were given back: a seal still in work opens files by names that are soon another log's.
        for segment in (*self._segments, *self._dropped):
            segment.close()
