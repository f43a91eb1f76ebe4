"""Moves a log to another data directory while it is served. After a crash exactly one of the two folders is the log.

The log of ``t-0`` moves from directory A to directory B. Notes are small files in the folders:

1. ``B/t-0.<topic id>-0.future`` is created with ``partition.metadata`` and the note ``future``, and synced. The move
   is now durable. A is the log.
2. Segments are copied and synced in the background, in chunks, closed segments first, while A takes appends. This is
   repeated until the rest is small. A is the log: a start that finds the ``.future`` folder removes it and restarts the
   move.
3. The switch is one call on the log's thread that does not wait for the disk. The small rest is copied, the folder
   gets its final name ``B/t-0``, and the note ``A/t-0/moving`` is written, with the machine's boot id. From here on B
   takes the appends. After a kill in the same boot the page cache is intact, so B is the log. After a power cut A is
   the log. A has everything that was synced, because the log in B acknowledges nothing before step 4 has ended.
4. The commit runs in a thread, as the first part of the first sync of the log in B. Everything in B is synced. Then
   ``moving`` is renamed to ``moved``, and ``A/t-0`` is synced. From here on B is the log in all cases. A needs space
   for a rename only, so its disk may be full.
5. The note ``future`` is removed from B. ``A/t-0`` is renamed and removed later, because readers may still open files
   there by name. A start that finds ``moved`` does this step.

The log can move again only after step 4, and the remains of step 5 are durably removed first. So there are never three
folders of one log.

A folder with ``moved``, with ``moving`` of this boot, or with ``future`` is not served if the other folder is not
available, because it is unknown which of the two is newer. If B could not be synced (it has a note ``sync_failed``), a
start in the same boot uses A, which has everything that was synced.

Thread rule: :class:`LogMove` belongs to the log's thread, except :meth:`LogMove.prepare`, the jobs of a
:class:`CopyRound` and :meth:`MoveCommit.run`.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.disk.files import Files
from storage.errors import DiskFailure, StorageError, StorageFailed, disk_errors
from storage.log.log import Log, LogState
from storage.log.quarantine import Quarantine
from storage.log.syncing import SYNC_FAILED_NAME, SyncGate, sync_files
from storage.recovery.checkpoint import Checkpoint, CheckpointFile
from storage.relocation.copy_round import LARGE_REST_BYTES_MAX as LARGE_REST_BYTES_MAX
from storage.relocation.copy_round import REST_BYTES_MAX as REST_BYTES_MAX
from storage.relocation.copy_round import CopyRound as CopyRound
from storage.relocation.copy_round import SegmentCopy, plan_copy
from storage.segment.segment import LogSegment

if TYPE_CHECKING:
    from storage.data_directory.store import LogStore

FUTURE_SUFFIX: Final = ".future"
FUTURE_NOTE: Final = "future"
MOVING_NOTE: Final = "moving"
MOVED_NOTE: Final = "moved"


# --- notes


class FutureNote(NamedTuple):
    """The note ``future``: the final name of a folder that is being filled, and the directory that has the log."""

    folder: str
    source_dir: str

    def encode(self) -> bytes:
        return json.dumps({"folder": self.folder, "from": self.source_dir}).encode() + b"\n"


def read_future_note(path: str, files: Files) -> FutureNote | None:
    data = files.read_file(os.path.join(path, FUTURE_NOTE))
    try:
        facts = json.loads(data or b"")
        return FutureNote(str(facts["folder"]), str(facts["from"]))
    except (ValueError, KeyError, TypeError):
        return None


def has_note(path: str, name: str, files: Files) -> bool:
    return files.exists(os.path.join(path, name))


def is_moving_in_boot(path: str, boot_id: str, files: Files) -> bool:
    """Whether the switch was made in this boot. If so, the page cache has everything that was written since."""
    data = files.read_file(os.path.join(path, MOVING_NOTE))
    try:
        return boot_id != "" and json.loads(data or b"")["boot_id"] == boot_id
    except (ValueError, KeyError, TypeError):
        return False


def check_is_current(path: str, boot_id: str, files: Files) -> None:
    """Raise :class:`DiskFailure` if another folder, which is not available, may be the log instead of this one."""
    if has_note(path, MOVED_NOTE, files):
        raise DiskFailure(f"{path} was moved to another data directory, which is not available")
    if has_note(path, FUTURE_NOTE, files):
        raise DiskFailure(f"{path} was moved here from another data directory, which is not available")
    if has_note(path, MOVING_NOTE, files):
        if is_moving_in_boot(path, boot_id, files):
            raise DiskFailure(f"{path} was moved to another data directory, which is not available")
        files.unlink(os.path.join(path, MOVING_NOTE))


# --- at a start


def resolve_move(source: str, target: str, boot_id: str, files: Files) -> bool:
    """Decide after a crash which of two folders is the log. Returns True for ``target``, which is then durable.

    The decision is stored and does not change later. Raises ``OSError``.
    """
    if not has_note(source, MOVED_NOTE, files):
        is_whole = is_moving_in_boot(source, boot_id, files) and not has_note(target, SYNC_FAILED_NAME, files)
        if not is_whole:
            if has_note(source, MOVING_NOTE, files):
                files.unlink(os.path.join(source, MOVING_NOTE))
                files.fsync_dir(source)
            return False
        for name in files.listdir(target):
            _sync_file(os.path.join(target, name), files)
        files.fsync_dir(target)
        files.fsync_dir(os.path.dirname(target))
    _store_commit(source, target, files)
    return True


def _store_commit(source: str, target: str, files: Files) -> None:
    """Commit the move. Everything in ``target`` is already durable."""
    moved = os.path.join(source, MOVED_NOTE)
    if not files.exists(moved):
        moving = os.path.join(source, MOVING_NOTE)
        _sync_file(moving, files)
        files.rename(moving, moved)
    files.fsync_dir(source)
    if has_note(target, FUTURE_NOTE, files):
        files.unlink(os.path.join(target, FUTURE_NOTE))
        files.fsync_dir(target)


def _sync_file(path: str, files: Files) -> None:
    fd = files.open_read(path)
    try:
        files.fsync(fd)
    finally:
        files.close(fd)


# --- the log in its new directory


class MoveCommit:
    """Commits a switch (step 4) and then sets ``is_done``. The new log acknowledges nothing before that."""

    def __init__(self, source: str, target: str, files: Files, sync_unclean_list: Callable[[], None]) -> None:
        self._source = source
        self._target = target
        self._files = files
        self._sync_unclean_list = sync_unclean_list
        self._log: MovedLog | None = None
        self._checkpoint: tuple[int, Checkpoint] | None = None
        self.is_done = False

    def attach(self, log: MovedLog, number: int, checkpoint: Checkpoint) -> None:
        self._log, self._checkpoint = log, (number, checkpoint)

    def run(self) -> None:
        """Commit, once, in any thread. Concurrent callers wait. Raises :class:`DiskFailure`."""
        log, checkpoint = self._log, self._checkpoint
        if self.is_done or log is None or checkpoint is None:
            return
        # This is the same lock as for the log's checkpoints, so that there is no lock order to observe.
        with log.moved_checkpoint_file.held() as is_ours:
            if self.is_done or not is_ours:
                return  # another thread has committed, or the log was deleted meanwhile
            try:
                with disk_errors(f"commit the move to {self._target}"):
                    self._sync_target(log.gate)
                    self._sync_unclean_list()
                    log.moved_checkpoint_file.make_durable_here(*checkpoint)
                    _store_commit(self._source, self._target, self._files)
            except StorageFailed as error:
                log._refuse_appends(error)  # the kernel may not report this error to any other sync
                raise
            self.is_done = True

    def _sync_target(self, gate: SyncGate) -> None:
        files, target = self._files, self._target
        sync_files(gate, files, target, but=(".new",))
        gate.sync(f"sync {target}", files.fsync_dir, target)
        gate.sync(f"sync the folder of {target}", files.fsync_dir, os.path.dirname(target))


class MovedCheckpointFile(CheckpointFile):
    """The checkpoint file of a log that has moved. It commits the move before it makes a checkpoint durable."""

    __slots__ = ("_commit",)

    def __init__(self, directory: str, files: Files, commit: MoveCommit) -> None:
        super().__init__(directory, files)
        self._commit = commit

    def make_durable(self, number: int, checkpoint: Checkpoint) -> bool:
        if not self._commit.is_done:
            try:
                self._commit.run()
            except DiskFailure as error:
                raise OSError(error.error_number or errno.EIO, str(error)) from error
        return super().make_durable(number, checkpoint)

    def make_durable_here(self, number: int, checkpoint: Checkpoint) -> bool:
        return super().make_durable(number, checkpoint)


class MovedLog(Log):
    """A log after the switch to another directory. It acknowledges records only after the move is committed."""

    __slots__ = ("_commit", "moved_checkpoint_file")

    def __init__(self, old: Log, directory: str, segments: list[LogSegment], commit: MoveCommit) -> None:
        state = LogState(
            segments,
            old.log_start_offset,
            old.log_end_offset,
            old.epochs,
            old.producers,
            quarantined=old.quarantined,
            clean_upto=old.clean_upto,
            torn_bytes=old.torn_bytes,
        )
        super().__init__(directory, old._files, old._background, old.settings, old._boot_id, state)
        self._commit = commit
        self.moved_checkpoint_file = MovedCheckpointFile(directory, old._files, commit)
        self.moved_checkpoint_file.log_start_offset = old.log_start_offset
        self._checkpoint_file = self.moved_checkpoint_file
        # Offsets below this are durable: until the commit in the old folder, which is the log, then in the new folder.
        self.synced_offset = old.synced_offset
        self._unsynced = [one for one in segments if one.synced_bytes < one.size_bytes and one is not self._active]
        if self._active is not None and self._active.is_sealed and self._active.synced_bytes < self._active.size_bytes:
            self._unsynced.append(self._active)
        self._prerequisites = (commit.run,)

    def write_first_checkpoint(self) -> None:
        """Write a checkpoint without a sync, because it is needed only after a kill. Raises ``OSError``."""
        number, checkpoint = self._checkpoint_file.take_number(), self._describe_end(is_clean=False)
        self._checkpoint_file.write(number, checkpoint, is_unsynced=True)
        self._commit.attach(self, number, checkpoint)

    @property
    def is_move_committed(self) -> bool:
        return self._commit.is_done

    def commit_move(self) -> None:
        """Commit the move. May be called in any thread. Raises :class:`DiskFailure`."""
        self._commit.run()

    def park(self) -> bool:
        return self._commit.is_done and super().park()

    def close(self, *, is_clean: bool = True) -> None:
        if is_clean and self.is_writable and self.gate.failure is None:
            try:
                self._commit.run()
            except StorageError:
                super().close(is_clean=False)
                raise
        super().close(is_clean=is_clean)


def can_switch(log: Log) -> bool:
    """Whether the log has no operation in progress that a switch would interrupt."""
    return log.is_writable and log.damage is None and log._replacement is None


# --- the move


class LogMove:
    """One move of a log from ``source`` to ``target``. ``path`` is the folder that is being filled."""

    def __init__(
        self,
        source: LogStore,
        target: LogStore,
        folder: str,
        topic_id: bytes,
        files: Files,
        cleared_dirs: Sequence[str] = (),
    ) -> None:
        """``cleared_dirs``: directories in which remains of an earlier move were just removed, but not yet durably."""
        self.source = source
        self.target = target
        self.folder = folder
        self.topic_id = topic_id
        self.path = target.register_move(folder, topic_id)
        self.commit: MoveCommit | None = None
        self._files = files
        self._copies: dict[int, SegmentCopy] = {}
        # Base offsets of copied segments that the log has removed or replaced since. The next round removes their
        # copies.
        self._stale: set[int] = set()
        self._damage: tuple[Quarantine, ...] = ()
        self._old: Log | None = None
        self._cleared_dirs = cleared_dirs
        self._sync_source = source.folder_sync(folder)

    @property
    def source_path(self) -> str:
        return os.path.join(self.source.data_dir, self.folder)

    @property
    def is_switched(self) -> bool:
        return self._old is not None

    @property
    def copied_bytes(self) -> int:
        return sum(copy.copied_bytes for copy in list(self._copies.values()))

    def lag(self, log: Log) -> int:
        """The number of offsets that are not in the copy yet, counted in whole segments."""
        for segment in log.segments():
            copy = self._copies.get(segment.base_offset)
            if copy is None or copy.segment is not segment or copy.copied_bytes < segment.size_bytes:
                return log.log_end_offset - segment.base_offset
        return 0

    def prepare(self) -> None:
        """Create the folder durably (step 1). May be called in any thread. Raises :class:`DiskFailure`."""
        with disk_errors(f"create {self.path}"):
            for data_dir in self._cleared_dirs:
                self._files.fsync_dir(data_dir)
            self._files.makedirs(self.path)
            for name in self._files.listdir(self.path):  # remains of an earlier move
                self._files.unlink(os.path.join(self.path, name))
            note = FutureNote(self.folder, self.source.data_dir)
            self._files.replace_file(os.path.join(self.path, FUTURE_NOTE), note.encode(), sync=True)
            self.target.write_metadata(self.path, self.topic_id)
            self._files.fsync_dir(self.target.data_dir)
            self._sync_source()  # otherwise a power cut could lose the log's own folder, but not the copy

    def plan(self, log: Log) -> CopyRound:
        """Plan the next round, which copies everything that the copy lacks now."""
        segments = list(log.segments())
        current = {segment.base_offset: segment for segment in segments}
        for base_offset, copy in list(self._copies.items()):
            if current.get(base_offset) is not copy.segment:  # dropped, or replaced by compaction or truncation
                del self._copies[base_offset]
                self._stale.add(base_offset)
        work = []
        for segment in segments:
            copy = self._copies.get(segment.base_offset) or SegmentCopy(segment)
            self._copies[segment.base_offset] = copy
            if copy.copied_bytes < segment.size_bytes or (segment.is_sealed and not copy.is_indexed):
                work.append(plan_copy(copy, log.directory))
        damage = log.quarantined if log.quarantined != self._damage else None
        return CopyRound(self.path, self._files, work, self._stale, damage, self._set_damage)

    def _set_damage(self, damage: tuple[Quarantine, ...]) -> None:
        self._damage = damage

    def switch(self, log: Log, rest: CopyRound) -> Log:
        """Switch to the copy (step 3) and return the new log. After a failure nothing has changed.

        ``rest`` has to be planned in the same call on the log's thread.
        """
        final_path = os.path.join(self.target.data_dir, self.folder)
        with disk_errors(f"move {self.folder} to {self.target.data_dir}"):
            rest.run_unsynced()
            self._files.rename(self.path, final_path)
            try:
                commit = MoveCommit(self.source_path, final_path, self._files, self.target.sync_unclean_list)
                # A segment without a batch has no file. The next append creates the file.
                filled = [segment for segment in log.segments() if segment.size_bytes]
                segments = [_relocated_segment(segment, self._copies, final_path, log) for segment in filled]
                moved = MovedLog(log, final_path, segments, commit)
                moved.write_first_checkpoint()
                self.target.adopt(self.folder, moved)
                note = json.dumps({"to": self.target.data_dir, "boot_id": log._boot_id}).encode() + b"\n"
                self._files.replace_file(os.path.join(self.source_path, MOVING_NOTE), note, sync=False)
            except OSError:
                self.target.undo_adopt(self.folder, self.path)
                self._files.rename(final_path, self.path)
                raise
        # Nothing below may fail: the new folder is the log.
        self.source.forget_moved(self.folder)
        self.commit, self._old = commit, log
        if not log._boot_id:
            # Without a boot id, a start after a kill could not detect that the cache is intact, so commit here and
            # wait.
            with suppress(DiskFailure):
                commit.run()
        return moved

    def stop_old_work(self) -> None:
        """Wait for the background jobs of the old log, so that :meth:`close_old` does not wait. In any thread."""
        if self._old is not None:
            self._old.end_background_work()

    def close_old(self) -> None:
        """Close the old log, if there was a switch. Its files stay for readers that open them by name."""
        if self._old is not None:
            self._old.close(is_clean=False)

    def remove_old(self) -> None:
        """Remove the old folder (step 5). Raises :class:`DiskFailure`."""
        self.source.remove_moved(self.folder)

    def abandon(self) -> None:
        """Cancel the move, if there was no switch, and remove the copy. Raises :class:`DiskFailure`."""
        if not self.is_switched:
            self.target.remove_future(self.folder)
            self.target.remove_unfinished(self.path)  # a thread may have recreated the path after the topic's deletion


def _relocated_segment(segment: LogSegment, copies: dict[int, SegmentCopy], directory: str, log: Log) -> LogSegment:
    moved = LogSegment.existing(
        directory,
        segment.base_offset,
        log._files,
        log._background,
        limit_bytes=log.settings.segment_bytes,
        index_interval_bytes=log.settings.index_interval_bytes,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        is_sealed=segment.is_sealed,
    )
    moved.synced_bytes = copies[segment.base_offset].synced_bytes
    moved.first_timestamp, moved.created_ms = segment.first_timestamp, segment.created_ms
    moved.aborted = segment.aborted
    if not segment.is_sealed:
        # No index entry of this segment is on disk in the new folder.
        index = segment.index
        index.written_count = 0
        moved.adopt(index, segment.max_timestamp)
    return moved
