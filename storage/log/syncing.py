"""Making appended records durable: what one log has to sync, and many logs synced together.

A :class:`LogSync` is taken on the log's thread and run in any other: it holds descriptors of its own, so the log may
roll, be closed or deleted meanwhile. Whether a sync worked is decided once. After the first failure of any file of a
log its :class:`SyncGate` is shut for ever: the kernel reports a lost page once and then calls the file clean, so a
second sync that succeeds proves nothing. A background seal and a sync round take turns at the gate, so neither can
believe a sync that came after the other's failure.

No descriptor to be had is not a failed sync: :meth:`LogSync.run` opens everything before it syncs anything, and raises
a plain :class:`DiskFailure` when it cannot. The gate stays open, and the sync may be asked for again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeAlias

from storage.errors import NO_DESCRIPTOR_ERRORS, DiskFailure, FileSystemFailed, StorageFailed, failed_sync
from storage.files import Files

if TYPE_CHECKING:
    from storage.log_durability import DurableLog
    from storage.segment import LogSegment

# Files of a data directory that are synced one by one; more of them by one sync of the whole file system, which also
# writes what others left dirty there. While that is little, it is faster from a few files on.
# docs/decisions/0008-sync-rounds.md has the figures.
FILES_ONE_BY_ONE_MAX: Final = 8
FILES_ONE_BY_ONE_MIN: Final = 2
UNWRITTEN_BYTES_MAX: Final = 16 * 1024 * 1024

# Made in the folder of a log, or in a data directory, when a sync has failed there. The cache of this machine may show
# bytes from then on that the disk does not have, so a process that starts later has to be told. It need not be durable:
# another boot finds what is on the disk and nothing else.
SYNC_FAILED_NAME: Final = "sync_failed"

_Arguments = ParamSpec("_Arguments")


class SyncGate:
    """One sync of a log's files at a time, and none after the first that failed. May be used from any thread.

    :meth:`shut` and :attr:`failure` do not wait for a sync; :meth:`sync` and :meth:`check` do, and belong in threads.
    """

    __slots__ = ("_lock", "_on_failure", "_shutting", "failure")

    def __init__(self, on_failure: Callable[[], None] | None = None) -> None:
        """``on_failure`` is called once, at once, in the thread that meets or reports the failure."""
        # Held while the disk is waited for, so never taken by the logs' thread.
        self._lock = threading.Lock()
        # Held for a comparison and an assignment.
        self._shutting = threading.Lock()
        self._on_failure = on_failure
        self.failure: StorageFailed | None = None

    def sync(
        self, what: str, call: Callable[_Arguments, None], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> None:
        """Make one call that syncs; the gate shuts when it fails, unless it found no descriptor."""
        with self._lock:
            if self.failure is not None:
                raise copy(self.failure)
            try:
                call(*args, **kwargs)
            except FileNotFoundError:
                raise  # the folder was deleted meanwhile: nothing was synced and nothing is lost
            except OSError as error:
                raise self._failed(what, error) from error
            if self.failure is not None:  # shut meanwhile: what was lost may have been reported there, and not here
                raise copy(self.failure)

    def enter(self) -> bool:
        """Begin a sync that ends with :meth:`leave`; False if another one is under way, or one has failed.

        For syncs that the kernel does while no thread waits for them. This does not wait either.
        """
        if self.failure is not None:
            return False
        return self._lock.acquire(blocking=False)

    def leave(self, what: str, error: OSError | None) -> DiskFailure | None:
        """The end of a sync after :meth:`enter`, and the ``error`` of it; what :meth:`sync` would raise."""
        try:
            if error is not None:
                return self._failed(what, error)
            return None if self.failure is None else copy(self.failure)
        finally:
            self._lock.release()

    def _failed(self, what: str, error: OSError) -> DiskFailure:
        failure = failed_sync(what, error)
        if isinstance(failure, StorageFailed):
            self.shut(failure)
        return failure

    def check(self) -> None:
        """Raise if any sync has failed that began before this call."""
        with self._lock:
            if self.failure is not None:
                raise copy(self.failure)

    def shut(self, error: StorageFailed) -> None:
        with self._shutting:
            is_first = self.failure is None
            if is_first:
                self.failure = error
        if is_first and self._on_failure is not None:
            self._on_failure()


class LogSync:
    """What one log needs to be synced so that everything below ``end_offset`` is durable.

    Log's thread: taken by :meth:`storage.log.Log.begin_sync`; later exactly one of :meth:`finish` and :meth:`fail`.
    In between :meth:`run`, or :func:`sync_each` for many, in any thread; or :meth:`begin` and :meth:`end`.
    """

    __slots__ = (
        "_files",
        "_is_open",
        "_log",
        "dirty",
        "end_offset",
        "file_count",
        "generation",
        "is_folder_new",
        "names_made",
        "notes",
    )

    def __init__(
        self,
        log: DurableLog,
        files: Files,
        end_offset: int,
        generation: int,
        dirty: list[tuple[LogSegment, int, int]],
        names_made: int,
        is_folder_new: bool,
        notes: tuple[Callable[[], None], ...],
    ) -> None:
        """``dirty``: segment, its length now, and a descriptor that becomes ours."""
        self._log = log
        self._files = files
        self._is_open = True
        self.end_offset = end_offset
        self.generation = generation
        self.dirty = dirty
        # Of this many names that the log made in its folder, some may not be durable; 0 when all are.
        self.names_made = names_made
        self.is_folder_new = is_folder_new
        self.notes = notes
        self.file_count = len(dirty) + len(notes) + bool(names_made) + 2 * is_folder_new

    @property
    def data_dir(self) -> str:
        return os.path.dirname(self._log.directory)

    def run(self) -> None:
        """Wait for the disk. Raises :class:`StorageFailed`; then nothing of this log may ever be called durable.

        Another :class:`DiskFailure`: no descriptor was to be had, nothing is lost, and a new sync may be begun.
        """
        gate = self._log.gate
        try:
            with ExitStack() as opened:
                names = self._open_names(opened) if self.names_made else []
                self.run_notes()
                for segment, _, fd in self.dirty:
                    segment.sync(fd)
                for path, sync, fd in names:
                    gate.sync(f"sync {path}", sync, fd)
        except FileNotFoundError as error:
            self._meet_missing(error)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            self.close()

    def begin(self) -> int | None:
        """Instead of :meth:`run`, if the kernel syncs the descriptor that this returns; then :meth:`end` follows.

        None: there is more to do than to sync one segment, or another sync of this log is under way.
        """
        if self.names_made or self.notes or len(self.dirty) != 1 or not self._log.gate.enter():
            return None
        return self.dirty[0][2]

    def give_up(self) -> None:
        """The kernel has not begun the sync: :meth:`run` may follow."""
        self._log.gate.leave("", None)

    def end(self, error: OSError | None) -> DiskFailure | None:
        """The kernel has synced the descriptor, with ``error``; what :meth:`run` would raise.

        With an error this may wait for the disk, and belongs in a thread.
        """
        try:
            return self._log.gate.leave(f"sync {self._log.directory}", error)
        finally:
            self.close()

    def _open_names(self, opened: ExitStack) -> list[tuple[str, Callable[[int], None], int]]:
        """What makes the names of this log's files durable: path, the call that syncs it, and its descriptor."""
        files, directory = self._files, self._log.directory
        names: list[tuple[str, Callable[[int], None], int]] = []
        if self.is_folder_new:
            # What was put into a new folder beside the segments says whose records these are.
            for path, fd in _open_files(files, directory, but=(".log", ".index", ".txnindex", ".new")):
                opened.callback(files.close, fd)
                names.append((path, files.fsync, fd))
        for path in (directory, self.data_dir) if self.is_folder_new else (directory,):
            fd = files.open_dir(path)
            opened.callback(files.close, fd)
            names.append((path, partial(files.fsync_dir, path), fd))
        return names

    def run_notes(self) -> None:
        """Make durable what has to be so before the records are. Raises :class:`DiskFailure` as :meth:`run` does."""
        try:
            for note in self.notes:
                note()
        except StorageFailed as error:
            self._log.gate.shut(error)
            raise
        except (OSError, DiskFailure) as error:
            raise self._failed(error) from error

    def confirm(self, failure: DiskFailure | None) -> None:
        """Instead of :meth:`run`, when the whole file system was synced, or not. Raises ``failure``."""
        self.close()
        if failure is not None:
            if isinstance(failure, StorageFailed):
                self._log.gate.shut(failure)
            raise copy(failure)
        self._log.gate.check()

    def _meet_missing(self, error: FileNotFoundError) -> None:
        # A log is closed before its folder goes; then there is nothing to be synced, and nobody waits for it.
        if not self._log.is_closed:
            raise self._failed(error) from error

    def _failed(self, error: OSError | DiskFailure) -> DiskFailure:
        failure = failed_sync(f"sync {self._log.directory}", error)
        if isinstance(failure, StorageFailed):
            self._log.gate.shut(failure)
        return failure

    def finish(self) -> None:
        """It has worked."""
        self._log.end_sync(self)

    def fail(self, error: StorageFailed) -> None:
        """It has not: poison the log."""
        self._log.poison(error)

    def close(self) -> None:
        """Give the descriptors back; also when it never ran."""
        if self._is_open:
            self._is_open = False
            for _, _, fd in self.dirty:
                self._files.close(fd)


