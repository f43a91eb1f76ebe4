"""The files of a log that is about to be opened, and its checkpoint.

Files without needed records are removed here, before anything is read: segments below the log start offset, and a last
file without a batch.
"""

from __future__ import annotations

import os
from contextlib import suppress

from storage.batch.format import HEADER_BYTES
from storage.disk.files import Files
from storage.log.syncing import SYNC_FAILED_NAME
from storage.recovery.checkpoint import CheckpointFile
from storage.segment.index import decode_sealed
from storage.segment.reading import base_offsets, index_name, segment_name, txn_index_name
from storage.segment.scan import is_zero


class LogFiles:
    """The files of a log folder. ``bases`` are the segments' base offsets in order, ``sizes`` their file lengths."""

    def __init__(self, directory: str, files: Files, boot_id: str) -> None:
        self.directory = directory
        self.files = files
        self.checkpoint = CheckpointFile(directory, files).read()
        names = files.listdir(directory)
        self.names = frozenset(names)
        self.bases = sorted(base_offsets(names))
        self.sizes: dict[int, int] = {}
        # A sync failed earlier: the page cache may show bytes that are not on the disk, so it is not trusted.
        self.is_sync_failure_marked = SYNC_FAILED_NAME in names
        # In the same boot the page cache is intact: after a kill everything that was written can be read.
        self.is_same_boot = (
            self.checkpoint is not None
            and boot_id != ""
            and self.checkpoint.boot_id == boot_id
            and not self.is_sync_failure_marked
        )
        self.is_checkpoint_synced = False
        self.has_removed = False

    def end_of_clean_stop(self) -> int | None:
        """The log end offset of a clean stop; None if the last stop was not clean."""
        if self.checkpoint is None or not self.checkpoint.is_clean or self.is_sync_failure_marked:
            return None
        return self.checkpoint.offset

    def prepare(self) -> None:
        """Remove segments below the log start offset, and read the lengths of the others."""
        self.remove_below_start()
        self.sizes = {base: self.files.size_of(self.path(base)) for base in self.bases}

    def path(self, base_offset: int) -> str:
        return os.path.join(self.directory, segment_name(base_offset))

    def remove_below_start(self) -> None:
        """Remove files that retention has dropped, but that were not deleted before the last stop.

        Files with batches after the checkpoint stay for now, because the producers of these batches have to be read.
        """
        checkpoint = self.checkpoint
        if checkpoint is None:
            return
        start = min(checkpoint.log_start_offset, checkpoint.offset)
        while self.bases and self.bases[0] < start:
            # According to the checkpoint, an emptied log continues at the offset at which its last file ends.
            end = self.bases[1] if len(self.bases) > 1 else checkpoint.segment_base
            if not self.bases[0] < end <= start:
                return
            self.sync_checkpoint()
            self.remove(self.bases[0])

    def sync_checkpoint(self) -> None:
        """Make the checkpoint durable before files are removed: afterwards only the checkpoint has their offsets."""
        if self.is_checkpoint_synced:
            return
        assert self.checkpoint is not None
        # Rewrite the file: an earlier sync of it may have failed, and a second sync would not report that.
        file = CheckpointFile(self.directory, self.files)
        file.write(file.take_number(), self.checkpoint, sync=True)
        self.is_checkpoint_synced = True

    def remove_empty_end(self) -> None:
        """Remove files of zeros at the end of the log.

        A process was killed after it had created such a file and before it wrote the first batch.
        """
        while self.bases and (len(self.bases) > 1 or self.is_base_known(self.bases[0])):
            base = self.bases[-1]
            if not self.is_empty(base) or self.checkpoint_is_inside(base):
                break
            self.remove(base)
        self.sync_removals()

    def is_base_known(self, base_offset: int) -> bool:
        """Whether the log would continue at ``base_offset`` even without this file."""
        return base_offset == (self.checkpoint.log_start_offset if self.checkpoint else 0)

    def checkpoint_is_inside(self, base_offset: int) -> bool:
        """Whether this file had batches when the checkpoint was written."""
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
        """Make removals durable before the log reuses the offsets in the names of the removed files.

        Otherwise a file that came back after a power cut would be read as a part of the log.
        """
        if self.has_removed:
            self.files.fsync_dir(self.directory)
            self.has_removed = False

    def is_sealed(self, base_offset: int) -> bool:
        """Whether the segment has a valid seal. If so, the segment is complete and was synced."""
        data = self.files.read_file(os.path.join(self.directory, index_name(base_offset)))
        return data is not None and decode_sealed(base_offset, data, self.sizes[base_offset]) is not None

    def sealed_count(self) -> int:
        """The number of segments before the first one without a valid seal. The last segment is not included."""
        return next((at for at, base in enumerate(self.bases[:-1]) if not self.is_sealed(base)), len(self.bases) - 1)
