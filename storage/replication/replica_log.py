"""The log of a replica of a partition. The leader has assigned the offsets, and the end is not committed yet.

Readers get slices of the log's pages below the committed offset only. Nobody holds pages above it, so the end of the
log is cut in place there: the file is truncated, nothing is copied. :meth:`ReplicaLog.cut` refuses an offset below the
committed one. An ordinary :class:`~storage.log.log.Log` has no such method, because its readers may hold all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from typing import NamedTuple

from msgspec.structs import replace

from storage.batch.format import CONTROL_BIT, NO_TIMESTAMP
from storage.batch.markers import require_marker
from storage.batch.record_batch import BatchHeader, parse_header
from storage.disk.files import Files
from storage.errors import DamagedLog, DiskFailure, InvalidBatch, StorageFailed, UnexpectedOffset, disk_errors
from storage.log.leader_epochs import LeaderEpochs
from storage.log.log import Appended, Log, LogState
from storage.log.producers import ProducerStates
from storage.log.settings import Background, LogSettings
from storage.log.start_offset import LogStartUpdate
from storage.recovery.crash_recovery import FirstAppend, open_log
from storage.recovery.truncation import index_below, producers_below
from storage.segment.index import NO_MAX_TIMESTAMP, SparseIndex
from storage.segment.reads import LogRead
from storage.segment.segment import LogSegment
from storage.segment.txn_index import AbortedEntry, encode_entries


class _Cut(NamedTuple):
    """The log after a cut: whole segments, and the segment that is cut at `position`, if it keeps batches.

    `left_index` is the index of what it keeps, with the largest timestamp.
    """

    kept: list[LogSegment]
    gone: list[LogSegment]
    position: int
    left_index: tuple[SparseIndex, int]
    start_offset: int
    end_offset: int
    epochs: LeaderEpochs
    producers: ProducerStates

    @property
    def shortened(self) -> LogSegment | None:
        return self.gone[0] if self.position else None

    @property
    def removed(self) -> list[LogSegment]:
        return self.gone[1:] if self.position else self.gone


class ReplicaLog(Log):
    """A log whose batches come from the leader. Below ``committed_offset`` it never changes; readers end there."""

    __slots__ = ("committed_offset",)

    def __init__(
        self,
        directory: str,
        files: Files,
        background: Background,
        settings: LogSettings,
        boot_id: str = "",
        state: LogState | None = None,
        prepare_directory: Callable[[], None] | None = None,
        on_first_append: FirstAppend | None = None,
    ) -> None:
        super().__init__(directory, files, background, settings, boot_id, state, prepare_directory, on_first_append)
        self.committed_offset = self.log_start_offset

    @classmethod
    def open(
        cls, directory: str, files: Files, background: Background, settings: LogSettings, boot_id: str
    ) -> ReplicaLog:
        """Open the log. A damaged end is cut like a torn one: the owner knows which batches were there."""
        log = open_log(directory, files, background, settings, boot_id, truncates_damage=True, log_type=cls)
        assert isinstance(log, cls)
        return log

    # --- appending

    def append_replicated(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Append one checked batch with the offset and the leader epoch that it carries.

        The leader has checked the sequence of the producer. Raises :class:`UnexpectedOffset` if the batch does not
        begin at the log end offset.
        """
        if self._refusal is not None:
            raise copy(self._refusal)
        if header.base_offset != self.log_end_offset:
            raise UnexpectedOffset(
                f"{self.directory}: the log ends at {self.log_end_offset}, the batch begins at {header.base_offset}"
            )
        epoch = header.partition_leader_epoch
        if epoch < max(self.epochs.latest, 0):
            raise InvalidBatch(f"{self.directory}: leader epoch {epoch} is below the latest one, {self.epochs.latest}")
        is_marker = header.producer_id >= 0 and header.attributes & CONTROL_BIT
        marker = require_marker(batch) if is_marker else None
        append_time_ms = header.max_timestamp if header.timestamp_type else NO_TIMESTAMP
        return self._store(batch, header, marker, epoch, append_time_ms, now_ms)

    def commit(self, offset: int) -> None:
        """Everything below ``offset`` is committed: readers may have it, and it is never cut."""
        self.committed_offset = max(self.committed_offset, min(offset, self.log_end_offset))

    # --- reading

    def read(self, offset: int, max_bytes: int, upto: int, *, at_least_one: bool = True) -> LogRead:
        """As :meth:`Log.read`, up to the committed offset at most."""
        return super().read(offset, max_bytes, min(upto, self.committed_offset), at_least_one=at_least_one)

    def read_copy(self, offset: int) -> bytes:
        """A copy of the batch that holds ``offset``, committed or not."""
        return bytes(super().read(offset, 1, self.log_end_offset).view)

    # --- the log start

    def trim(self, offset: int) -> None:
        """Make ``offset`` the log start offset, and remove the segments before it. Waits for the disk."""
        update = LogStartUpdate(self, offset)
        try:
            update.run()
        except BaseException:
            update.fail()
            raise
        update.finish()
        for segment in self.drop_segments():
            segment.delete_files()

    def restart_at(self, offset: int) -> None:
        """Remove all batches: the log begins and ends at ``offset``, above its old end. Waits for the disk."""
        if offset < self.log_end_offset:
            raise ValueError(f"{self.directory} ends at {self.log_end_offset} and can not begin at {offset}")
        if self.log_start_offset < self.log_end_offset:
            self.trim(self.log_end_offset)
        self._begin_at(offset)

    def _begin_at(self, offset: int) -> None:
        """Let an empty log begin and end at ``offset``."""
        checkpoint = replace(self._describe(None, offset, 0, is_clean=False), log_start_offset=offset)
        with disk_errors(f"checkpoint {self.directory}"):
            self._checkpoint_file.make_durable(self._checkpoint_file.take_number(), checkpoint)
        self.log_start_offset = self.log_end_offset = self.synced_offset = self.committed_offset = offset
        self._update_checkpoint_start()

    def reset(self, offset: int) -> None:
        """Remove all batches: the log begins and ends at ``offset``, below its start, because its start is damaged.

        Only before readers have got anything. Waits for the disk.
        """
        if self._segments:
            self.truncate(offset)
            self.committed_offset = self.log_start_offset
        else:
            self._checkpoint_file.log_start_offset = offset
            self._begin_at(offset)

    # --- cutting

    def cut(self, offset: int) -> None:
        """Remove the batch that holds ``offset`` and everything after it, in place. Waits for the disk.

        A crash leaves a log that ends at ``offset`` or later. After :class:`StorageFailed` the log has to be opened
        again; after another :class:`DiskFailure` nothing has changed. Raises ValueError for a committed offset. If
        batches before ``offset`` are damaged, the log is cut before them, or, if they are committed,
        :class:`DamagedLog` is raised.
        """
        if offset < self.committed_offset:
            raise ValueError(f"{self.directory}: offset {offset} is below the committed one, {self.committed_offset}")
        if self._refusal is not None:
            raise copy(self._refusal)
        if self._replacement is not None:
            raise DiskFailure(f"{self.directory}: a replacement of segments is in progress")
        if offset >= self.log_end_offset:
            return
        for dropped in self._undeleted():
            dropped.delete_files()
        with disk_errors(f"cut {self.directory}"):
            cut = self._plan_cut(offset)
            if cut.end_offset < self.committed_offset:
                raise DamagedLog(f"{self.directory}: committed batches from offset {cut.end_offset} on are damaged")
            self._begin_cut(cut)
        try:
            segments = self._cut_files(cut)
        except OSError as error:
            raise self._failed(StorageFailed(f"cut {self.directory}: {error}", error.errno)) from error
        except StorageFailed as error:
            raise self._failed(error) from error
        self._end_cut(cut, segments)

    def _plan_cut(self, offset: int) -> _Cut:
        kept = [segment for segment in self._segments if segment.next_offset <= offset]
        gone = self._segments[len(kept) :]
        first = gone[0]
        position, end_offset, index = self._end_below(first, offset)
        start_offset = self.log_start_offset
        if not position:
            end_offset = kept[-1].next_offset if kept else offset
            start_offset = start_offset if kept else offset
        if position and first.has_aborted:
            self._aborted_of(first)
        epochs = LeaderEpochs(self.epochs.entries)
        epochs.truncate_from_end(end_offset)
        producers = self._producers_below(end_offset, [*kept, first], is_emptied=not kept and not position)
        return _Cut(kept, gone, position, index, start_offset, end_offset, epochs, producers)

    def _end_below(self, segment: LogSegment, offset: int) -> tuple[int, int, tuple[SparseIndex, int]]:
        """(position, next offset, index) of the batches below ``offset``, up to the first damaged one."""
        nothing = SparseIndex(segment.base_offset), NO_MAX_TIMESTAMP
        with suppress(DamagedLog):
            position, end_offset = segment.end_below(offset)
            if not position:
                return position, end_offset, nothing
            if end_offset > segment.base_offset:  # else a batch of another place is at the start
                return position, end_offset, index_below(segment, position)
        position, end_offset, (index, max_timestamp) = 0, segment.base_offset, nothing
        with suppress(DamagedLog):
            for start, end in segment.batches():
                header = parse_header(segment.view(start, end))
                if not end_offset <= header.base_offset <= header.last_offset < offset:
                    break
                if start - index.last_position >= self._settings.index_interval_bytes:
                    index.add(header.base_offset, start, max_timestamp)
                max_timestamp = max(max_timestamp, header.max_timestamp)
                position, end_offset = end, header.last_offset + 1
        return position, end_offset, (index, max_timestamp)

    def _producers_below(self, end_offset: int, segments: list[LogSegment], *, is_emptied: bool) -> ProducerStates:
        try:
            return producers_below(self.producers, end_offset, segments, is_emptied=is_emptied)
        except DamagedLog:  # the search for older batches found damage in a segment that stays
            producers = ProducerStates.decode(self.producers.encode())
            producers.truncate(end_offset)
            producers.restore_transactions({}, producers.undecided)
            return producers

    def _begin_cut(self, cut: _Cut) -> None:
        """Make a checkpoint durable that fits the log before the cut, after it, and in between."""
        last, position = cut.shortened, cut.position
        if last is None and cut.kept:
            last, position = cut.kept[-1], cut.kept[-1].size_bytes
        for segment in cut.gone:
            segment.stop_work()
        self._relist([segment.base_offset for segment in cut.removed])
        try:
            left = [*cut.kept, *([cut.gone[0]] if cut.position else [])]
            checkpoint = replace(
                self._describe(last, cut.end_offset, position, is_clean=False),
                log_start_offset=cut.start_offset,
                epochs=tuple(cut.epochs.entries),
                producers=cut.producers.encode(),
                aborted=encode_entries(self._aborted_for_cut(left, cut)),
                clean_upto=min(self.clean_upto, cut.end_offset),
            )
            self._checkpoint_file.make_durable(self._checkpoint_file.take_number(), checkpoint)
        except BaseException:
            for segment in cut.gone:
                segment.stop_work(is_stopped=False)
            raise
        finally:
            self._relist()

    def _aborted_for_cut(self, left: Sequence[LogSegment], cut: _Cut) -> list[AbortedEntry]:
        """The aborted transactions that no transaction index file has after the cut."""
        return [
            entry
            for segment in left
            if segment.has_aborted and (segment is cut.shortened or not segment.is_aborted_on_file)
            for entry in self._aborted_of(segment)
            if entry.last_offset < cut.end_offset
        ]

    def _cut_files(self, cut: _Cut) -> list[LogSegment]:
        """Remove the files from the last one on, then shorten one. Returns the segments of the log."""
        with self._checkpoint_file.held():
            for segment in reversed(cut.removed):
                segment.close()
                segment.unlink_files()
            if cut.removed:
                self.gate.sync(f"sync {self.directory}", self._files.fsync_dir, self.directory)
            segments = list(cut.kept)
            if cut.shortened is not None:
                segments.append(self._shorten(cut.shortened, cut))
        return segments

    def _shorten(self, segment: LogSegment, cut: _Cut) -> LogSegment:
        position, end_offset = cut.position, cut.end_offset
        index, max_timestamp = cut.left_index
        aborted = [entry for entry in segment.aborted or () if entry.last_offset < end_offset]
        first_timestamp, created_ms = segment.first_timestamp, segment.created_ms
        segment.close()
        fd = self._files.open_write(segment.path)
        try:
            self._files.truncate(fd, position)
            # The sync makes the truncation durable: the next batch must not share a page with bytes that come back.
            self.gate.sync(f"sync {segment.path}", self._files.fdatasync, fd)
        finally:
            self._files.close(fd)
        self._files.replace_file(segment.index_path, index.encode(), sync=False)
        index.written_count = len(index)
        with suppress(FileNotFoundError):  # written when the segment was sealed
            self._files.unlink(segment.txn_index_path)
        shortened = LogSegment.existing(
            self.directory,
            segment.base_offset,
            self._files,
            self._background,
            limit_bytes=self._settings.segment_bytes,
            index_interval_bytes=self._settings.index_interval_bytes,
            next_offset=end_offset,
            size_bytes=position,
            is_sealed=False,
        )
        shortened.gate = self.gate
        shortened.adopt(index, max_timestamp)
        shortened.set_timestamps(max_timestamp, first_timestamp, created_ms)
        shortened.adopt_aborted(aborted)
        return shortened

    def _end_cut(self, cut: _Cut, segments: list[LogSegment]) -> None:
        self._generation += 1
        self._set_segments(segments)
        self._unsynced = [segment for segment in self._unsynced if segment in segments]
        self._set_quarantined(tuple(one for one in self.quarantined if one.start_offset < cut.end_offset))
        self.log_start_offset, self.log_end_offset = cut.start_offset, cut.end_offset
        self._update_checkpoint_start()
        self.synced_offset = min(self.synced_offset, cut.end_offset)
        self.committed_offset = min(self.committed_offset, cut.end_offset)
        self.clean_upto = min(self.clean_upto, cut.end_offset)
        self.epochs, self.producers = cut.epochs, cut.producers
        self._set_roll_limits()
        self._store_quarantine()

    def _failed(self, error: StorageFailed) -> StorageFailed:
        self.poison(error)
        return error
