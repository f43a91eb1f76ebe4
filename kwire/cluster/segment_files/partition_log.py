"""The log of a partition behind the replicas of its stream segments: the payload of an event is a batch of the log.

All stream segments of a partition share one log, and each of them begins a log segment. Journals refer to batches by
offset, size and checksum. A batch is durable before a frame that refers to it is written, and a frame that drops a
batch is durable before the batch is cut. After a crash the log may therefore have batches that nothing refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from crc32c import crc32c

from kwire.cluster.core.entries import Entry, Kind
from storage.batch.record_batch import BatchHeader, is_intact, parse_header
from storage.disk.files import Files
from storage.errors import (
    DamagedLog,
    InvalidBatch,
    OffsetOutOfRange,
    QuarantinedRange,
    StorageError,
    UnexpectedOffset,
    disk_errors,
)
from storage.log.settings import LogSettings
from storage.replication.replica_log import ReplicaLog


class EntryDamaged(StorageError):
    """Stored bytes of an entry were changed. The store starts again, and finds out what else is damaged.

    `offset` is set if the log of a partition is damaged there although no journal refers to the batch.
    """

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class BatchRef(NamedTuple):
    """A batch of the log: its offsets up to `next_offset`, its size, and the CRC32C of all its bytes."""

    offset: int
    next_offset: int
    size_bytes: int
    crc: int


class PartitionLog:
    """The log of one partition. Used by one thread, which also does the log's background work."""

    def __init__(self, log: ReplicaLog) -> None:
        self.log = log

    @classmethod
    def open(cls, path: str, files: Files, settings: LogSettings) -> PartitionLog:
        with disk_errors(f"create {path}"):
            files.makedirs(path)
        return cls(ReplicaLog.open(path, files, _run, settings, files.boot_id()))

    # --- writing

    def take(self, entry: Entry, referred_end: Callable[[], int]) -> BatchRef:
        """Append the batch of an event, and return where it is. :meth:`sync` makes it durable.

        A batch that the log has already is not written again. Other batches at its place that nothing refers to, from
        `referred_end` on, are cut.
        """
        batch = memoryview(entry.payload)
        header = _check(entry, batch)
        ref = BatchRef(header.base_offset, header.last_offset + 1, len(batch), crc32c(batch))
        log = self.log
        if ref.offset < log.log_end_offset:
            if self.holds(ref):
                return ref
            if ref.offset < referred_end():
                raise self._conflict(ref.offset, header)
            self.cut(ref.offset)
        # The log has no clock. Its segments age by the timestamps of their batches.
        now_ms = max(header.max_timestamp, 0)
        with _found_damage():
            if entry.index == 1:
                log.roll(now_ms)
            log.append_replicated(batch, header, now_ms)
        return ref

    def _conflict(self, offset: int, header: BatchHeader) -> StorageError:
        """The error for a batch whose place in the log has other bytes: damaged ones, or a batch of another leader."""
        try:
            with _found_damage():
                found = memoryview(self.log.read_copy(offset))
        except EntryDamaged as damage:
            return EntryDamaged(str(damage), offset)
        # The checksum of a batch does not cover its offset and its epoch, and a page may be in the wrong place.
        there = parse_header(found)
        if is_intact(found) and there.base_offset <= offset <= there.last_offset and there.crc != header.crc:
            return UnexpectedOffset(f"{self.log.directory} has another batch at offset {offset}")
        return EntryDamaged(f"{self.log.directory}: the batch at offset {offset} is damaged", offset)

    def sync(self) -> None:
        self.log.flush()

    def cut(self, offset: int) -> None:
        """Remove the batches from `offset` on. No durable frame refers to them."""
        with _found_damage():
            if offset < self.log.log_start_offset:
                self.log.reset(offset)
            else:
                self.log.cut(offset)

    def trim(self, offset: int) -> None:
        """Remove the batches before `offset`. No durable frame refers to them."""
        if offset > self.log.log_start_offset:
            self.log.commit(offset)
            self.log.trim(offset)

    def begin_at(self, entry: Entry) -> None:
        """Let the log begin with this event, if it is one: everything before it was trimmed."""
        if entry.kind is Kind.EVENT and (offset := parse_header(entry.payload).base_offset) > self.log.log_end_offset:
            self.log.restart_at(offset)

    def commit(self, offset: int) -> None:
        """Readers may have everything below `offset`: it is never cut."""
        self.log.commit(offset)

    # --- reading

    def read(self, ref: BatchRef) -> bytes:
        """The bytes of a batch. Raises EntryDamaged."""
        with _found_damage():
            batch = self.log.read_copy(ref.offset)
        if len(batch) != ref.size_bytes or crc32c(batch) != ref.crc:
            raise EntryDamaged(f"{self.log.directory}: another batch is at offset {ref.offset}")
        return batch

    def holds(self, ref: BatchRef) -> bool:
        try:
            self.read(ref)
        except EntryDamaged:
            return False
        return True

    def sound_end(self, refs: Iterable[tuple[BatchRef, bool]]) -> int:
        """The offset up to which the log has what the journals refer to.

        The references are in offset order, each with whether its bytes have to be compared. Those in the last log
        segment always are; older batches are compared when they are read.
        """
        start = self.log.log_start_offset
        end = min([self.log.log_end_offset, *(one.start_offset for one in self.log.quarantined)])
        last_base = max((segment.base_offset for segment in self.log.segments()), default=0)
        for ref, is_compared in refs:
            is_inside = start <= ref.offset and ref.next_offset <= end
            if not is_inside or ((is_compared or ref.offset >= last_base) and not self.holds(ref)):
                return min(end, ref.offset)
        return end

    def close(self, *, is_clean: bool) -> None:
        self.log.close(is_clean=is_clean)


def _check(entry: Entry, batch: memoryview) -> BatchHeader:
    if entry.kind is not Kind.EVENT or not is_intact(batch):
        raise InvalidBatch(f"the payload of the entry at index {entry.index} is not a record batch")
    header = parse_header(batch)
    if header.partition_leader_epoch != entry.birth_epoch:
        raise InvalidBatch(
            f"the batch at index {entry.index} has leader epoch {header.partition_leader_epoch}, "
            f"but its entry was created in epoch {entry.birth_epoch}"
        )
    return header


@contextmanager
def _found_damage() -> Iterator[None]:
    try:
        yield
    except (DamagedLog, QuarantinedRange, OffsetOutOfRange) as damage:
        raise EntryDamaged(str(damage)) from damage


def _run(job: Callable[[], None]) -> None:
    job()
