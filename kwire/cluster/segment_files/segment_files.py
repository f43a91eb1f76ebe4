"""The storage of a segment store: applies the writes of the core and reads entries.

Writes are applied in their order. After a failure the object must not be used: the store opens the directory again, as
a new incarnation. With `syncs` (the default) everything is durable when :meth:`SegmentFiles.apply` returns. Without it,
entries are in the page cache only; sealed epochs and closed segments are durable all the same. After an unclean stop
such a store can not vouch for the entries of its open segments: :attr:`SegmentFiles.is_limbo`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from kwire.cluster.core.entries import Entry
from kwire.cluster.core.messages import Incarnation, SegmentId
from kwire.cluster.core.writes import (
    PutEntries,
    RemoveReplica,
    ReplicaState,
    SetAcked,
    SetClosed,
    SetSealedEpoch,
    SetUnknown,
    Write,
)
from kwire.cluster.segment_files.records import FileId
from kwire.cluster.segment_files.register import Register, Registered
from kwire.cluster.segment_files.replica_file import EVERYTHING, ReplicaContent, ReplicaFile, ReplicaWrite, salvaged
from storage.disk.files import Files
from storage.errors import JournalDamaged, disk_errors

FILE_SUFFIX: Final = ".replica"


class SegmentFiles:
    """The files of one store, in one directory. Used by one thread."""

    def __init__(self, directory: str, files: Files, register: Register, *, syncs: bool) -> None:
        self._directory = directory
        self._files = files
        self._register = register
        self._syncs = syncs
        self._replicas: dict[SegmentId, ReplicaFile] = {}
        # Files that were damaged when the store started, one sentence each.
        self.damages: list[str] = []

    @classmethod
    def open(cls, directory: str, files: Files, new_cookie: int, *, syncs: bool = True) -> SegmentFiles:
        """Open or create the files. The first start of a directory stores `new_cookie` as the identity of the disk."""
        opened = cls(directory, files, Register.open(directory, files, new_cookie), syncs=syncs)
        try:
            opened._remove_orphans()
            for segment in list(opened._register.replicas):
                opened._replicas[segment] = opened._open_replica(segment)
        except BaseException:
            opened._close_files()
            opened._register.close(is_clean=False)
            raise
        return opened

    @property
    def incarnation(self) -> Incarnation:
        return self._register.incarnation

    @property
    def is_limbo(self) -> bool:
        return not self._syncs and not self._register.was_clean

    def states(self) -> dict[SegmentId, ReplicaState]:
        """What each replica holds."""
        result = {}
        for segment, registered in self._register.replicas.items():
            content = self._replicas[segment].content
            result[segment] = content.state(registered.sealed_epoch, registered.closed_end)
        return result

    def content(self, segment: SegmentId) -> ReplicaContent | None:
        """What the files of a replica add up to; None without a replica."""
        replica = self._replicas.get(segment)
        return None if replica is None else replica.content

    def closed_end(self, segment: SegmentId) -> int:
        """The index of the bridge of a closed replica; 0 if it is not closed."""
        registered = self._register.replicas.get(segment)
        return 0 if registered is None else registered.closed_end

    def apply(self, writes: Iterable[Write]) -> None:
        """Apply writes. Raises DiskFailure, after which the store has to start again."""
        pending: dict[SegmentId, list[ReplicaWrite]] = {}
        for write in writes:
            segment = write.segment
            if isinstance(write, SetSealedEpoch | SetClosed | RemoveReplica):
                self._flush(pending)
                self._change_register(write)
            else:
                if segment not in self._register.replicas:
                    self._change_register(SetSealedEpoch(segment, 0))
                pending.setdefault(segment, []).append(write)
        self._flush(pending)

    def read(self, segment: SegmentId, first: int, last: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries in index order: as many as fit in `bytes_max`, but at least one. Raises EntryDamaged."""
        return self._replicas[segment].read(first, last, bytes_max)

    def close(self, *, is_clean: bool = True) -> None:
        """Close the files. With `is_clean`, everything is durable and the next start needs no limbo."""
        try:
            if is_clean and not self._syncs:
                for replica in self._replicas.values():
                    replica.sync()
        finally:
            self._close_files()
            self._register.close(is_clean=is_clean)

    # --- writes

    def _flush(self, pending: dict[SegmentId, list[ReplicaWrite]]) -> None:
        changed = [self._replicas[segment] for segment in pending]
        for replica, writes in zip(changed, pending.values(), strict=True):
            replica.write(writes)
        for replica in changed:
            if self._syncs:
                replica.sync()
            else:
                replica.keep_unsynced()
        pending.clear()

    def _change_register(self, write: SetSealedEpoch | SetClosed | RemoveReplica) -> None:
        segment = write.segment
        registered = self._register.replicas.get(segment)
        if isinstance(write, RemoveReplica):
            if registered is not None:
                self._remove(segment, registered)
        elif isinstance(write, SetSealedEpoch):
            if registered is None:
                self._create(segment, write.epoch)
            else:
                self._register.set_replica(segment, replace(registered, sealed_epoch=write.epoch))
        else:
            assert registered is not None, f"{segment} is closed before it is created"
            if not self._syncs:
                self._replicas[segment].sync()
            self._register.set_replica(segment, replace(registered, closed_end=write.end))

    def _create(self, segment: SegmentId, epoch: int) -> None:
        # The file is durable before the register names it. A crash in between leaves an orphan.
        generation = self._register.next_generation()
        self._replicas[segment] = self._open(generation)
        self._register.set_replica(segment, Registered(generation, epoch))

    def _remove(self, segment: SegmentId, registered: Registered) -> None:
        self._register.remove_replica(segment)
        self._replicas.pop(segment).close()
        self._unlink(registered.generation)

    # --- files

    def _path(self, generation: int) -> str:
        return os.path.join(self._directory, f"{generation:016d}{FILE_SUFFIX}")

    def _open(self, generation: int) -> ReplicaFile:
        return ReplicaFile.open(self._path(generation), self._files, self._file_id(generation))

    def _file_id(self, generation: int) -> FileId:
        return FileId(self.incarnation.cookie, generation)

    def _open_replica(self, segment: SegmentId) -> ReplicaFile:
        registered = self._register.replicas[segment]
        path = self._path(registered.generation)
        try:
            if not self._files.exists(path):
                raise JournalDamaged(f"{path} is missing")
            replica = self._open(registered.generation)
            if registered.closed_end and not replica.content.covers(registered.closed_end):
                replica.close()
                raise JournalDamaged(f"{path} lacks entries of a closed segment")
            return replica
        except JournalDamaged as damage:
            self.damages.append(str(damage))
            return self._rebuild(segment, registered)

    def _rebuild(self, segment: SegmentId, registered: Registered) -> ReplicaFile:
        """Write what is left of a damaged file to a new one, which then takes its place in the register."""
        path = self._path(registered.generation)
        content, entries = salvaged(path, self._files, self._file_id(registered.generation))
        if registered.closed_end and not content.covers(registered.closed_end) and not content.unknown:
            content.doubt(EVERYTHING)
        generation = self._register.next_generation()
        self._unlink(generation)  # an interrupted rebuild may have left it
        replica = self._open(generation)
        for entry in entries:
            replica.write([PutEntries(segment, (entry,))])
            replica.keep_unsynced()
        replica.write([SetAcked(segment, content.acked), SetUnknown(segment, tuple(content.unknown))])
        replica.sync()
        # A damaged replica is not closed any more: it must not serve or confirm what it may lack.
        self._register.set_replica(segment, replace(registered, generation=generation, closed_end=0))
        self._unlink(registered.generation)
        return replica

    def _unlink(self, generation: int) -> None:
        path = self._path(generation)
        with disk_errors(f"remove {path}"):
            if self._files.exists(path):
                self._files.unlink(path)

    def _remove_orphans(self) -> None:
        """Remove files that the register does not name: a crash interrupted their creation or removal."""
        known = {self._path(registered.generation) for registered in self._register.replicas.values()}
        with disk_errors(f"remove unused files in {self._directory}"):
            for name in sorted(self._files.listdir(self._directory)):
                path = os.path.join(self._directory, name)
                if name.endswith(FILE_SUFFIX) and path not in known:
                    self._files.unlink(path)

    def _close_files(self) -> None:
        for replica in self._replicas.values():
            replica.close()
        self._replicas.clear()
