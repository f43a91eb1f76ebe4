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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.checkpoint import Checkpoint, CheckpointFile
from storage.copies import sealed_segment
from storage.errors import DiskFailure, StorageError, StorageFailed, disk_errors
from storage.files import Files
from storage.log import Log, LogState
from storage.quarantine import Quarantine, write_quarantine
from storage.segment import LogSegment, index_name, segment_name
from storage.syncing import SYNC_FAILED_NAME, SyncGate, sync_files

if TYPE_CHECKING:
    from storage.store import LogStore

FUTURE_SUFFIX: Final = ".future"
FUTURE_NOTE: Final = "future"
MOVING_NOTE: Final = "moving"
MOVED_NOTE: Final = "moved"

# One job of a thread; in between the caller looks whether the move is still wanted.
PIECE_BYTES: Final = 4 * 1024 * 1024
# What the log's thread copies itself, without waiting for the disk: half a millisecond.
REST_BYTES_MAX: Final = 1024 * 1024
# The same where producers are so fast that the rest does not get as small as that: ten milliseconds.
HASTY_REST_BYTES_MAX: Final = 16 * 1024 * 1024
REST_FILES_MAX: Final = 8
_CHUNK_BYTES: Final = 1024 * 1024


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


# --- copying


class _Copy:
    """How far one segment has been copied; ``segment`` tells whether it is still the same one."""

    __slots__ = ("copied_bytes", "is_indexed", "segment", "synced_bytes")

    def __init__(self, segment: LogSegment) -> None:
        self.segment = segment
        self.copied_bytes = 0
        self.synced_bytes = 0
        self.is_indexed = False


class _Work(NamedTuple):
    copy: _Copy
    source_dir: str
    base_offset: int
    next_offset: int
    end: int
    is_sealed: bool
    # The whole index of a segment whose own seal is still in work.
    sealed_index: bytes | None
    holes: tuple[tuple[int, int], ...]


class CopyRound:
    """What a log has at one moment that its copy lacks. Made on the log's thread."""

    def __init__(
        self,
        path: str,
        files: Files,
        work: Sequence[_Work],
        stale: set[int],
        damage: tuple[Quarantine, ...] | None,
        on_damage_written: Callable[[tuple[Quarantine, ...]], None],
    ) -> None:
        """``damage`` is what is to be written down as damaged, if that has changed.

        ``stale`` are segments whose files are in the copy and not in the log; those that are removed leave it.
        """
        self._path = path
        self._files = files
        self._work = work
        self._stale = stale
        self._damage = damage
        self._on_damage_written = on_damage_written
        self.size_bytes = sum(one.end - one.copy.copied_bytes for one in work)

    def is_rest(self, size_bytes_max: int = REST_BYTES_MAX) -> bool:
        """Whether it is so little that the log's thread may do it on its way."""
        file_count = len(self._work) + len(self._stale)
        return self.size_bytes <= size_bytes_max and file_count <= REST_FILES_MAX and self._damage is None

    def jobs(self) -> Iterator[Callable[[], int]]:
        """Jobs for a thread, one after the other; each returns the bytes that it copied. They raise ``OSError``."""
        yield self._remove_stale
        for one in self._work:
            yield from self._jobs_of(one)
        yield self._finish

    def run_unsynced(self) -> None:
        """All of it, without waiting for the disk. Raises ``OSError``."""
        self._remove_stale()
        for one in self._work:
            self._copy(one, one.end)
            if one.is_sealed:
                self._write_index(one, is_synced=False)

    def _jobs_of(self, one: _Work) -> Iterator[Callable[[], int]]:
        while one.copy.copied_bytes < one.end:
            before = one.copy.copied_bytes
            yield lambda: self._copy(one, min(one.end, one.copy.copied_bytes + PIECE_BYTES), is_synced=True)
            if one.copy.copied_bytes == before:
                return  # the job was not run: the move has ended
        if one.is_sealed and not one.copy.is_indexed:
            yield lambda: self._write_index(one, is_synced=True)

    def _remove_stale(self) -> int:
        for base_offset in sorted(self._stale):
            for name in (segment_name(base_offset), index_name(base_offset)):
                path = os.path.join(self._path, name)
                if self._files.exists(path):
                    self._files.unlink(path)
            self._stale.discard(base_offset)
        return 0

    def _copy(self, one: _Work, end: int, *, is_synced: bool = False) -> int:
        files, start = self._files, one.copy.copied_bytes
        if start >= end:
            return 0
        name = segment_name(one.base_offset)
        source = files.open_read(os.path.join(one.source_dir, name))
        try:
            path = os.path.join(self._path, name)
            target = files.open_write(path) if start else files.create(path)
            try:
                position = start
                while position < end:
                    data = files.pread(source, min(_CHUNK_BYTES, end - position), position)
                    if not data:
                        raise OSError(errno.EIO, f"{name} of {one.source_dir} ends at {position}")
                    files.write_all(target, data, position)
                    position += len(data)
                if is_synced:
                    files.fdatasync(target)
            finally:
                files.close(target)
        finally:
            files.close(source)
        one.copy.copied_bytes = end
        if is_synced:
            one.copy.synced_bytes = end
        return end - start

    def _write_index(self, one: _Work, *, is_synced: bool) -> int:
        """The index with its seal: it says that the segment is whole, so it comes after the bytes."""
        data = one.sealed_index if one.sealed_index is not None else self._sealed_index(one)
        path = os.path.join(self._path, index_name(one.base_offset))
        fd = self._files.create(path)
        try:
            self._files.write_all(fd, data, 0)
            if is_synced:
                self._files.fdatasync(fd)
        finally:
            self._files.close(fd)
        one.copy.is_indexed = True
        return len(data)

    def _sealed_index(self, one: _Work) -> bytes:
        # Read as anybody would read it, so that one that is missing or does not fit is made anew.
        segment = sealed_segment(
            one.source_dir, one.base_offset, one.next_offset, one.end, self._files, index_interval_bytes=4096
        )
        segment.holes = one.holes
        try:
            return segment.index.encode() + segment.index.encode_seal(one.end, segment.max_timestamp)
        except StorageError as error:
            raise OSError(errno.EIO, str(error)) from error
        finally:
            segment.close()

    def _finish(self) -> int:
        if self._damage is not None:
            write_quarantine(self._path, self._files, self._damage)
            self._on_damage_written(self._damage)
        self._files.fsync_dir(self._path)
        return 0


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
        self._copies: dict[int, _Copy] = {}
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
            copy = self._copies.get(segment.base_offset) or _Copy(segment)
            self._copies[segment.base_offset] = copy
            if copy.copied_bytes < segment.size_bytes or (segment.is_sealed and not copy.is_indexed):
                work.append(_work(copy, log.directory))
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


def _work(copy: _Copy, directory: str) -> _Work:
    segment = copy.segment
    index: bytes | None = None
    if segment.is_sealed and segment.is_seal_pending:
        index = segment.index.encode() + segment.index.encode_seal(segment.size_bytes, segment.max_timestamp)
    return _Work(
        copy,
        directory,
        segment.base_offset,
        segment.next_offset,
        segment.size_bytes,
        segment.is_sealed,
        index,
        segment.holes,
    )


def _in_new_place(segment: LogSegment, copies: dict[int, _Copy], directory: str, log: Log) -> LogSegment:
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
    if not segment.is_sealed:
        # None of its entries is on file in the new place.
        index = segment.index
        index.written_count = 0
        moved.adopt(index, segment.max_timestamp)
    return moved
