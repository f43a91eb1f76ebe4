"""Opening a log that exists: from its checkpoint after a clean stop, by walking its batches after any other.

After a kill the page cache is whole, so the walk starts at the newest checkpoint. After a power cut (another boot id)
only sealed segments are known to be on disk, so everything behind them is walked with its CRCs. A walk ends in one of
three ways: zeros to the end of the file are a clean end; a bad batch with nothing but zeros behind it is a torn tail
and is cut; anything else is damage, and the log is opened for reading up to it, with nothing cut or rewritten.

Cutting a file in place is fine here and only here: nobody holds a slice of it yet.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from storage.batch import BatchHeader, is_intact, parse_header
from storage.checkpoint import Checkpoint, CheckpointFile
from storage.epochs import LeaderEpochs
from storage.errors import disk_errors
from storage.files import Files
from storage.format import HEADER_BYTES, LENGTH_OVERHEAD, MIN_BATCH_LENGTH, NO_TIMESTAMP, STEP
from storage.index import NO_MAX_TIMESTAMP, SparseIndex, decode_sealed
from storage.log import Damage, Log, LogState
from storage.producers import ProducerStates
from storage.segment import LogSegment, index_name, segment_name
from storage.settings import Background, LogSettings
from storage.windows import EMPTY

_NAME_DIGITS: Final = 20
_CHUNK_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(_CHUNK_BYTES)


def open_log(directory: str, files: Files, background: Background, settings: LogSettings, boot_id: str) -> Log:
    """The log in ``directory``, which exists."""
    with disk_errors(f"open {directory}"):
        opening = _Opening(directory, files, background, settings, boot_id)
        log = Log(directory, files, background, settings, boot_id, opening.run())
        if opening.is_walked:
            log.settle_walked(opening.unsealed, opening.checkpoint)
    return log


@dataclass(slots=True)
class _Walked:
    """Where the walk of one segment ended; ``reason`` says why it is damage, if it is."""

    index: SparseIndex
    position: int
    next_offset: int
    max_timestamp: int
    first_timestamp: int
    size_bytes: int
    is_torn: bool
    reason: str | None


class _Opening:
    """One opening, from listing the directory to the state the log starts from."""

    def __init__(
        self, directory: str, files: Files, background: Background, settings: LogSettings, boot_id: str
    ) -> None:
        self.directory = directory
        self.files = files
        self.background = background
        self.settings = settings
        self.boot_id = boot_id
        self.checkpoint = CheckpointFile(directory, files).read()
        self.bases = sorted(_base_offsets(files.listdir(directory)))
        self.sizes = {base: files.size_of(self.path(base)) for base in self.bases}
        self.epochs = LeaderEpochs(self.checkpoint.epochs if self.checkpoint else ())
        self.producers = ProducerStates.decode(self.checkpoint.producers if self.checkpoint else b"")
        # After a kill, in contrast to a power cut, everything that was written can be read.
        self.is_same_boot = self.checkpoint is not None and boot_id != "" and self.checkpoint.boot_id == boot_id
        # Batches from this offset on are not yet in epochs and producers.
        self.replay_from = self.checkpoint.offset if self.checkpoint else 0
        self.segments: list[LogSegment] = []
        # Walked, and to be sealed once it is certain that none of them takes appends.
        self.unsealed: list[LogSegment] = []
        self.damage: Damage | None = None
        self.is_walked = False

    def path(self, base_offset: int) -> str:
        return os.path.join(self.directory, segment_name(base_offset))

    def run(self) -> LogState:
        checkpoint = self.checkpoint
        if (
            checkpoint is not None
            and checkpoint.is_clean
            and self.bases[-1:] == [checkpoint.segment_base]
            and checkpoint.position == self.sizes[checkpoint.segment_base]
        ):
            self.trust(len(self.bases))
            self.segments[-1].know_timestamps(
                checkpoint.max_timestamp, checkpoint.first_timestamp, checkpoint.created_ms
            )
            return self.state(checkpoint.offset)
        self.remove_empty_end()
        if not self.bases:
            return self.without_segments()
        log_end_offset = self.walk()
        self.is_walked = True
        return self.state(log_end_offset)

    def state(self, log_end_offset: int) -> LogState:
        log_start_offset = self.checkpoint.log_start_offset if self.checkpoint else 0
        if self.bases:
            log_start_offset = max(log_start_offset, self.bases[0])
        if self.checkpoint is not None and self.checkpoint.offset > log_end_offset:
            self.epochs.truncate_from_end(log_end_offset)
            self.producers.truncate(log_end_offset)
        log_start_offset = min(log_start_offset, log_end_offset)
        self.epochs.truncate_from_start(log_start_offset)
        return LogState(
            self.segments,
            log_start_offset,
            log_end_offset,
            self.epochs,
            self.producers,
            self.damage,
        )

    def without_segments(self) -> LogState:
        if self.checkpoint is None:
            return self.state(0)
        start = self.checkpoint.log_start_offset
        if self.is_same_boot and self.checkpoint.offset > start:
            self.damage = Damage(self.directory, 0, start, "the segments are missing")
        return self.state(start)

    def remove_empty_end(self) -> None:
        """A process killed between making a file and writing its first batch leaves a file of zeros."""
        while len(self.bases) > 1 or (self.bases and self.bases[0] == 0):
            base = self.bases[-1]
            if not self.is_empty(base) or self.checkpoint_is_inside(base):
                return
            self.remove(base)

    def checkpoint_is_inside(self, base_offset: int) -> bool:
        """Whether batches were in this file for certain."""
        checkpoint = self.checkpoint
        if checkpoint is None or not self.is_same_boot:
            return False
        return checkpoint.segment_base == base_offset and checkpoint.position > 0

    def is_empty(self, base_offset: int) -> bool:
        size = self.sizes[base_offset]
        if size == 0:
            return True
        view = self.map(base_offset)
        return is_zero(view, 0, min(size, HEADER_BYTES)) and is_zero(view, 0, size)

    def remove(self, base_offset: int) -> None:
        self.files.unlink(self.path(base_offset))
        with suppress(OSError):
            self.files.unlink(os.path.join(self.directory, index_name(base_offset)))
        self.bases.remove(base_offset)

    def map(self, base_offset: int) -> memoryview:
        size = self.sizes[base_offset]
        if size == 0:
            return EMPTY
        fd = self.files.open_read(self.path(base_offset))
        try:
            return self.files.map_readonly(fd, 0, size)
        finally:
            self.files.close(fd)

    # --- segments that need no look

    def trust(self, count: int) -> None:
        """Take the first ``count`` segments as they are."""
        for at in range(count):
            base = self.bases[at]
            is_last = at + 1 == len(self.bases)
            next_offset = self.replay_from if is_last else self.bases[at + 1]
            self.segments.append(self.segment(base, next_offset, self.sizes[base], is_sealed=not is_last))

    def segment(self, base_offset: int, next_offset: int, size_bytes: int, *, is_sealed: bool) -> LogSegment:
        return LogSegment.existing(
            self.directory,
            base_offset,
            self.files,
            self.background,
            limit_bytes=self.settings.segment_bytes,
            index_interval_bytes=self.settings.index_interval_bytes,
            next_offset=next_offset,
            size_bytes=size_bytes,
            is_sealed=is_sealed,
        )

    def sealed_count(self) -> int:
        """How many segments from the first one on carry a seal that fits."""
        for at, base in enumerate(self.bases[:-1]):
            data = self.files.read_file(os.path.join(self.directory, index_name(base)))
            if data is None or decode_sealed(base, data, self.sizes[base]) is None:
                return at
        return max(len(self.bases) - 1, 0)

    # --- the walk

    def walk(self) -> int:
        """Walk what cannot be trusted; the offset at which the log ends."""
        first, start = self.walk_start()
        self.trust(first)
        next_offset = self.bases[first]
        for at in range(first, len(self.bases)):
            base = self.bases[at]
            if base != next_offset and at > first:
                self.damage = Damage(self.path(base), 0, next_offset, f"offsets {next_offset}..{base - 1} are missing")
                return next_offset
            walked = self.walk_segment(base, start if at == first else None)
            next_offset = walked.next_offset
            if walked.reason is None and walked.is_torn and at + 1 < len(self.bases):
                walked.reason = "torn, but not the last segment"
            if walked.reason is None and start is not None and at == first and next_offset < start.offset:
                walked.reason = f"ends before offset {start.offset}, which was there"
            if walked.reason is not None:
                self.damage = Damage(self.path(base), walked.position, next_offset, walked.reason)
                self.keep_damaged(base, walked)
                return next_offset
            self.keep(base, walked, is_last=at + 1 == len(self.bases))
        return next_offset

    def walk_start(self) -> tuple[int, Checkpoint | None]:
        """The number of the first segment to walk, and the checkpoint to start from inside it, if it may be used."""
        checkpoint = self.checkpoint
        if checkpoint is None:
            return 0, None
        # Always from the checkpoint's segment at the latest: what follows it has to be replayed.
        at = max(bisect_right(self.bases, checkpoint.segment_base) - 1, 0)
        if self.is_same_boot and self.bases[at] == checkpoint.segment_base:
            if checkpoint.walk_from >= checkpoint.segment_base:
                return at, checkpoint
            return min(at, max(bisect_right(self.bases, checkpoint.walk_from) - 1, 0)), None
        return min(at, self.sealed_count()), None

    def walk_segment(self, base_offset: int, start: Checkpoint | None) -> _Walked:
        view = self.map(base_offset)
        size = len(view)
        index = SparseIndex(base_offset)
        position, offset, max_timestamp = 0, base_offset, NO_MAX_TIMESTAMP
        if start is not None:
            index = self.known_index(base_offset, view, start.position)
            if len(index):
                # Between the last entry and the checkpoint lies a page or two: walked as well, to know it is there.
                position, offset = index.boundary_before(start.position)
                max_timestamp = start.max_timestamp
        interval = self.settings.index_interval_bytes
        indexed = index.last_position
        while True:
            end = batch_end(view, position, offset)
            if end is None:
                break
            header = parse_header(view, position)
            if position - indexed >= interval:
                index.add(offset, position, max_timestamp)
                indexed = position
            max_timestamp = max(max_timestamp, header.max_timestamp)
            if offset >= self.replay_from:
                self.replay(header)
            offset = header.last_offset + 1
            position = end
        first_timestamp = max(parse_header(view).max_timestamp, NO_TIMESTAMP) if position else NO_MAX_TIMESTAMP
        is_torn, reason = what_follows(view, position)
        return _Walked(index, position, offset, max_timestamp, first_timestamp, size, is_torn, reason)

    def known_index(self, base_offset: int, view: memoryview, position: int) -> SparseIndex:
        """The entries on file below ``position``, if the last of them still names a batch; else none."""
        data = self.files.read_file(os.path.join(self.directory, index_name(base_offset)))
        index = SparseIndex.decode(base_offset, data or b"")
        index.cut(position)
        at, offset = index.boundary_before(position)
        return index if batch_end(view, at, offset) is not None else SparseIndex(base_offset)

    def replay(self, header: BatchHeader) -> None:
        if header.partition_leader_epoch > self.epochs.latest:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            append_time_ms = header.max_timestamp if header.timestamp_type else NO_TIMESTAMP
            self.producers.record(header, header.base_offset, append_time_ms, header.max_timestamp)

    # --- what the walk found, as segments

    def keep(self, base_offset: int, walked: _Walked, *, is_last: bool) -> None:
        if walked.position == 0 and is_last and (self.segments or base_offset == 0):
            self.remove(base_offset)
            if self.segments:
                self.reopen_last()
            return
        if walked.position < walked.size_bytes:
            fd = self.files.open_write(self.path(base_offset))
            try:
                self.files.truncate(fd, walked.position)
            finally:
                self.files.close(fd)
        segment = self.segment(base_offset, walked.next_offset, walked.position, is_sealed=not is_last)
        self.adopt(segment, walked)
        self.files.replace_file(segment.index_path, walked.index.encode(), sync=False)
        walked.index.written_count = len(walked.index)
        self.segments.append(segment)
        if not is_last:
            self.unsealed.append(segment)

    def keep_damaged(self, base_offset: int, walked: _Walked) -> None:
        # Nothing on disk is changed: the file goes on behind the end we serve, so it must not be cut or extended.
        segment = self.segment(base_offset, walked.next_offset, walked.position, is_sealed=True)
        # The seal on file, if any, speaks of the whole file; this segment never gets one of its own.
        segment.is_seal_pending = True
        self.adopt(segment, walked)
        self.segments.append(segment)

    def adopt(self, segment: LogSegment, walked: _Walked) -> None:
        created_ms = 0
        if self.checkpoint is not None and self.checkpoint.segment_base == segment.base_offset:
            created_ms = self.checkpoint.created_ms
        segment.know_timestamps(walked.max_timestamp, walked.first_timestamp, created_ms)
        segment.adopt(walked.index, walked.max_timestamp)

    def reopen_last(self) -> None:
        """The segment behind was empty after all, so this one takes the next append."""
        last = self.segments[-1]
        self.segments[-1] = self.segment(last.base_offset, last.next_offset, last.size_bytes, is_sealed=False)
        if last in self.unsealed:
            self.unsealed.remove(last)
            self.segments[-1].adopt(last.index, last.max_timestamp)


def _base_offsets(names: list[str]) -> list[int]:
    return [
        int(name[:_NAME_DIGITS])
        for name in names
        if len(name) == _NAME_DIGITS + 4 and name.endswith(".log") and name[:_NAME_DIGITS].isdecimal()
    ]


def batch_end(view: memoryview, position: int, offset: int) -> int | None:
    """The end of the batch at ``position`` if it is intact and begins at ``offset``."""
    if position + HEADER_BYTES > len(view):
        return None
    base_offset, length, _ = STEP.unpack_from(view, position)
    if base_offset != offset or length < MIN_BATCH_LENGTH:
        return None
    end: int = position + length + LENGTH_OVERHEAD
    if end > len(view) or not is_intact(view[position:end]):
        return None
    return end


def what_follows(view: memoryview, position: int) -> tuple[bool, str | None]:
    """What lies behind the last good batch: (is it a torn batch, or why it is damage)."""
    size = len(view)
    if is_zero(view, position, min(size, position + HEADER_BYTES)):
        if is_zero(view, position, size):
            return False, None
        return False, "bytes after empty space"
    bad_end = position + HEADER_BYTES
    if bad_end <= size:
        length = STEP.unpack_from(view, position)[1]
        # A write torn inside the length leaves a smaller length; then everything behind it is zero as well.
        if MIN_BATCH_LENGTH <= length <= size - position - LENGTH_OVERHEAD:
            bad_end = position + length + LENGTH_OVERHEAD
    if is_zero(view, bad_end, size):
        return True, None
    return False, "a batch that does not fit its CRC, with bytes behind it"


def is_zero(view: memoryview, start: int, end: int) -> bool:
    while start < end:
        size = min(_CHUNK_BYTES, end - start)
        piece = bytes(view[start : start + size])
        if piece != (_ZEROS if size == _CHUNK_BYTES else _ZEROS[:size]):
            return False
        start += size
    return True
