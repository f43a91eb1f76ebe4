"""Moving a log to another data directory while it is served, so that a crash leaves exactly one folder that counts.

The log of ``t-0`` goes from directory A to directory B. At every moment one of the two folders is the log:

1. ``B/t-0.<topic id>-0.future`` is made, with ``partition.metadata`` and the note ``future``, and synced. The wish is
   durable. A is the log.
2. Segments are copied and synced, off the loop and in pieces, closed ones first, while A takes appends; again and again
   until what is missing is small. A is the log: a start that finds the folder removes it and begins the move anew.
3. The switch, in one turn of the log's thread and without waiting for the disk: the small rest is copied, the folder
   gets its final name ``B/t-0``, and the note ``A/t-0/moving`` is written, with the id of the machine's boot. From here
   on B takes the appends. After a kill in the same boot the page cache is whole, so B is the log; after a power cut it
   is A, to which nothing is missing that was synced: a log that arrives acknowledges nothing before step 4 is over.
4. Settling, in a thread, before the first sync of the log in B counts: everything in B is synced, then ``moving`` is
   renamed to ``moved`` and ``A/t-0`` is synced. B is the log for ever. Only a rename is needed in A, which may be full.
5. The note ``future`` goes from B. ``A/t-0`` is moved aside and removed, some time later, because others may still be
   reading files there by name. A start that finds ``moved`` does this step.

The log moves again only when step 4 is over, and what step 5 has left goes first, durably: there are never three
folders of one log.

A folder with ``moved``, with ``moving`` of this boot, or with ``future``, whose other half is not there to be asked, is
not served: nobody can tell that it is the newest. If B could not be synced (there is a note ``sync_failed``), a start
in the same boot takes A, which has everything that was synced.

Thread rule: :class:`LogMove` belongs to the log's thread, except :meth:`LogMove.prepare`, the jobs of a
:class:`CopyRound` and :meth:`Settlement.run`.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.checkpoint import Checkpoint, CheckpointFile
from storage.copy_round import HASTY_REST_BYTES_MAX as HASTY_REST_BYTES_MAX
from storage.copy_round import REST_BYTES_MAX as REST_BYTES_MAX
from storage.copy_round import CopyRound as CopyRound
from storage.copy_round import SegmentCopy, work_on
from storage.errors import DiskFailure, StorageError, StorageFailed, disk_errors
from storage.files import Files
from storage.log import Log, LogState
from storage.quarantine import Quarantine
from storage.segment import LogSegment
from storage.syncing import SYNC_FAILED_NAME, SyncGate, sync_files

if TYPE_CHECKING:
    from storage.store import LogStore

FUTURE_SUFFIX: Final = ".future"
FUTURE_NOTE: Final = "future"
MOVING_NOTE: Final = "moving"
MOVED_NOTE: Final = "moved"


# --- notes


class FutureNote(NamedTuple):
    """What a folder in the making is to become, and where the log is until then."""

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
    """Whether the switch was made in this boot, whose page cache knows everything that was written since."""
    data = files.read_file(os.path.join(path, MOVING_NOTE))
    try:
        return boot_id != "" and json.loads(data or b"")["boot_id"] == boot_id
    except (ValueError, KeyError, TypeError):
        return False


def check_is_the_log(path: str, boot_id: str, files: Files) -> None:
    """Raise :class:`DiskFailure` if the log that was in this folder, or is to be in it, may be somewhere else."""
    if has_note(path, MOVED_NOTE, files):
        raise DiskFailure(f"{path} was moved to another directory, which is not there")
    if has_note(path, FUTURE_NOTE, files):
        raise DiskFailure(f"{path} came from another directory, which is not there")
    if has_note(path, MOVING_NOTE, files):
        if is_moving_in_boot(path, boot_id, files):
            raise DiskFailure(f"{path} was moved to another directory, which is not there")
        files.unlink(os.path.join(path, MOVING_NOTE))


# --- deciding at a start


def arrived(source: str, target: str, boot_id: str, files: Files) -> bool:
    """Which of two folders of one log counts, after a crash: True for ``target``, which is durable then. ``OSError``.

    Says it for ever: what comes later need not ask again.
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
    _decide(source, target, files)
    return True


def _decide(source: str, target: str, files: Files) -> None:
    """The last step on disk. Everything in ``target`` is durable by now."""
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


# --- the log in its new place


