"""Putting new segments in the place of old ones so that a crash leaves all of the old or all of the new.

The one mechanism for compaction and truncation. On disk:

1. ``<base>.log.new`` and ``<base>.index.new`` are written and synced; nobody looks at them yet.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from storage.checkpoint import Checkpoint, CheckpointFile
from storage.errors import DamagedLog, DiskFailure, LogClosed, StorageFailed, disk_errors
from storage.files import Files
from storage.index import SparseIndex, decode_sealed
from storage.segment import LogSegment
from storage.segment_reading import index_name, segment_name

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


class Manifest(Struct, frozen=True):
    """Which segments go and which come, by base offset; compaction has then looked at all below ``clean_upto``."""

    remove: tuple[int, ...]
    add: tuple[int, ...]
    clean_upto: int

    def encode(self) -> bytes:
        facts = {"remove": list(self.remove), "add": list(self.add), "clean_upto": self.clean_upto}
        return json.dumps(facts).encode() + b"\n"


def new_log_path(directory: str, base_offset: int) -> str:
    return os.path.join(directory, segment_name(base_offset) + NEW_SUFFIX)


def new_index_path(directory: str, base_offset: int) -> str:
    return os.path.join(directory, index_name(base_offset) + NEW_SUFFIX)


def read_manifest(directory: str, files: Files) -> Manifest | None:
    """The manifest of a replacement that is not finished, if there is one."""
    path = os.path.join(directory, REPLACEMENT_NAME)
    data = files.read_file(path)
    if data is None:
        return None
    try:
        facts = json.loads(data)
        remove, add = ([int(base) for base in facts[name]] for name in ("remove", "add"))
        return Manifest(tuple(remove), tuple(add), int(facts["clean_upto"]))
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
    for base in manifest.add:
        for name in (segment_name(base), index_name(base)):
            path = os.path.join(directory, name)
            with suppress(FileNotFoundError):  # it got its name before the interruption
                files.rename(path + NEW_SUFFIX, path)
    for base in set(manifest.remove) - set(manifest.add):
        for name in (segment_name(base), index_name(base)):
            with suppress(FileNotFoundError):
                files.unlink(os.path.join(directory, name))
    files.fsync_dir(directory)
    files.unlink(os.path.join(directory, REPLACEMENT_NAME))
    files.fsync_dir(directory)
    return manifest


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
            self._check_new_files()
            self._checkpoint_file.make_durable(self._number, self._checkpoint)
            self._files.fsync_dir(self._directory)  # the names of the new files
            self._commit()
            try:
                finish_replacement(self._directory, self._files)
            except OSError as error:
                raise StorageFailed(f"replace segments in {self._directory}: {error}", error.errno) from error

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
            ):
                raise DiskFailure(f"{path} is not there, or not whole")

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


def check_order(removed: Sequence[LogSegment], added: Sequence[NewSegment], end_offset: int) -> None:
    """Assert that ``added`` fits into the place of ``removed``, which ends where the next segment begins."""
    expected = removed[0].base_offset
    for new in added:
        if new.base_offset < expected or new.next_offset <= new.base_offset or new.size_bytes <= 0:
            raise ValueError(f"a new segment {new.base_offset}..{new.next_offset} after {expected}")
        expected = new.next_offset
    if expected > end_offset:
        raise ValueError(f"new segments end at {expected}, behind {end_offset}")
