"""The files of a log that is about to be opened: which there are, what its checkpoint says of them, and what may go.

Files that hold nothing are removed here, before anything is read: what lies below the log start, and a last file that
never got its first batch.
"""

from __future__ import annotations

import os
from contextlib import suppress

from storage.checkpoint import CheckpointFile
from storage.files import Files
from storage.format import HEADER_BYTES
from storage.index import decode_sealed
from storage.segment_reading import base_offsets, index_name, segment_name, txn_index_name
from storage.syncing import SYNC_FAILED_NAME
from storage.walk import is_zero


class FoundFiles:
    """``bases`` are the base offsets of the segments in order, ``sizes`` the bytes of their files."""

    def __init__(self, directory: str, files: Files, boot_id: str) -> None:
        self.directory = directory
        self.files = files
        self.checkpoint = CheckpointFile(directory, files).read()
        names = files.listdir(directory)
        self.names = frozenset(names)
        self.bases = sorted(base_offsets(names))
        self.sizes: dict[int, int] = {}
        # A sync failed: the cache showed what the disk does not have, so only what the disk has counts.
        self.is_sync_failure_noted = SYNC_FAILED_NAME in names
        # After a kill, in contrast to a power cut, everything that was written can be read.
        self.is_same_boot = (
            self.checkpoint is not None
            and boot_id != ""
            and self.checkpoint.boot_id == boot_id
            and not self.is_sync_failure_noted
        )
        self.is_checkpoint_synced = False
        self.has_removed = False

    def end_of_clean_stop(self) -> int | None:
        """Where a clean stop left the log, if it did."""
        if self.checkpoint is None or not self.checkpoint.is_clean or self.is_sync_failure_noted:
            return None
        return self.checkpoint.offset

    def look(self) -> None:
        """Remove what lies below the log start, and see how long the others are."""
        self.remove_below_start()
        self.sizes = {base: self.files.size_of(self.path(base)) for base in self.bases}

    def path(self, base_offset: int) -> str:
        return os.path.join(self.directory, segment_name(base_offset))

    def remove_below_start(self) -> None:
        """Retention was done with these files; a stop came before they were gone.

        What the checkpoint does not know of its producers stays for now: it has to be looked at.
        """
        checkpoint = self.checkpoint
        if checkpoint is None:
            return
        start = min(checkpoint.log_start_offset, checkpoint.offset)
        while self.bases and self.bases[0] < start:
            # The last file of a log that was emptied ends where the checkpoint says that the log goes on.
            end = self.bases[1] if len(self.bases) > 1 else checkpoint.segment_base
            if not self.bases[0] < end <= start:
                return
            self.sync_checkpoint()
            self.remove(self.bases[0])

    def sync_checkpoint(self) -> None:
        """What is only in the checkpoint from here on must not go with the next power cut."""
        if self.is_checkpoint_synced:
            return
        assert self.checkpoint is not None
        # Written anew: a sync of the file that is there may have failed before, and would not say so again.
        file = CheckpointFile(self.directory, self.files)
        file.write(file.take_number(), self.checkpoint, sync=True)
        self.is_checkpoint_synced = True

    def remove_empty_end(self) -> None:
        """A process killed between making a file and writing its first batch leaves a file of zeros."""
        while self.bases and (len(self.bases) > 1 or self.is_base_known(self.bases[0])):
            base = self.bases[-1]
            if not self.is_empty(base) or self.checkpoint_is_inside(base):
                break
            self.remove(base)
        self.sync_removals()

    def is_base_known(self, base_offset: int) -> bool:
        """Whether the log would go on at ``base_offset`` without this file, too."""
        return base_offset == (self.checkpoint.log_start_offset if self.checkpoint else 0)

    def checkpoint_is_inside(self, base_offset: int) -> bool:
        """Whether batches were in this file for certain."""
        checkpoint = self.checkpoint
        if checkpoint is None or not (self.is_same_boot or checkpoint.is_clean):
            return False
        return checkpoint.segment_base == base_offset and (checkpoint.position > 0 or bool(checkpoint.segments))

    def is_empty(self, base_offset: int) -> bool:
        size = self.sizes[base_offset]
        if size == 0:
            return True
        fd = self.files.open_read(self.path(base_offset))
        try:
            view = memoryview(self.files.pread(fd, HEADER_BYTES, 0))
            if not is_zero(view, 0, len(view)):
                return False
            return is_zero(self.files.map_readonly(fd, 0, size), 0, size)
        finally:
            self.files.close(fd)

    def remove(self, base_offset: int) -> None:
        self.files.unlink(self.path(base_offset))
        for name in (index_name(base_offset), txn_index_name(base_offset)):
            with suppress(OSError):
                self.files.unlink(os.path.join(self.directory, name))
        self.bases.remove(base_offset)
        self.has_removed = True

    def sync_removals(self) -> None:
        """Before the log goes on at offsets that these files were named after: one that came back would cut it off."""
        if self.has_removed:
            self.files.fsync_dir(self.directory)
            self.has_removed = False

    def is_sealed(self, base_offset: int) -> bool:
        """Whether the file carries a seal that fits: it is whole, and was synced."""
        data = self.files.read_file(os.path.join(self.directory, index_name(base_offset)))
        return data is not None and decode_sealed(base_offset, data, self.sizes[base_offset]) is not None

    def sealed_count(self) -> int:
        """How many segments from the first one on carry a seal that fits; the last one does not count."""
        return next((at for at, base in enumerate(self.bases[:-1]) if not self.is_sealed(base)), len(self.bases) - 1)
