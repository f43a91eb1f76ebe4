"""Syncs the appended records of one log, or of many logs together.

A :class:`LogSync` is created on the log's thread and runs in any thread. It has its own descriptors, so the log may
roll, be closed or be deleted meanwhile. After the first failed sync of any file of a log, the :class:`SyncGate` of the
log is closed until the next start. The kernel reports a lost page once and then treats the page as clean, so a later
sync that succeeds proves nothing. The gate admits one sync at a time. Otherwise a sync round could succeed just after a
background seal has failed (or the reverse), and that success would prove nothing.

A lack of file descriptors is not a failed sync. :meth:`LogSync.run` opens everything before it syncs anything. If it
cannot open a file, it raises a plain :class:`DiskFailure`, the gate stays open, and the sync may be retried.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeAlias

from storage.disk.files import Files
from storage.errors import NO_DESCRIPTOR_ERRORS, DiskFailure, FileSystemFailed, StorageFailed, failed_sync

if TYPE_CHECKING:
    from storage.log.durability import DurableLog
    from storage.segment.segment import LogSegment

# Up to FILES_ONE_BY_ONE_MIN files of a data directory are synced one by one. For more than FILES_ONE_BY_ONE_MAX files,
# the whole file system is synced, which also writes dirty pages of other processes. In between, the file system is
# synced if at most UNWRITTEN_BYTES_MAX bytes are dirty. docs/decisions/0008-sync-rounds.md has the figures.
FILES_ONE_BY_ONE_MAX: Final = 8
FILES_ONE_BY_ONE_MIN: Final = 2
UNWRITTEN_BYTES_MAX: Final = 16 * 1024 * 1024

# This file is created in the folder of a log, or in a data directory, when a sync has failed there. From then on the
# page cache may show bytes that are not on the disk, so the next start must not trust the page cache. The file need not
# be durable, because after a reboot only bytes on the disk are read.
SYNC_FAILED_NAME: Final = "sync_failed"

_Arguments = ParamSpec("_Arguments")


class SyncGate:
    """Serialises the syncs of a log's files and refuses all syncs after the first failure. Usable from any thread.

    :meth:`close_gate` and :attr:`failure` do not wait for a sync. :meth:`sync` and :meth:`check` wait, so they are
    called in threads.
    """

    __slots__ = ("_close_lock", "_lock", "_on_failure", "failure")

    def __init__(self, on_failure: Callable[[], None] | None = None) -> None:
        """``on_failure`` is called once, at the first failure, in the thread that detects or reports the failure."""
        # Held while waiting for the disk, so the logs' thread never waits for this lock.
        self._lock = threading.Lock()
        # Held only for a comparison and an assignment.
        self._close_lock = threading.Lock()
        self._on_failure = on_failure
        self.failure: StorageFailed | None = None

    def sync(
        self, what: str, call: Callable[_Arguments, None], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> None:
        """Make one call that syncs. If it fails, the gate closes, unless no descriptor was left or the file is gone."""
        with self._lock:
            if self.failure is not None:
                raise copy(self.failure)
            try:
                call(*args, **kwargs)
            except FileNotFoundError:
                raise  # the folder was deleted meanwhile: nothing was synced, and nothing is lost
            except OSError as error:
                raise self._failed(what, error) from error
            if self.failure is not None:  # a sync of the file system failed meanwhile, and may have reported our page
                raise copy(self.failure)

    def enter(self) -> bool:
        """Begin a sync that ends with :meth:`leave`. Returns False if another sync is in progress or has failed.

        Used for asynchronous syncs by the kernel. Does not wait.
        """
        if self.failure is not None:
            return False
        return self._lock.acquire(blocking=False)

    def leave(self, what: str, error: OSError | None) -> DiskFailure | None:
        """End a sync that :meth:`enter` began, with its ``error``. Returns the error that :meth:`sync` would raise."""
        try:
            if error is not None:
                return self._failed(what, error)
            return None if self.failure is None else copy(self.failure)
        finally:
            self._lock.release()

    def _failed(self, what: str, error: OSError) -> DiskFailure:
        failure = failed_sync(what, error)
        if isinstance(failure, StorageFailed):
            self.close_gate(failure)
        return failure

    def check(self) -> None:
        """Raise if a sync that began before this call has failed."""
        with self._lock:
            if self.failure is not None:
                raise copy(self.failure)

    def close_gate(self, error: StorageFailed) -> None:
        with self._close_lock:
            is_first = self.failure is None
            if is_first:
                self.failure = error
        if is_first and self._on_failure is not None:
            self._on_failure()


class LogSync:
    """A sync of one log that makes everything below ``end_offset`` durable.

    :meth:`storage.log.log.Log.begin_sync` creates it on the log's thread. Exactly one of :meth:`finish` and
    :meth:`fail` ends it on that thread. In between, it is run in any thread: with :meth:`run`, with :func:`sync_each`
    together with others, or with :meth:`begin` and :meth:`end`.
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
        "names_created",
        "notes",
    )

    def __init__(
        self,
        log: DurableLog,
        files: Files,
        end_offset: int,
        generation: int,
        dirty: list[tuple[LogSegment, int, int]],
        names_created: int,
        is_folder_new: bool,
        notes: tuple[Callable[[], None], ...],
    ) -> None:
        """``dirty`` lists (segment, its current length, a descriptor that this object closes)."""
        self._log = log
        self._files = files
        self._is_open = True
        self.end_offset = end_offset
        self.generation = generation
        self.dirty = dirty
        # The number of file names that the log has created in its folder, if some may not be durable; else 0.
        self.names_created = names_created
        self.is_folder_new = is_folder_new
        self.notes = notes
        self.file_count = len(dirty) + len(notes) + bool(names_created) + 2 * is_folder_new

    @property
    def data_dir(self) -> str:
        return os.path.dirname(self._log.directory)

    def run(self) -> None:
        """Sync the log. Waits for the disk.

        Raises :class:`StorageFailed` if the sync failed: no more records of this log may be acknowledged. Raises
        another :class:`DiskFailure` if no descriptor was available: nothing is lost, and a new sync may be begun.
        """
        gate = self._log.gate
        try:
            with ExitStack() as opened:
                names = self._open_names(opened) if self.names_created else []
                self.run_prerequisites()
                for segment, _, fd in self.dirty:
                    segment.sync(fd)
                for path, sync, fd in names:
                    gate.sync(f"sync {path}", sync, fd)
        except FileNotFoundError as error:
            self._handle_missing_folder(error)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            self.close()

    def begin(self) -> int | None:
        """Begin an asynchronous sync instead of :meth:`run`: return the descriptor that the kernel has to sync.

        Call :meth:`end` or :meth:`cancel` afterwards. Returns None if anything besides one segment file must be synced,
        or if another sync of this log is in progress or has failed.
        """
        if self.names_created or self.notes or len(self.dirty) != 1 or not self._log.gate.enter():
            return None
        return self.dirty[0][2]

    def cancel(self) -> None:
        """Undo :meth:`begin` because the kernel did not begin the sync. Call :meth:`run` afterwards."""
        self._log.gate.leave("", None)

    def end(self, error: OSError | None) -> DiskFailure | None:
        """End the kernel's sync, which had the result ``error``. Returns the error that :meth:`run` would raise.

        If there is an error, this may wait for the disk, so it is called in a thread.
        """
        try:
            return self._log.gate.leave(f"sync {self._log.directory}", error)
        finally:
            self.close()

    def _open_names(self, opened: ExitStack) -> list[tuple[str, Callable[[int], None], int]]:
        """Open the files and folders whose syncs make the names of this log's files durable.

        Returns (path, function that syncs it, descriptor) of each.
        """
        files, directory = self._files, self._log.directory
        names: list[tuple[str, Callable[[int], None], int]] = []
        if self.is_folder_new:
            # The other files of a new folder, such as partition.metadata, say which topic the records belong to.
            for path, fd in _open_files(files, directory, but=(".log", ".index", ".txnindex", ".new")):
                opened.callback(files.close, fd)
                names.append((path, files.fsync, fd))
        for path in (directory, self.data_dir) if self.is_folder_new else (directory,):
            fd = files.open_dir(path)
            opened.callback(files.close, fd)
            names.append((path, partial(files.fsync_dir, path), fd))
        return names

    def run_prerequisites(self) -> None:
        """Make other files durable on which the records depend. Raises :class:`DiskFailure` like :meth:`run`."""
        try:
            for note in self.notes:
                note()
        except StorageFailed as error:
            self._log.gate.close_gate(error)
            raise
        except (OSError, DiskFailure) as error:
            raise self._failed(error) from error

    def confirm(self, failure: DiskFailure | None) -> None:
        """End this sync after a sync of the whole file system. Raises ``failure``, the error of that sync, if any."""
        self.close()
        if failure is not None:
            if isinstance(failure, StorageFailed):
                self._log.gate.close_gate(failure)
            raise copy(failure)
        self._log.gate.check()

    def _handle_missing_folder(self, error: FileNotFoundError) -> None:
        # A log is closed before its folder is deleted. Then nothing has to be synced, and no caller waits for the sync.
        if not self._log.is_closed:
            raise self._failed(error) from error

    def _failed(self, error: OSError | DiskFailure) -> DiskFailure:
        failure = failed_sync(f"sync {self._log.directory}", error)
        if isinstance(failure, StorageFailed):
            self._log.gate.close_gate(failure)
        return failure

    def finish(self) -> None:
        """Advance the log's ``synced_offset`` after the sync has succeeded."""
        self._log.end_sync(self)

    def fail(self, error: StorageFailed) -> None:
        """Make the log refuse appends and syncs until the next start (poison it), because the sync has failed."""
        self._log.poison(error)

    def close(self) -> None:
        """Close the descriptors. This is also needed for a sync that never ran."""
        if self._is_open:
            self._is_open = False
            for _, _, fd in self.dirty:
                self._files.close(fd)