class Settlement:
    """Makes a switch final; ``is_done`` when it is. Everything that the new log calls durable waits for it."""

    def __init__(self, source: str, target: str, files: Files, sync_written: Callable[[], None]) -> None:
        self._source = source
        self._target = target
        self._files = files
        self._sync_written = sync_written
        self._log: MovedLog | None = None
        self._checkpoint: tuple[int, Checkpoint] | None = None
        self.is_done = False

    def attach(self, log: MovedLog, number: int, checkpoint: Checkpoint) -> None:
        self._log, self._checkpoint = log, (number, checkpoint)

    def run(self) -> None:
        """Once, by whoever comes first, in any thread; the others wait. Raises :class:`DiskFailure`."""
        log, checkpoint = self._log, self._checkpoint
        if self.is_done or log is None or checkpoint is None:
            return
        # The lock is the one that the log's checkpoints have: there is no order of two to be kept.
        with log.arriving_file.held() as is_ours:
            if self.is_done or not is_ours:
                return  # or deleted meanwhile
            try:
                with disk_errors(f"settle {self._target}"):
                    self._sync_target(log.gate)
                    self._sync_written()
                    log.arriving_file.make_durable_here(*checkpoint)
                    _decide(self._source, self._target, self._files)
            except StorageFailed as error:
                log._refuse_after(error)  # nobody else may have noticed
                raise
            self.is_done = True

    def _sync_target(self, gate: SyncGate) -> None:
        files, target = self._files, self._target
        sync_files(gate, files, target, but=(".new",))
        gate.sync(f"sync {target}", files.fsync_dir, target)
        gate.sync(f"sync the folder of {target}", files.fsync_dir, os.path.dirname(target))


class ArrivingCheckpointFile(CheckpointFile):
    """What was made durable in a folder that does not count yet is not durable: settling comes first."""

    __slots__ = ("_settlement",)

    def __init__(self, directory: str, files: Files, settlement: Settlement) -> None:
        super().__init__(directory, files)
        self._settlement = settlement

    def make_durable(self, number: int, checkpoint: Checkpoint) -> bool:
        if not self._settlement.is_done:
            try:
                self._settlement.run()
            except DiskFailure as error:
                raise OSError(error.error_number or errno.EIO, str(error)) from error
        return super().make_durable(number, checkpoint)

    def make_durable_here(self, number: int, checkpoint: Checkpoint) -> bool:
        return super().make_durable(number, checkpoint)


class MovedLog(Log):
    """A log that goes on in another directory. What it acknowledges waits until the move is settled."""

    __slots__ = ("_settlement", "arriving_file")

    def __init__(self, old: Log, directory: str, segments: list[LogSegment], settlement: Settlement) -> None:
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
        self._settlement = settlement
        self.arriving_file = ArrivingCheckpointFile(directory, old._files, settlement)
        self.arriving_file.log_start_offset = old.log_start_offset
        self._checkpoint_file = self.arriving_file
        # Durable in the old folder, which counts until the move is settled; then it is durable here.
        self.synced_offset = old.synced_offset
        self._unsynced = [one for one in segments if one.synced_bytes < one.size_bytes and one is not self._active]
        if self._active is not None and self._active.is_sealed and self._active.synced_bytes < self._active.size_bytes:
            self._unsynced.append(self._active)
        self._notes = (settlement.run,)

    def write_first_checkpoint(self) -> None:
        """Without waiting for the disk: it is needed after a kill only. Raises ``OSError``."""
        number, checkpoint = self._checkpoint_file.take_number(), self._describe_end(is_clean=False)
        self._checkpoint_file.write(number, checkpoint, is_hasty=True)
        self._settlement.attach(self, number, checkpoint)

    @property
    def is_settled(self) -> bool:
        return self._settlement.is_done

    def settle(self) -> None:
        """In any thread; raises :class:`DiskFailure`."""
        self._settlement.run()

    def park(self) -> bool:
        return self._settlement.is_done and super().park()

    def close(self, *, is_clean: bool = True) -> None:
        if is_clean and self.is_writable and self.gate.failure is None:
            try:
                self._settlement.run()
            except StorageError:
                super().close(is_clean=False)
                raise
        super().close(is_clean=is_clean)


def can_switch(log: Log) -> bool:
    """Whether nothing is under way in the log that a switch would cut off."""
    return log.is_writable and log.damage is None and log._swap is None


# --- the move


