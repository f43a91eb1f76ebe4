"""Putting new segments in the place of old ones so that a crash leaves all of the old or all of the new.

The one mechanism for compaction and truncation. On disk:

1. ``<base>.log.new``, ``<base>.index.new`` and, where there are ABORT markers, ``<base>.txnindex.new`` are written and
   synced; nobody looks at them yet.
2. The manifest ``replacement`` is written and synced: from here on the new files are the log.
3. They are renamed over the final names, the old ones that have no successor are removed, the folder is synced.
4. The manifest is removed, and the folder synced again: a manifest that came back after a power cut would remove files
   that got the same names later.

A log that is opened finishes 3 and 4 if it finds a manifest, and removes files of step 1 if it finds none. Readers of
the live log are not disturbed: their maps hold the old files, whatever the names mean by now.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from storage.checkpoint import Checkpoint, CheckpointFile
from storage.errors import DamagedLog, DiskFailure, LogClosed, StorageFailed, disk_errors
from storage.files import Files
from storage.index import SparseIndex, decode_sealed
from storage.quarantine import Quarantine
from storage.segment import LogSegment
from storage.segment_reading import file_names, index_name, segment_name, txn_index_name
from storage.txn_index import AbortedEntry, decode_fitting, encode_file

REPLACEMENT_NAME: Final = "replacement"
NEW_SUFFIX: Final = ".new"

# Takes the new segments into the log, or gives up; returns the old ones.
SwapEnd = Callable[[DiskFailure | None], list[LogSegment]]


class NewSegment(Struct, frozen=True):
    """A segment whose bytes are in ``<base>.log.new``, synced, and its index with a seal in ``<base>.index.new``."""

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int
    first_timestamp: int
    index: SparseIndex
    # Transactions whose ABORT marker lies in it, in ``<base>.txnindex.new`` as well if there are any.
    aborted: tuple[AbortedEntry, ...] = ()


class Manifest(Struct, frozen=True):
    """Which segments go and which come, by base offset; compaction has then looked at all below ``clean_upto``.

    ``aborted``: those of the new ones that come with a file of their aborted transactions.
    """

    remove: tuple[int, ...]
    add: tuple[int, ...]
    clean_upto: int
    aborted: tuple[int, ...] = ()

    def encode(self) -> bytes:
        facts: dict[str, Any] = {"remove": list(self.remove), "add": list(self.add), "clean_upto": self.clean_upto}
        if self.aborted:
            facts["aborted"] = list(self.aborted)
        return json.dumps(facts).encode() + b"\n"


def new_log_path(directory: str, base_offset: int) -> str:
    return os.path.join(directory, segment_name(base_offset) + NEW_SUFFIX)


def new_index_path(directory: str, base_offset: int) -> str:
    return os.path.join(directory, index_name(base_offset) + NEW_SUFFIX)


def new_txn_index_path(directory: str, base_offset: int) -> str:
    return os.path.join(directory, txn_index_name(base_offset) + NEW_SUFFIX)


def write_new_aborted(
    directory: str, base_offset: int, entries: Iterable[AbortedEntry], size: int, files: Files
) -> None:
    """The aborted transactions of a new segment of ``size`` bytes, synced. Raises ``OSError``."""
    fd = files.create(new_txn_index_path(directory, base_offset))
    try:
        files.write_all(fd, encode_file(entries, size), 0)
        files.fdatasync(fd)
    finally:
        files.close(fd)


def read_manifest(directory: str, files: Files) -> Manifest | None:
    """The manifest of a replacement that is not finished, if there is one."""
    path = os.path.join(directory, REPLACEMENT_NAME)
    data = files.read_file(path)
    if data is None:
        return None
    try:
        facts = json.loads(data)
        remove, add = ([int(base) for base in facts[name]] for name in ("remove", "add"))
        aborted = tuple(int(base) for base in facts.get("aborted", ()))
        return Manifest(tuple(remove), tuple(add), int(facts["clean_upto"]), aborted)
    except (ValueError, KeyError, TypeError) as error:
        # Whether the old or the new files are the log cannot be told, so neither is touched.
        raise DamagedLog(f"{path} cannot be read") from error


def finish_replacement(directory: str, files: Files) -> Manifest | None:
    """The first thing to do with a folder: carry out what was decided, forget what was not. Raises ``OSError``.

    Returns the manifest that was found. May be interrupted and done again.
    """
    manifest = read_manifest(directory, files)
    if manifest is None:
        for name in files.listdir(directory):
            if name.endswith(NEW_SUFFIX):
                files.unlink(os.path.join(directory, name))
        return None
    _carry_out(manifest, directory, files)
    return manifest


def _carry_out(manifest: Manifest, directory: str, files: Files, folder_fd: int | None = None) -> None:
    for base in manifest.add:
        names = file_names(base) if base in manifest.aborted else file_names(base)[:-1]
        for name in names:
            path = os.path.join(directory, name)
            with suppress(FileNotFoundError):  # it got its name before the interruption
                files.rename(path + NEW_SUFFIX, path)
        if base not in manifest.aborted:
            with suppress(FileNotFoundError):
                files.unlink(os.path.join(directory, txn_index_name(base)))
    for base in set(manifest.remove) - set(manifest.add):
        for name in file_names(base):
            with suppress(FileNotFoundError):
                files.unlink(os.path.join(directory, name))
    files.fsync_dir(directory, folder_fd)
    files.unlink(os.path.join(directory, REPLACEMENT_NAME))
    files.fsync_dir(directory, folder_fd)


class SegmentSwap:
    """One replacement in a live log: begun and ended on the log's thread, :meth:`run` in any other.

    ``checkpoint`` describes the log in a way that is true before and after the swap; it is made durable first, so that
    nothing on file speaks of positions in files that are gone.
    """

    __slots__ = ("_checkpoint", "_checkpoint_file", "_directory", "_end", "_files", "_new_sizes", "_number", "manifest")

    def __init__(
        self,
        files: Files,
        manifest: Manifest,
        new_sizes: Mapping[int, int],
        checkpoint_file: CheckpointFile,
        checkpoint: Checkpoint,
        end: SwapEnd,
    ) -> None:
        """``new_sizes``: the bytes of each new segment, by base offset. ``end`` is called on the log's thread."""
        self._directory = checkpoint_file.directory
        self._files = files
        self.manifest = manifest
        self._new_sizes = new_sizes
        self._checkpoint_file = checkpoint_file
        self._number = checkpoint_file.take_number()
        self._checkpoint = checkpoint
        self._end = end

    def run(self) -> None:
        """Wait for the disk. After :class:`DiskFailure` nothing has changed; :class:`StorageFailed`: nobody knows."""
        with disk_errors(f"replace segments in {self._directory}"), self._checkpoint_file.held() as is_ours:
            if not is_ours:
                raise LogClosed(f"{self._directory} is closed")
            # Taken first: once the manifest is on the disk there is no way back, so nothing may have to be opened then.
            folder_fd = self._files.open_dir(self._directory)
            try:
                self._check_new_files()
                self._checkpoint_file.make_durable(self._number, self._checkpoint)
                self._files.fsync_dir(self._directory, folder_fd)  # the names of the new files
                self._commit()
                try:
                    _carry_out(self.manifest, self._directory, self._files, folder_fd)
                except OSError as error:
                    raise StorageFailed(f"replace segments in {self._directory}: {error}", error.errno) from error
            finally:
                self._files.close(folder_fd)

    def _check_new_files(self) -> None:
        """The manifest is a promise that they are there: old files go on the strength of it."""
        for base in self.manifest.add:
            path, size_bytes = new_log_path(self._directory, base), self._new_sizes[base]
            seal = self._files.read_file(new_index_path(self._directory, base))
            if (
                seal is None
                or decode_sealed(base, seal, size_bytes) is None
                or not self._files.exists(path)
                or self._files.size_of(path) != size_bytes
                or (base in self.manifest.aborted and not self._has_new_aborted(base, size_bytes))
            ):
                raise DiskFailure(f"{path} is not there, or not whole")

    def _has_new_aborted(self, base: int, size_bytes: int) -> bool:
        data = self._files.read_file(new_txn_index_path(self._directory, base))
        return decode_fitting(data, size_bytes) is not None

    def _commit(self) -> None:
        path = os.path.join(self._directory, REPLACEMENT_NAME)
        try:
            self._files.replace_file(path, self.manifest.encode(), sync=True)
        except OSError as error:
            if self._files.exists(path):  # written, but perhaps not for ever
                raise StorageFailed(f"write {path}: {error}", error.errno) from error
            raise

    def finish(self) -> list[LogSegment]:
        """The new segments are the log. Returns the old ones: their files are gone, their slices are good."""
        return self._end(None)

    def fail(self, error: DiskFailure) -> None:
        """:meth:`run` has raised this; the log goes on with what it had, if it may go on at all."""
        self._end(error)