# A sync and its error. :class:`StorageFailed` must not be retried, any other :class:`DiskFailure` may be.
Synced: TypeAlias = tuple[LogSync, DiskFailure | None]


def sync_all(files: Files, data_dirs: Sequence[str], syncs: Sequence[LogSync]) -> list[DiskFailure | None]:
    """Run all syncs in the caller's thread. Returns their errors in the same order, None for success."""
    outcomes = dict(sync_each(files, data_dirs, syncs))
    return [outcomes[sync] for sync in syncs]


def sync_each(files: Files, data_dirs: Sequence[str], syncs: Sequence[LogSync]) -> Iterator[Synced]:
    """Run all syncs in the caller's thread. Yields each sync with its error, or None, as soon as the sync ends.

    Syncs with the fewest bytes run first: a log with a small batch does not wait for megabytes of another log. If a
    data directory has too many files to sync one by one, its whole file system is synced. If the sync of the file
    system fails, all syncs of that directory fail with :class:`FileSystemFailed`. The caller then has to poison every
    log of the directory, because logs that had nothing to sync may have lost pages, too.
    """
    by_directory: dict[str, list[LogSync]] = {}
    for sync in syncs:
        by_directory.setdefault(sync.data_dir, []).append(sync)
    for data_dir, group in by_directory.items():
        if data_dir not in data_dirs or _is_synced_one_by_one(files, sum(sync.file_count for sync in group)):
            for sync in sorted(group, key=_unsynced_bytes):
                yield sync, _outcome(sync.run)
            continue
        failed_notes = {sync: _outcome(sync.run_prerequisites) for sync in group}
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
    """Open the files of a folder one after the other, except those with these suffixes. The caller closes them."""
    for name in files.listdir(directory):
        if name.endswith(but):
            continue
        path = os.path.join(directory, name)
        try:
            fd = files.open_read(path)
        except FileNotFoundError:
            continue  # the file was removed meanwhile, for example the manifest of a replacement
        yield path, fd


def sync_files(gate: SyncGate, files: Files, directory: str, *, but: tuple[str, ...]) -> None:
    """Sync the files of a folder one after the other, except those with these suffixes."""
    for path, fd in _open_files(files, directory, but=but):
        try:
            gate.sync(f"sync {path}", files.fsync, fd)
        finally:
            files.close(fd)


def mark_sync_failed(files: Files, directory: str) -> None:
    """Create :data:`SYNC_FAILED_NAME`, so that the next start does not trust the page cache. Errors are ignored."""
    with suppress(OSError):
        files.close(files.create(os.path.join(directory, SYNC_FAILED_NAME)))


def _outcome(run: Callable[[], None]) -> DiskFailure | None:
    try:
        run()
    except DiskFailure as error:
        return error
    return None