class LogMove:
    """One move. ``source`` and ``target`` are stores; ``path`` is the folder that is being filled."""

    def __init__(
        self,
        source: LogStore,
        target: LogStore,
        folder: str,
        topic_id: bytes,
        files: Files,
        cleared_dirs: Sequence[str] = (),
    ) -> None:
        """``cleared_dirs``: where what an earlier move has left was removed just now, not yet durably."""
        self.source = source
        self.target = target
        self.folder = folder
        self.topic_id = topic_id
        self.path = target.expect(folder, topic_id)
        self.settlement: Settlement | None = None
        self._files = files
        self._copies: dict[int, SegmentCopy] = {}
        # Copied, and gone from the log or replaced in it: a round that is planned may never be run.
        self._stale: set[int] = set()
        self._damage: tuple[Quarantine, ...] = ()
        self._old: Log | None = None
        self._cleared_dirs = cleared_dirs
        self._sync_source = source.syncing_of(folder)

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
        """Offsets of the log that are not in the copy yet, counted by whole segments."""
        for segment in log.segments():
            copy = self._copies.get(segment.base_offset)
            if copy is None or copy.segment is not segment or copy.copied_bytes < segment.size_bytes:
                return log.log_end_offset - segment.base_offset
        return 0

    def prepare(self) -> None:
        """Make the folder, and with it the wish, durable. In any thread; raises :class:`DiskFailure`."""
        with disk_errors(f"make {self.path}"):
            for data_dir in self._cleared_dirs:
                self._files.fsync_dir(data_dir)
            self._files.makedirs(self.path)
            for name in self._files.listdir(self.path):  # of an earlier move that could not be tidied up
                self._files.unlink(os.path.join(self.path, name))
            note = FutureNote(self.folder, self.source.data_dir)
            self._files.replace_file(os.path.join(self.path, FUTURE_NOTE), note.encode(), sync=True)
            self.target.write_metadata(self.path, self.topic_id)
            self._files.fsync_dir(self.target.data_dir)
            self._sync_source()  # or a power cut could leave the copy of a log without a name

    def plan(self, log: Log) -> CopyRound:
        """What is to be copied now."""
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
                work.append(work_on(copy, log.directory))
        damage = log.quarantined if log.quarantined != self._damage else None
        return CopyRound(self.path, self._files, work, self._stale, damage, self._note_damage)

    def _note_damage(self, damage: tuple[Quarantine, ...]) -> None:
        self._damage = damage

    def switch(self, log: Log, rest: CopyRound) -> Log:
        """The new log, in its new place; ``rest`` was planned in this very turn. After a failure all is as before."""
        final_path = os.path.join(self.target.data_dir, self.folder)
        with disk_errors(f"move {self.folder} to {self.target.data_dir}"):
            rest.run_unsynced()
            self._files.rename(self.path, final_path)
            try:
                settlement = Settlement(self.source_path, final_path, self._files, self.target.sync_written)
                # One without a batch has no file, and the next append makes another.
                filled = [segment for segment in log.segments() if segment.size_bytes]
                segments = [_in_new_place(segment, self._copies, final_path, log) for segment in filled]
                moved = MovedLog(log, final_path, segments, settlement)
                moved.write_first_checkpoint()
                self.target.adopt(self.folder, moved)
                note = json.dumps({"to": self.target.data_dir, "boot_id": log._boot_id}).encode() + b"\n"
                self._files.replace_file(os.path.join(self.source_path, MOVING_NOTE), note, sync=False)
            except OSError:
                self.target.give_back(self.folder, self.path)
                self._files.rename(final_path, self.path)
                raise
        # Nothing below may fail: the new folder is the log.
        self.source.let_go(self.folder)
        self.settlement, self._old = settlement, log
        if not log._boot_id:
            # After a kill nobody could tell that the cache is whole, so it is settled here, however long that takes.
            with suppress(DiskFailure):
                settlement.run()
        return moved

    def end_old_work(self) -> None:
        """Wait until no job is at work on the old log, so that :meth:`close_old` does not wait. In any thread."""
        if self._old is not None:
            self._old.end_background_work()

    def close_old(self) -> None:
        """The old log is closed, if there was a switch; its files stay for those who read them by name."""
        if self._old is not None:
            self._old.close(is_clean=False)

    def remove_old(self) -> None:
        """The end of it: the old folder goes. Raises :class:`DiskFailure`."""
        self.source.remove_left(self.folder)

    def abandon(self) -> None:
        """It is not wanted any more, or cannot be: the copy goes. Raises :class:`DiskFailure`."""
        if not self.is_switched:
            self.target.remove_future(self.folder)
            self.target.remove_unfinished(self.path)  # made anew by a thread after its topic was deleted


def _in_new_place(segment: LogSegment, copies: dict[int, SegmentCopy], directory: str, log: Log) -> LogSegment:
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
        # None of its entries is on file in the new place.
        index = segment.index
        index.written_count = 0
        moved.adopt(index, segment.max_timestamp)
    return moved
