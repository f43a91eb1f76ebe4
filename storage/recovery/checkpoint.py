"""The checkpoint of one partition: where its recovery may start, and what cannot be read off the batches cheaply.

One small file, replaced as a whole. It says: up to ``offset``, which lies at ``position`` of the segment that begins
at ``segment_base``, everything is in ``epochs`` and ``producers``, and that the segments before ``walk_from`` are cut
and sealed; those from it on may still have been in work. A checkpoint is a statement about the page cache of
one run of the machine: after a power cut (another boot id) the batches behind it may be gone. Below ``clean_upto``
compaction has been at work, so offsets there need not follow each other.
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

from storage.files import Files
from storage.producers import has_transactions

CHECKPOINT_NAME: Final = "checkpoint"

_MAGIC: Final = b"KWCP"
# A version is written only where its additions say something, so that other logs can be read by an older release:
# 4 with a list of segments or a note that ranges are quarantined, 3 where there were transactions.
_VERSION: Final = 4
_VERSION_WITHOUT_SEGMENTS: Final = 3
_VERSION_WITHOUT_ABORTED: Final = 2
# Written before there was compaction, and still read: without clean_upto.
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
    """A segment that a checkpoint names, with the bytes of its batches and whether a ``.txnindex`` belongs to it."""

    base_offset: int
    size_bytes: int
    has_aborted: bool


class Checkpoint(Struct, frozen=True):
    """``is_clean``: nothing was open any more, everything was synced, and the last file ends at ``position``."""

    boot_id: str
    is_clean: bool
    log_start_offset: int
    offset: int
    segment_base: int
    position: int
    walk_from: int
    max_timestamp: int
    first_timestamp: int
    created_ms: int
    epochs: tuple[tuple[int, int], ...]
    producers: bytes
    clean_upto: int = 0
    # Aborted transactions of segments whose own list of them is not on file for certain.
    aborted: bytes = b""
    # All segments in offset order, so that the next start notices what was lost since; empty where the other facts
    # tell as much. The last one may have grown since then.
    segments: tuple[ListedSegment, ...] = ()
    # Whether a list of quarantined ranges belongs to the log.
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
                    self.walk_from,
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
    """The checkpoint, or None when the bytes are not a whole one: recovery then walks the log from its start."""
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
    is_clean, log_start_offset, offset, segment_base, position, walk_from, *others = known
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
        walk_from,
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
    """Writes the checkpoints of one log, from any thread; an older one never replaces a newer one.

    Once it is retired the directory is not touched any more: it may soon belong to another log of the same name.
    """

    __slots__ = ("_files", "_lock", "_synced", "_taken", "_written", "directory", "log_start_offset")

    def __init__(self, directory: str, files: Files) -> None:
        self.directory = directory
        self._files = files
        self._lock = threading.RLock()
        self._taken = 0
        self._written = 0
        self._synced = 0
        # The newest there is, set by the log's thread: a checkpoint whose facts are older is written with it.
        self.log_start_offset = 0

    @property
    def _path(self) -> str:
        return os.path.join(self.directory, CHECKPOINT_NAME)

    def take_number(self) -> int:
        """Numbers order the checkpoints; taken by the log's thread when the facts are gathered."""
        self._taken += 1
        return self._taken

    def write(self, number: int, checkpoint: Checkpoint, *, sync: bool = False, is_hasty: bool = False) -> None:
        """Waits for the disk, so that a power cut leaves the old one or the new one, unless it ``is_hasty``."""
        with self._lock:
            if number <= self._written:
                return
            # Not above its own end: what lies between would never be looked at, nor the producers who wrote it known.
            if checkpoint.log_start_offset < self.log_start_offset <= checkpoint.offset:
                checkpoint = replace(checkpoint, log_start_offset=self.log_start_offset)
            self._files.replace_file(self._path, checkpoint.encode(), sync=sync, sync_content=not is_hasty)
            self._written = number
            if sync:
                self._synced = number

    def make_durable(self, number: int, checkpoint: Checkpoint) -> bool:
        """This checkpoint or a newer one is on the disk when this returns; False when it is retired."""
        with self._lock:
            if self._written == _RETIRED:
                return False
            self.write(number, checkpoint, sync=True)
            if self._synced < number:
                # Written anew: a sync of the file that is there may have failed before, and would not say so again.
                newest = self.read() or checkpoint
                self._files.replace_file(self._path, newest.encode(), sync=True)
                self._synced = self._written
            return True

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Keep the directory this log's while files in it are replaced or removed; False when it is not any more."""
        with self._lock:
            yield self._written != _RETIRED

    @property
    def is_busy(self) -> bool:
        """Whether another thread is at work on it just now; a write would wait for the disk."""
        is_free = self._lock.acquire(blocking=False)
        if is_free:
            self._lock.release()
        return not is_free

    def retire(self, *, blocking: bool = True) -> bool:
        """Let nothing through any more. False: another thread is at work, and ``blocking`` did not allow to wait."""
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
