"""The storage of a segment store: applies the writes of the core and reads entries.

Writes are applied in their order. After a failure the object must not be used: the store opens the directory again, as
a new incarnation. With `syncs` (the default) everything is durable when :meth:`SegmentFiles.apply` returns. Without it,
entries are in the page cache only; sealed epochs and closed segments are durable all the same. After an unclean stop
such a store can not vouch for the entries of its open segments: :attr:`SegmentFiles.is_limbo`.

The replicas of a partition share one log for their payloads, see :mod:`kwire.cluster.segment_files.partition_log`. The
core stores their entries in order and without gaps. A batch of a removed replica stays until it is at the end of the
log, or no replica of the partition is left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from msgspec.structs import replace

from kwire.cluster.core.entries import Entry, Kind
from kwire.cluster.core.messages import Incarnation, SegmentId
from kwire.cluster.core.writes import (
    PutEntries,
    RemoveAfter,
    RemoveReplica,
    ReplicaState,
    SetAcked,
    SetClosed,
    SetSealedEpoch,
    SetUnknown,
    Trim,
    Write,
)
from kwire.cluster.segment_files.partition_log import BatchRef, EntryDamaged, PartitionLog
from kwire.cluster.segment_files.records import FileId
from kwire.cluster.segment_files.register import Register, Registered
from kwire.cluster.segment_files.replica_file import (
    EVERYTHING,
    OFFSET_MAX,
    ReplicaContent,
    ReplicaFile,
    ReplicaWrite,
    salvaged,
)
from storage.disk.files import Files
from storage.errors import JournalDamaged, disk_errors
from storage.log.settings import LogSettings
from storage.replication.replica_log import ReplicaLog

FILE_SUFFIX: Final = ".replica"
LOG_SUFFIX: Final = ".partition"

# The settings of the log of a partition, by the name of its stream; None for a plain stream.
SettingsOf = Callable[[str], LogSettings | None]


def no_logs(stream: str) -> LogSettings | None:
    """All streams are plain ones."""
    return None


class SegmentFiles:
    """The files of one store, in one directory. Used by one thread."""

    def __init__(
        self, directory: str, files: Files, register: Register, log_settings: SettingsOf, *, syncs: bool
    ) -> None:
        self._directory = directory
        self._files = files
        self._register = register
        self._syncs = syncs
        self._log_settings = log_settings
        self._replicas: dict[SegmentId, ReplicaFile] = {}
        self._logs: dict[str, PartitionLog] = {}
        # Files that were damaged when the store started, one sentence each.
        self.damages: list[str] = []

    @classmethod
    def open(
        cls,
        directory: str,
        files: Files,
        new_cookie: int,
        log_settings: SettingsOf = no_logs,
        *,
        syncs: bool = True,
    ) -> SegmentFiles:
        """Open or create the files. The first start of a directory stores `new_cookie` as the identity of the disk.

        `log_settings`: the settings of the log that has the payloads of a stream; None for a plain stream.
        """
        opened = cls(directory, files, Register.open(directory, files, new_cookie), log_settings, syncs=syncs)
        try:
            opened._remove_orphans()
            for stream, generation in opened._register.logs.items():
                settings = log_settings(stream) or LogSettings()
                opened._logs[stream] = PartitionLog.open(opened._log_path(generation), files, settings)
            for segment in list(opened._register.replicas):
                opened._replicas[segment] = opened._open_replica(segment)
            for stream in opened._logs:
                opened._compare(stream)
        except BaseException:
            opened._close_files(is_clean=False)
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
                if self._removes_batches(write):
                    # What follows may be appended in the place of these batches.
                    self._flush(pending)
                    self._logs[segment.stream].cut(self._referred_end(segment.stream))
                elif isinstance(write, Trim) and segment.stream in self._logs:
                    self._flush(pending)
                    self._trim_log(segment.stream)
        self._flush(pending)

    def read(self, segment: SegmentId, first: int, last: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries in index order: as many as fit in `bytes_max`, but at least one. Raises EntryDamaged."""
        return self._replicas[segment].read(first, last, bytes_max)

    def partition_log(self, stream: str) -> ReplicaLog:
        """The log of a partition, for its readers."""
        return self._logs[stream].log

    def commit(self, segment: SegmentId, index: int) -> None:
        """Readers may have the entries of a partition up to `index`: from now on they are never removed."""
        if (log := self._logs.get(segment.stream)) is not None and segment in self._replicas:
            places = self._replicas[segment].content.places
            # A bridge is not in the log: what was committed ends before it.
            refs = (place for place in (places.get(index), places.get(index - 1)) if isinstance(place, BatchRef))
            if (ref := next(refs, None)) is not None:
                log.commit(ref.next_offset)

    def close(self, *, is_clean: bool = True) -> None:
        """Close the files. With `is_clean`, everything is durable and the next start needs no limbo."""
        try:
            if is_clean and not self._syncs:
                for log in self._logs.values():
                    log.sync()
                for replica in self._replicas.values():
                    replica.sync()
        finally:
            self._close_files(is_clean=is_clean)
            self._register.close(is_clean=is_clean)

    # --- writes

    def _flush(self, pending: dict[SegmentId, list[ReplicaWrite]]) -> None:
        taken = {segment: self._take(segment, writes) for segment, writes in pending.items()}
        if self._syncs:
            # A frame that refers to a batch must not reach the disk before the batch.
            for stream in {segment.stream for segment, batches in taken.items() if batches}:
                self._logs[stream].sync()
        changed = [self._replicas[segment] for segment in pending]
        for replica, (segment, writes) in zip(changed, pending.items(), strict=True):
            replica.write(writes, taken[segment])
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
                if (log := self._replicas[segment].log) is not None:
                    log.sync()
                self._replicas[segment].sync()
            self._register.set_replica(segment, replace(registered, closed_end=write.end))

    def _create(self, segment: SegmentId, epoch: int) -> None:
        # The file is durable before the register names it. A crash in between leaves an orphan.
        settings = self._log_settings(segment.stream)
        if segment.stream not in self._logs and settings is not None:
            self._create_log(segment.stream, settings)
        generation = self._register.next_generation()
        self._replicas[segment] = self._open(segment, generation)
        self._register.set_replica(segment, Registered(generation, epoch))

    def _remove(self, segment: SegmentId, registered: Registered) -> None:
        self._register.remove_replica(segment)
        self._replicas.pop(segment).close()
        self._unlink(registered.generation)
        stream = segment.stream
        if stream in self._logs and not any(one.stream == stream for one in self._register.replicas):
            self._remove_log(stream)

    # --- the logs of partitions

    def _take(self, segment: SegmentId, writes: list[ReplicaWrite]) -> dict[int, BatchRef]:
        """Append the events of a partition to its log. Returns where they are, by index."""
        log = self._logs.get(segment.stream)
        if log is None:
            return {}
        end = partial(self._referred_end, segment.stream)
        entries = [entry for write in writes if isinstance(write, PutEntries) for entry in write.entries]
        if entries and self._is_trimmed(segment.stream) and not self._has_batches(segment.stream):
            log.begin_at(entries[0])
        try:
            return {entry.index: log.take(entry, end) for entry in entries if entry.kind is Kind.EVENT}
        except EntryDamaged as damage:
            if damage.offset is not None:
                self._replicas[segment].note_damage(damage.offset)
            raise

    def _removes_batches(self, write: ReplicaWrite) -> bool:
        """Whether a write removes batches from a log: the entries after an index, or those that a bridge replaces."""
        if write.segment.stream not in self._logs:
            return False
        places = self._replicas[write.segment].content.places
        if isinstance(write, RemoveAfter):
            return any(index > write.index and isinstance(place, BatchRef) for index, place in places.items())
        return isinstance(write, PutEntries) and any(
            entry.kind is Kind.BRIDGE and isinstance(places.get(entry.index), BatchRef) for entry in write.entries
        )

    def _referred_end(self, stream: str) -> int:
        """The offset after the last batch that a journal refers to."""
        for segment in sorted((one for one in self._replicas if one.stream == stream), reverse=True):
            batches = self._replicas[segment].content.batches()
            if batches:
                return batches[-1][1].next_offset
        return self._logs[stream].log.log_start_offset

    def _contents(self, stream: str) -> list[ReplicaContent]:
        return [replica.content for segment, replica in self._replicas.items() if segment.stream == stream]

    def _is_trimmed(self, stream: str) -> bool:
        return any(content.first > 1 for content in self._contents(stream))

    def _has_batches(self, stream: str) -> bool:
        return any(content.batches() for content in self._contents(stream))

    def _trim_log(self, stream: str) -> None:
        """Remove the batches before the first one that a journal refers to. Retention has removed them."""
        log = self._logs[stream]
        firsts = [batches[0][1].offset for content in self._contents(stream) if (batches := content.batches())]
        log.trim(min(firsts, default=log.log.log_end_offset))

    def _create_log(self, stream: str, settings: LogSettings) -> None:
        # The folder is durable before the register names it. A crash in between leaves an orphan.
        generation = self._register.next_generation()
        path = self._log_path(generation)
        log = PartitionLog.open(path, self._files, settings)
        with disk_errors(f"create {path}"):
            self._files.fsync_dir(self._directory)
        self._register.add_log(stream, generation)
        self._logs[stream] = log

    def _remove_log(self, stream: str) -> None:
        path = self._log_path(self._register.logs[stream])
        self._register.remove_log(stream)
        self._logs.pop(stream).close(is_clean=False)
        self._remove_folder(path)

    def _log_path(self, generation: int) -> str:
        return os.path.join(self._directory, f"{generation:016d}{LOG_SUFFIX}")

    def _remove_folder(self, path: str) -> None:
        with disk_errors(f"remove {path}"):
            for name in sorted(self._files.listdir(path)):
                self._files.unlink(os.path.join(path, name))
            self._files.rmdir(path)

    def _compare(self, stream: str) -> None:
        """Compare the journals of a partition with its log after a start.

        A batch without a frame was never confirmed and is cut. A frame whose batch is missing or damaged makes the
        entry unknown, with all later ones: a log is only written at its end.
        """
        log = self._logs[stream]
        segments = sorted(segment for segment in self._replicas if segment.stream == stream)
        is_everything_compared = False
        # Each round ends the log earlier than the one before it.
        while True:
            end = self._sound_end(log, segments, is_everything_compared=is_everything_compared)
            for segment in segments:
                self._lose_batches(segment, log, end)
            referred_end = self._referred_end(stream)
            try:
                log.cut(min(end, referred_end))
            except EntryDamaged:
                # Older batches in the file that has to be cut.
                assert not is_everything_compared
            if log.log.log_end_offset == referred_end:
                break
            is_everything_compared = True
        for segment in segments:
            # The damage is gone, with everything after it.
            if self._replicas[segment].content.damaged_offset < OFFSET_MAX:
                self._rewrite_in_place(segment)
        if self._is_trimmed(stream):
            self._trim_log(stream)
        for segment in segments:
            self.commit(segment, self.closed_end(segment))

    def _sound_end(self, log: PartitionLog, segments: list[SegmentId], *, is_everything_compared: bool) -> int:
        sound_end = log.sound_end(
            (ref, is_everything_compared or not self.closed_end(segment))
            for segment in segments
            for _, ref in self._replicas[segment].content.batches()
        )
        return min([sound_end, *(self._replicas[segment].content.damaged_offset for segment in segments)])

    def _lose_batches(self, segment: SegmentId, log: PartitionLog, end: int) -> None:
        replica = self._replicas[segment]
        if replica.content.lose_batches(end):
            self.damages.append(f"{log.log.directory} lacks batches of {segment}")
            self._rewrite_in_place(segment)

    def _rewrite_in_place(self, segment: SegmentId) -> None:
        replica = self._replicas[segment]
        self._replicas[segment] = self._rewrite(segment, replica.content, replica.payload_free())
        replica.close()

    # --- files

    def _path(self, generation: int) -> str:
        return os.path.join(self._directory, f"{generation:016d}{FILE_SUFFIX}")

    def _open(self, segment: SegmentId, generation: int) -> ReplicaFile:
        path, log = self._path(generation), self._logs.get(segment.stream)
        return ReplicaFile.open(path, self._files, self._file_id(generation), log)

    def _file_id(self, generation: int) -> FileId:
        return FileId(self.incarnation.cookie, generation)

    def _open_replica(self, segment: SegmentId) -> ReplicaFile:
        registered = self._register.replicas[segment]
        path = self._path(registered.generation)
        try:
            if not self._files.exists(path):
                raise JournalDamaged(f"{path} is missing")
            replica = self._open(segment, registered.generation)
            if registered.closed_end and not replica.content.covers(registered.closed_end):
                replica.close()
                raise JournalDamaged(f"{path} lacks entries of a closed segment")
            return replica
        except JournalDamaged as damage:
            self.damages.append(str(damage))
            return self._rebuild(segment, registered)

    def _rebuild(self, segment: SegmentId, registered: Registered) -> ReplicaFile:
        """Keep what is left of a damaged file."""
        path = self._path(registered.generation)
        content, entries = salvaged(path, self._files, self._file_id(registered.generation))
        if registered.closed_end and not content.covers(registered.closed_end) and not content.unknown:
            content.doubt(EVERYTHING)
        return self._rewrite(segment, content, entries)

    def _rewrite(
        self, segment: SegmentId, content: ReplicaContent, entries: list[tuple[Entry, BatchRef | None]]
    ) -> ReplicaFile:
        """Write the content to a new file, which then takes the place of the old one in the register."""
        registered = self._register.replicas[segment]
        generation = self._register.next_generation()
        self._unlink(generation)  # an interrupted rewrite may have left it
        replica = self._open(segment, generation)
        if content.first > 1:
            trimmed = tuple(content.runs.between(1, content.first - 1))
            replica.write([Trim(segment, content.first, trimmed)])
            replica.keep_unsynced()
        for entry, ref in entries:
            replica.write([PutEntries(segment, (entry,))], {entry.index: ref} if ref is not None else {})
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
        known |= {self._log_path(generation) for generation in self._register.logs.values()}
        with disk_errors(f"remove unused files in {self._directory}"):
            for name in sorted(self._files.listdir(self._directory)):
                path = os.path.join(self._directory, name)
                if name.endswith(FILE_SUFFIX) and path not in known:
                    self._files.unlink(path)
                elif name.endswith(LOG_SUFFIX) and path not in known:
                    self._remove_folder(path)

    def _close_files(self, *, is_clean: bool) -> None:
        for replica in self._replicas.values():
            replica.close()
        self._replicas.clear()
        for log in self._logs.values():
            log.close(is_clean=is_clean)
        self._logs.clear()
