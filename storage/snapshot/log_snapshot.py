"""The files of one log as a kill of the process would leave them at one moment.

The snapshot of an open log is described on the log's thread, linked in another thread, and fixed on the log's thread
again: :meth:`LogSnapshot.fits` says whether the links are still those of the log, and :meth:`LogSnapshot.fix` takes the
log start offset and the size of the active segment. Logs of one node that fit and are fixed in one call on their thread
are a snapshot of all of them at one moment.

The checkpoint may be older than the last batches. Recovery reads these batches, as it does after a kill. The index of a
segment that is not sealed is left out, because its file changes in place. Recovery builds it again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from storage.data_directory.partition_metadata import METADATA_NAME
from storage.disk.files import Files
from storage.log.log import Log
from storage.log.quarantine import QUARANTINE_NAME
from storage.recovery.checkpoint import CHECKPOINT_NAME, Checkpoint
from storage.segment.reading import base_offsets, index_name, segment_name, txn_index_name
from storage.segment.segment import LogSegment
from storage.snapshot.links import LinkedFile, SnapshotLinks

_NEW_SUFFIX: Final = ".new"


class LogSnapshot:
    """The snapshot of an open log. ``previous`` is an earlier one of the same log, whose links are used again."""

    def __init__(self, log: Log, previous: LogSnapshot | None = None) -> None:
        self._log = log
        self._directory = log.directory
        self._files = log._files
        self._segments = list(log.segments())
        self._is_described = log._is_describable
        self._checkpoint = log._describe_end(is_clean=False) if self._is_described else None
        self._has_quarantine = bool(log.quarantined)
        # The segments whose index file is complete, now.
        self._sealed = frozenset(one for one in self._segments if one.is_aborted_on_file)
        self._links: Mapping[LogSegment, LinkedFile] = previous._links if previous is not None else {}
        self._index_links: Mapping[LogSegment, Sequence[LinkedFile]] = (
            previous._index_links if previous is not None else {}
        )
        self._others: list[LinkedFile] = []
        self._fixed_bytes: int | None = None
        self._fixed_start = 0

    @property
    def new_file_count(self) -> int:
        """The number of files that :meth:`link` links or writes, at most."""
        return 3 * sum(one not in self._links for one in self._segments) + 3

    def link(self, links: SnapshotLinks) -> None:
        """Link the files. May be called in any thread. Raises ``FileNotFoundError`` if the log has changed."""
        directory = self._directory
        if self._checkpoint is None:
            # The end of the log is damaged, so it takes no appends. The files are kept as they are.
            self._others = link_folder(directory, links, self._files)
            return
        found: dict[LogSegment, LinkedFile] = {}
        indexes: dict[LogSegment, Sequence[LinkedFile]] = {}
        for segment in self._segments:
            if not segment.size_bytes:
                continue
            base = segment.base_offset
            found[segment] = self._links.get(segment) or links.link(os.path.join(directory, segment_name(base)), 0)
            if segment in self._sealed:
                indexes[segment] = self._index_links.get(segment) or link_existing(
                    directory, (index_name(base), txn_index_name(base)), links
                )
        self._links, self._index_links = found, indexes
        self._others = [links.link(os.path.join(directory, METADATA_NAME))]
        if self._has_quarantine:
            self._others += link_existing(directory, (QUARANTINE_NAME,), links)
        self._others.append(self._write_checkpoint(links, self._checkpoint))

    def _write_checkpoint(self, links: SnapshotLinks, checkpoint: Checkpoint) -> LinkedFile:
        return links.write(os.path.join(self._directory, CHECKPOINT_NAME), checkpoint.encode())

    def fits(self, log: Log | None) -> bool:
        """Whether the links are the files of this log, except for batches that were appended since.

        ``log`` is None if the log is parked: its files are those that it had when it was closed.
        """
        mine = self._log
        if (log is not None and log is not mine) or mine._replacement is not None or mine._segments != self._segments:
            return False
        if mine._is_describable is not self._is_described or bool(mine.quarantined) is not self._has_quarantine:
            return False
        if not self._is_described or not self._segments:
            return True
        last = self._segments[-1]
        return not last.size_bytes or last in self._links  # a segment gets its file with its first batch

    def fix(self) -> None:
        """Take the current size and start of the log. Later appends and deletions do not belong to the snapshot."""
        self._fixed_bytes = self._segments[-1].size_bytes if self._segments else 0
        self._fixed_start = self._log.log_start_offset

    @property
    def is_complete(self) -> bool:
        """Whether the linked checkpoint has the log start offset at the moment of :meth:`fix`."""
        return self._checkpoint is None or self._checkpoint.log_start_offset == self._fixed_start

    def complete(self, links: SnapshotLinks) -> None:
        """Write the checkpoint again: records were deleted between the description and :meth:`fix`.

        May be called in any thread. Raises ``OSError``.
        """
        assert self._checkpoint is not None
        self._checkpoint = replace(self._checkpoint, log_start_offset=self._fixed_start)
        self._others[-1] = self._write_checkpoint(links, self._checkpoint)

    def files(self) -> list[LinkedFile]:
        """The files of the log at the moment of :meth:`fix`."""
        assert self._fixed_bytes is not None
        found = list(self._others)
        for segment, link in self._links.items():
            is_last = segment is self._segments[-1]
            found.append(link._replace(size_bytes=self._fixed_bytes if is_last else segment.size_bytes))
            found += self._index_links.get(segment, ())
        return found


def link_existing(directory: str, names: Sequence[str], links: SnapshotLinks) -> list[LinkedFile]:
    """Link those of the files that exist. Each of them can be built again from the batches."""
    found = []
    for name in names:
        try:
            found.append(links.link(os.path.join(directory, name)))
        except FileNotFoundError:
            continue
    return found


def link_folder(directory: str, links: SnapshotLinks, files: Files) -> list[LinkedFile]:
    """Link the files of a log that is not open. May be called in any thread.

    The index files of the last segment are left out or copied, because they change in place when the log is opened.
    Raises ``FileNotFoundError`` if the log has changed, or if there is no folder.
    """
    names = [name for name in files.listdir(directory) if not name.endswith(_NEW_SUFFIX)]
    last = max(base_offsets(names), default=None)
    changing = () if last is None else (index_name(last), txn_index_name(last))
    found = []
    for base in sorted(base_offsets(names)):
        found.append(links.link(os.path.join(directory, segment_name(base))))
        if base != last:
            found += link_existing(directory, (index_name(base), txn_index_name(base)), links)
    for name in (METADATA_NAME, QUARANTINE_NAME, CHECKPOINT_NAME, *changing[1:]):
        if name in names:
            data = files.read_file(os.path.join(directory, name))
            if data is not None:
                found.append(links.write(os.path.join(directory, name), data))
    return found
