"""Replaces segments by new ones atomically: a crash leaves all of the old ones or all of the new ones.

Used by compaction and truncation. On disk:

1. ``<base>.log.new``, ``<base>.index.new`` and, if there are ABORT markers, ``<base>.txnindex.new`` are written and
   synced. Nothing reads them yet.
2. The manifest ``replacement`` is written and synced. From here on the log consists of the new files.
3. The new files are renamed to their final names, old files without a successor are removed, and the folder is synced.
4. The manifest is removed, and the folder is synced again: a manifest that came back after a power cut would remove
   files that got the same names later.

Opening a log does steps 3 and 4 if there is a manifest, and removes the files of step 1 if there is none. Readers are
not disturbed: their maps refer to the old files, not to the names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from storage.disk.files import Files
from storage.errors import DamagedLog, DiskFailure, LogClosed, StorageFailed, disk_errors
from storage.log.quarantine import Quarantine
from storage.recovery.checkpoint import Checkpoint, CheckpointFile
from storage.segment.index import SparseIndex, decode_sealed
from storage.segment.reading import file_names, index_name, segment_name, txn_index_name
from storage.segment.segment import LogSegment
from storage.segment.txn_index import AbortedEntry, decode_fitting, encode_file

REPLACEMENT_NAME: Final = "replacement"
NEW_SUFFIX: Final = ".new"

# A function that ends a replacement. Called with None, it adds the new segments to the log and returns the old ones.
# Called with the error of a failed replacement, it keeps the old segments in the log.
ReplacementEnd = Callable[[DiskFailure | None], list[LogSegment]]


class NewSegment(Struct, frozen=True):
    """A new segment: its batches are in ``<base>.log.new``, its index with a seal in ``<base>.index.new``, synced."""

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int
    first_timestamp: int
    index: SparseIndex
    # The transactions whose ABORT marker is in this segment. If there are any, they are also in
    # ``<base>.txnindex.new``.
    aborted: tuple[AbortedEntry, ...] = ()


class Manifest(Struct, frozen=True):
    """The base offsets of the removed and the added segments.

    After the replacement the log is compacted up to ``clean_upto``. ``aborted`` lists the added segments that have a
    transaction index file.
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
    """Write the transaction index of a new segment of ``size`` bytes, synced. Raises ``OSError``."""
    fd = files.create(new_txn_index_path(directory, base_offset))
    try:
        files.write_all(fd, encode_file(entries, size), 0)
        files.fdatasync(fd)
    finally:
        files.close(fd)


def read_manifest(directory: str, files: Files) -> Manifest | None:
    """The manifest of an unfinished replacement, if there is one."""
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
        # It is unknown whether the old or the new files are the log, so no file is changed.
        raise DamagedLog(f"{path} cannot be decoded, so it is unknown which segments belong to the log") from error


def finish_replacement(directory: str, files: Files) -> Manifest | None:
    """Finish a committed replacement, or remove the files of an uncommitted one. Opening a log begins with this.

    Returns the manifest that was found. May be interrupted and repeated. Raises ``OSError``.
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
            with suppress(FileNotFoundError):  # renamed before an interruption
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


class SegmentReplacement:
    """One replacement in an open log, created and ended on the log's thread. :meth:`run` may be called in any thread.

    ``checkpoint`` describes the log both before and after the replacement. It is made durable first, so that no
    checkpoint on disk refers to positions in removed files.
    """

    __slots__ = ("_checkpoint", "_checkpoint_file", "_directory", "_end", "_files", "_new_sizes", "_number", "manifest")

    def __init__(
        self,
        files: Files,
        manifest: Manifest,
        new_sizes: Mapping[int, int],
        checkpoint_file: CheckpointFile,
        checkpoint: Checkpoint,
        end: ReplacementEnd,
    ) -> None:
        """``new_sizes``: the size of each new segment, by base offset. ``end`` is called on the log's thread."""
        self._directory = checkpoint_file.directory
        self._files = files
        self.manifest = manifest
        self._new_sizes = new_sizes
        self._checkpoint_file = checkpoint_file
        self._number = checkpoint_file.take_number()
        self._checkpoint = checkpoint
        self._end = end

    def run(self) -> None:
        """Replace the files. Waits for the disk.

        After :class:`StorageFailed` the state of the disk is unknown. After any other :class:`DiskFailure` nothing has
        changed.
        """
        with disk_errors(f"replace segments in {self._directory}"), self._checkpoint_file.held() as is_ours:
            if not is_ours:
                raise LogClosed(f"{self._directory} is closed")
            # Open the folder first: once the manifest is on disk the replacement cannot be undone, so no later step may
            # fail for lack of a descriptor.
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
        """Check that the new files are complete, because later steps remove the old files."""
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
                raise DiskFailure(f"{path} or its index is missing or incomplete")

    def _has_new_aborted(self, base: int, size_bytes: int) -> bool:
        data = self._files.read_file(new_txn_index_path(self._directory, base))
        return decode_fitting(data, size_bytes) is not None

    def _commit(self) -> None:
        path = os.path.join(self._directory, REPLACEMENT_NAME)
        try:
            self._files.replace_file(path, self.manifest.encode(), sync=True)
        except OSError as error:
            if self._files.exists(path):  # written, but possibly not durable
                raise StorageFailed(f"write {path}: {error}", error.errno) from error
            raise

    def finish(self) -> list[LogSegment]:
        """Use the new segments, after :meth:`run` has succeeded. Returns the old segments; their slices stay valid."""
        return self._end(None)

    def fail(self, error: DiskFailure) -> None:
        """Keep the old segments, after :meth:`run` has raised ``error``. :class:`StorageFailed` poisons the log."""
        self._end(error)


def check_replacement(
    directory: str,
    segments: Sequence[LogSegment],
    quarantined: Sequence[Quarantine],
    log_end_offset: int,
    removed: Sequence[LogSegment],
    added: Sequence[NewSegment],
) -> int:
    """Check that ``added`` may replace ``removed``. Returns the index of the first removed segment in ``segments``."""
    if not removed or removed[0] not in segments:
        raise ValueError(f"{directory}: the segments to be replaced are not in this log")
    at = segments.index(removed[0])
    if list(removed) != segments[at : at + len(removed)]:
        raise ValueError(f"{directory}: the segments to be replaced are not neighbours")
    if any(not one.is_sealed or one.is_seal_pending for one in removed):
        raise ValueError(f"{directory}: a segment to be replaced is still in use")
    bases = {segment.base_offset for segment in removed}
    if any(one.segment_base in bases for one in quarantined):
        raise ValueError(f"{directory}: a segment to be replaced is damaged")
    after = at + len(removed)
    is_end = after == len(segments)
    end_offset = log_end_offset if is_end else segments[after].base_offset
    _check_order(removed, added, end_offset)
    if is_end and (not added or added[-1].next_offset != end_offset):
        raise ValueError(f"{directory}: the new segments do not reach the log end {end_offset}")
    return at


def _check_order(removed: Sequence[LogSegment], added: Sequence[NewSegment], end_offset: int) -> None:
    """Check that the offsets of ``added`` rise and lie in the range of ``removed``, which ends at ``end_offset``."""
    expected = removed[0].base_offset
    for new in added:
        if new.base_offset < expected or new.next_offset <= new.base_offset or new.size_bytes <= 0:
            raise ValueError(f"new segment {new.base_offset}..{new.next_offset} is empty or begins below {expected}")
        expected = new.next_offset
    if expected > end_offset:
        raise ValueError(f"the new segments end at offset {expected}, beyond {end_offset}")