# What was to be synced, and what came in the way: :class:`StorageFailed` for good, another failure until it is retried.
Synced: TypeAlias = tuple[LogSync, DiskFailure | None]


def sync_all(files: Files, data_dirs: Sequence[str], syncs: Sequence[LogSync]) -> list[DiskFailure | None]:
    """Run them all, in the caller's thread; what became of each, in their order."""
    outcomes = dict(sync_each(files, data_dirs, syncs))
    return [outcomes[sync] for sync in syncs]


def sync_each(files: Files, data_dirs: Sequence[str], syncs: Sequence[LogSync]) -> Iterator[Synced]:
    """Run them all, in the caller's thread; each with what became of it, as soon as that is known.

    Those with few bytes come first: a log with a small batch does not wait for another one's megabytes. Where a data
    directory has more files to be synced than are synced one by one, its file system is synced as a whole; when that
    fails it has failed for all of them, with :class:`FileSystemFailed`: the caller has to poison every log of that
    directory, for pages of those that had nothing to sync now may be lost as well.
    """
    by_directory: dict[str, list[LogSync]] = {}
    for sync in syncs:
        by_directory.setdefault(sync.data_dir, []).append(sync)
    for data_dir, group in by_directory.items():
        if data_dir not in data_dirs or _is_synced_one_by_one(files, sum(sync.file_count for sync in group)):
            for sync in sorted(group, key=_unsynced_bytes):
                yield sync, _outcome(sync.run)
            continue
        failed_notes = {sync: _outcome(sync.run_notes) for sync in group}
        failure: DiskFailure | None = None
        try:
            files.syncfs(data_dir)
        except OSError as error:
            what = f"sync the file system of {data_dir}: {error}"
            if error.errno in NO_DESCRIPTOR_ERRORS:
                failure = DiskFailure(what, error.errno)
            else:
                mark_sync_failed(files, data_dir)
                failure = FileSystemFailed(what, error.errno, data_dir)
        for sync in group:
            yield sync, _outcome(partial(sync.confirm, failure)) or failed_notes[sync]