def check_replacement(
    directory: str,
    segments: Sequence[LogSegment],
    quarantined: Sequence[Quarantine],
    log_end_offset: int,
    removed: Sequence[LogSegment],
    added: Sequence[NewSegment],
) -> int:
    """Assert that ``added`` may take the place of ``removed`` among ``segments``; the number of the first of these."""
    if not removed or removed[0] not in segments:
        raise ValueError(f"{directory}: no segments of this log to be replaced")
    at = segments.index(removed[0])
    if list(removed) != segments[at : at + len(removed)]:
        raise ValueError(f"{directory}: the segments to be replaced are not neighbours")
    if any(not one.is_sealed or one.is_seal_pending for one in removed):
        raise ValueError(f"{directory}: a segment to be replaced is still in use")
    bases = {segment.base_offset for segment in removed}
    if any(one.segment_base in bases for one in quarantined):
        raise ValueError(f"{directory}: a segment to be replaced is damaged")
    behind = at + len(removed)
    is_end = behind == len(segments)
    end_offset = log_end_offset if is_end else segments[behind].base_offset
    _check_order(removed, added, end_offset)
    if is_end and (not added or added[-1].next_offset != end_offset):
        raise ValueError(f"{directory}: the new segments do not reach the log end {end_offset}")
    return at


def _check_order(removed: Sequence[LogSegment], added: Sequence[NewSegment], end_offset: int) -> None:
    """Assert that ``added`` fits into the place of ``removed``, which ends where the next segment begins."""
    expected = removed[0].base_offset
    for new in added:
        if new.base_offset < expected or new.next_offset <= new.base_offset or new.size_bytes <= 0:
            raise ValueError(f"a new segment {new.base_offset}..{new.next_offset} after {expected}")
        expected = new.next_offset
    if expected > end_offset:
        raise ValueError(f"new segments end at {expected}, behind {end_offset}")
