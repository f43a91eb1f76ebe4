"""The checkpoint of one partition: the recovery point, and state that is expensive to rebuild from the batches.

A checkpoint is one small file, replaced as a whole. ``epochs`` and ``producers`` cover all batches up to ``offset``,
which is at ``position`` of the segment with base offset ``segment_base``. The segments before ``scan_from`` are
sealed, and their files end with their last batch. The seals of later segments may be pending. A checkpoint
describes the page cache of one boot of the machine: after a power cut (another boot id) the last batches may be gone.
Below ``clean_upto`` the log was compacted, so offsets there need not be consecutive.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from crc32c import crc32c
from msgspec import Struct
from msgspec.structs import replace

from storage.disk.files import Files
from storage.log.producers import has_transactions

CHECKPOINT_NAME: Final = "checkpoint"

_MAGIC: Final = b"KWCP"
# A checkpoint is written in the oldest version that has all the fields it needs. So an older release can still read
# the checkpoints of logs that do not use newer features. Version 4 adds the list of segments and the flag for
# quarantined ranges. Version 3 adds transactions.
_VERSION: Final = 4
_VERSION_WITHOUT_SEGMENTS: Final = 3
_VERSION_WITHOUT_ABORTED: Final = 2
# This version was written before compaction existed. It has no clean_upto and can still be read.
_VERSION_WITHOUT_CLEAN_UPTO: Final = 1
_PREFIX: Final = struct.Struct(">4sHI")
_FACTS: Final = struct.Struct(">?qqqqqqqqqHIIII?")
_FACTS_WITHOUT_SEGMENTS: Final = struct.Struct(">?qqqqqqqqqHIII")
_FACTS_WITHOUT_ABORTED: Final = struct.Struct(">?qqqqqqqqqHII")
_FACTS_WITHOUT_CLEAN_UPTO: Final = struct.Struct(">?qqqqqqqqHII")
_FACTS_OF: Final = {
    _VERSION: _FACTS,
    _VERSION_WITHOUT_SEGMENTS: _FACTS_WITHOUT_SEGMENTS,
    _VERSION_WITHOUT_ABORTED: _FACTS_WITHOUT_ABORTED,
    _VERSION_WITHOUT_CLEAN_UPTO: _FACTS_WITHOUT_CLEAN_UPTO,
}
_EPOCH: Final = struct.Struct(">iq")
_SEGMENT: Final = struct.Struct(">qq?")
_RETIRED: Final = 2**63


class ListedSegment(NamedTuple):
    """A segment in a checkpoint: its base offset, size, and whether it has a ``.txnindex`` file."""

    base_offset: int
    size_bytes: int
    has_aborted: bool


class Checkpoint(Struct, frozen=True):
    """A checkpoint. ``is_clean``: the log was closed and synced, and its last file ends at ``position``."""

    boot_id: str
    is_clean: bool
    log_start_offset: int
    offset: int
    segment_base: int
    position: int
    scan_from: int
    max_timestamp: int
    first_timestamp: int
    created_ms: int
    epochs: tuple[tuple[int, int], ...]
    producers: bytes
    clean_upto: int = 0
    # Aborted transactions of segments whose transaction index file may not be on disk.
    aborted: bytes = b""
    # All segments in offset order, so that the next start notices lost ones. Empty if the other fields already describe
    # the only segment. The last segment may have grown since the checkpoint was written.
    segments: tuple[ListedSegment, ...] = ()
    # Whether the log has a file of quarantined ranges.
    has_quarantine: bool = False

    def encode(self) -> bytes:
        boot_id = self.boot_id.encode()
        lengths: tuple[int, ...] = ()
        if self.segments or self.has_quarantine:
            version, lengths = _VERSION, (len(self.aborted), len(self.segments), self.has_quarantine)
        elif self.aborted or has_transactions(self.producers):
            version, lengths = _VERSION_WITHOUT_SEGMENTS, (len(self.aborted),)
        else:
            version = _VERSION_WITHOUT_ABORTED
        body = b"".join(
            [
                _FACTS_OF[version].pack(
                    self.is_clean,
                    self.log_start_offset,
                    self.offset,
                    self.segment_base,
                    self.position,
                    self.scan_from,
                    self.max_timestamp,
                    self.first_timestamp,
                    self.created_ms,
                    self.clean_upto,
                    len(boot_id),
                    len(self.epochs),
                    len(self.producers),
                    *lengths,
                ),
                boot_id,
                *(_EPOCH.pack(*entry) for entry in self.epochs),
                self.producers,
                self.aborted,
                *(_SEGMENT.pack(*segment) for segment in self.segments),
            ]
        )
        return _PREFIX.pack(_MAGIC, version, crc32c(body)) + body


def decode_checkpoint(data: bytes) -> Checkpoint | None:
    """Decode a checkpoint. None if the bytes are not valid: recovery then scans the log from its start."""
    if len(data) < _PREFIX.size:
        return None
    magic, version, crc = _PREFIX.unpack_from(data)
    body = data[_PREFIX.size :]
    facts = _FACTS_OF.get(version)
    if magic != _MAGIC or facts is None or crc32c(body) != crc:
        return None
    if len(body) < facts.size:
        return None
    known = list(facts.unpack_from(body))
    has_quarantine = known.pop() if version == _VERSION else False
    segment_count = known.pop() if version == _VERSION else 0
    aborted_bytes = known.pop() if version >= _VERSION_WITHOUT_SEGMENTS else 0
    *known, boot_id_bytes, epoch_count, producers_bytes = known
    boot_id_end = facts.size + boot_id_bytes
    epochs_end = boot_id_end + epoch_count * _EPOCH.size
    producers_end = epochs_end + producers_bytes
    aborted_end = producers_end + aborted_bytes
    if aborted_end + segment_count * _SEGMENT.size != len(body):
        return None
    if version == _VERSION_WITHOUT_CLEAN_UPTO:
        known.append(0)
    is_clean, log_start_offset, offset, segment_base, position, scan_from, *others = known
    max_timestamp, first_timestamp, created_ms, clean_upto = others
    epochs = tuple((epoch, start_offset) for epoch, start_offset in _EPOCH.iter_unpack(body[boot_id_end:epochs_end]))
    boot_id = body[facts.size : boot_id_end].decode("ascii", "replace")
    return Checkpoint(
        boot_id,
        is_clean,
        log_start_offset,
        offset,
        segment_base,
        position,
        scan_from,
        max_timestamp,
        first_timestamp,
        created_ms,
        epochs,
        body[epochs_end:producers_end],
        clean_upto,
        body[producers_end:aborted_end],
        tuple(ListedSegment(*one) for one in _SEGMENT.iter_unpack(body[aborted_end:])),
        has_quarantine,
    )


class CheckpointFile:
    """Writes the checkpoints of one log, from any thread. An older checkpoint never replaces a newer one.

    After :meth:`retire`, the directory is no longer changed: it may soon belong to another log of the same name.
    """

    __slots__ = ("_files", "_lock", "_synced", "_taken", "_written", "directory", "log_start_offset")

    def __init__(self, directory: str, files: Files) -> None:
        self.directory = directory
        self._files = files
        self._lock = threading.RLock()
        self._taken = 0
        self._written = 0
        self._synced = 0
        # The newest log start offset, set by the log's thread. `write` uses it for checkpoints that have an older one.
        self.log_start_offset = 0

    @property
    def _path(self) -> str:
        return os.path.join(self.directory, CHECKPOINT_NAME)

    def take_number(self) -> int:
        """Return the number of a new checkpoint. Numbers order the checkpoints. Called by the log's thread."""
        self._taken += 1
        return self._taken

    def write(self, number: int, checkpoint: Checkpoint, *, sync: bool = False, is_unsynced: bool = False) -> None:
        """Write a checkpoint, unless a newer one was written. Waits for the disk, unless ``is_unsynced``.

        Unless ``is_unsynced``, a power cut leaves the old or the new checkpoint. With ``sync`` the new one is durable
        on return.
        """
        with self._lock:
            if number <= self._written:
                return
            # The start must not be above the checkpoint's end: recovery would not read the batches and producers
            # between the two.
            if checkpoint.log_start_offset < self.log_start_offset <= checkpoint.offset:
                checkpoint = replace(checkpoint, log_start_offset=self.log_start_offset)
            self._files.replace_file(self._path, checkpoint.encode(), sync=sync, sync_content=not is_unsynced)
            self._written = number
            if sync:
                self._synced = number

    def make_durable(self, number: int, checkpoint: Checkpoint) -> bool:
        """Make this checkpoint or a newer one durable. Returns False if this object is retired."""
        with self._lock:
            if self._written == _RETIRED:
                return False
            self.write(number, checkpoint, sync=True)
            if self._synced < number:
                # Rewrite the file: an earlier sync of it may have failed, and a second sync would not report that.
                newest = self.read() or checkpoint
                self._files.replace_file(self._path, newest.encode(), sync=True)
                self._synced = self._written
            return True

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the lock while files in the directory are replaced or removed. Yields False after :meth:`retire`."""
        with self._lock:
            yield self._written != _RETIRED

    @property
    def is_busy(self) -> bool:
        """Whether another thread holds the lock, so that a write would wait for the disk."""
        is_free = self._lock.acquire(blocking=False)
        if is_free:
            self._lock.release()
        return not is_free

    def retire(self, *, blocking: bool = True) -> bool:
        """Refuse all further writes. Returns False if another thread holds the lock and ``blocking`` is False."""
        if self._written == _RETIRED:
            return True
        if not self._lock.acquire(blocking=blocking):
            return False
        try:
            self._written = _RETIRED
        finally:
            self._lock.release()
        return True

    def read(self) -> Checkpoint | None:
        data = self._files.read_file(self._path)
        return None if data is None else decode_checkpoint(data)