def _is_synced_one_by_one(files: Files, file_count: int) -> bool:
    if FILES_ONE_BY_ONE_MIN < file_count <= FILES_ONE_BY_ONE_MAX:
        return files.unwritten_bytes() > UNWRITTEN_BYTES_MAX
    return file_count <= FILES_ONE_BY_ONE_MIN


def _unsynced_bytes(sync: LogSync) -> int:
    return sum(length - segment.synced_bytes for segment, length, _ in sync.dirty)


def _open_files(files: Files, directory: str, *, but: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Open all files of a folder but those with such endings, one after the other; the caller closes them."""
    for name in files.listdir(directory):
        if name.endswith(but):
            continue
        path = os.path.join(directory, name)
        try:
            fd = files.open_read(path)
        except FileNotFoundError:
            continue  # it was there for a moment only, as the list of a replacement is
        yield path, fd


def sync_files(gate: SyncGate, files: Files, directory: str, *, but: tuple[str, ...]) -> None:
    """Sync all files of a folder but those with such endings, one after the other."""
    for path, fd in _open_files(files, directory, but=but):
        try:
            gate.sync(f"sync {path}", files.fsync, fd)
        finally:
            files.close(fd)


def mark_sync_failed(files: Files, directory: str) -> None:
    """Tell whoever starts next on this machine not to believe its cache. As well as it goes: the disk is a bad one."""
    with suppress(OSError):
        files.close(files.create(os.path.join(directory, SYNC_FAILED_NAME)))


def _outcome(run: Callable[[], None]) -> DiskFailure | None:
    try:
        run()
    except DiskFailure as error:
        return error
    return None
