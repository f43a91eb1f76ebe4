"""Opening a log that exists: from its checkpoint after a clean stop, by walking its batches after any other.

After a kill the page cache is whole, so the walk starts at the newest checkpoint. After a power cut (another boot id)
only sealed segments are known to be on disk, so everything behind them is walked with its CRCs. What
:mod:`storage.walk` finds in each file is put together here: zeros behind the end and a torn tail are cut; damage with
good batches behind it is set apart as a range that cannot be read, and the log goes on; damage at the end leaves the
log open for reading up to it, with nothing cut or rewritten, because nobody knows which offsets were given out.

Cutting a file in place is fine here and only here: nobody holds a slice of it yet.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from storage.checkpoint import Checkpoint, CheckpointFile
from storage.errors import DamagedLog, disk_errors
from storage.files import Files
from storage.format import HEADER_BYTES
from storage.index import NO_MAX_TIMESTAMP, SparseIndex, decode_sealed
from storage.log import Damage, Log, LogState
from storage.quarantine import Quarantine, read_quarantine, write_quarantine
from storage.replacement import finish_replacement
from storage.replay import Replay, share_aborted
from storage.segment import LogSegment, index_name, segment_name
from storage.segment_reading import base_offsets, txn_index_name
from storage.settings import Background, LogSettings
from storage.syncing import SYNC_FAILED_NAME
from storage.truncation import producers_below
from storage.txn_index import encode_entries
from storage.walk import Ending, SegmentWalk, Walked, is_zero
from storage.windows import EMPTY

_FETCH_BYTES: Final = 1024 * 1024
_NEVER: Final = 2**63
# Segments whose seals may be in work at the same time, where no checkpoint says which were.
_SEALS_IN_WORK_MAX: Final = 8

# See Log: called at the first append of a run, returns what its first sync has to wait for.
FirstAppend = Callable[[], Callable[[], None]]


def open_log(
    directory: str,
    files: Files,
    background: Background,
    settings: LogSettings,
    boot_id: str,
    *,
    on_first_append: FirstAppend | None = None,
    cuts_damage: bool = False,
) -> Log:
    """The log in ``directory``, which exists; with ``cuts_damage`` a damaged end goes as a torn one does."""
    with disk_errors(f"open {directory}"):
        finish_replacement(directory, files)
        opening = _Opening(directory, files, background, settings, boot_id, cuts_damage)
        state = opening.run()
        log = Log(directory, files, background, settings, boot_id, state, on_first_append=on_first_append)
        if opening.is_walked:
            log.settle_walked(opening.unsealed, opening.checkpoint)
    return log


class _Opening:
    """One opening, from listing the directory to the state the log starts from."""

    def __init__(
        self, directory: str, files: Files, background: Background, settings: LogSettings, boot_id: str, cuts: bool
    ) -> None:
        self.directory = directory
        self.files = files
        self.background = background
        self.settings = settings
        self.checkpoint = CheckpointFile(directory, files).read()
        names = files.listdir(directory)
        self.names = frozenset(names)
        self.bases = sorted(base_offsets(names))
        known = read_quarantine(directory, files)
        # None: the list of ranges is lost, and only a look at everything brings it back.
        self.is_quarantine_lost = known is None
        self.known = known or ()
        # Without a checkpoint nobody knows where compaction was, so every gap may be its work.
        self.clean_upto = self.checkpoint.clean_upto if self.checkpoint else _NEVER
        # What the checkpoint says of epochs, producers and transactions, and what follows from batches behind it.
        self.replay = Replay(self.checkpoint)
        # A sync failed: the cache showed what the disk does not have, so only what the disk has counts.
        self.is_sync_failure_noted = SYNC_FAILED_NAME in names
        # After a kill, in contrast to a power cut, everything that was written can be read.
        self.is_same_boot = (
            self.checkpoint is not None
            and boot_id != ""
            and self.checkpoint.boot_id == boot_id
            and not self.is_sync_failure_noted
        )
        self.segments: list[LogSegment] = []
        # Walked, and to be sealed once it is certain that none of them takes appends.
        self.unsealed: list[LogSegment] = []
        self.quarantined: list[Quarantine] = []
        self.torn_bytes = 0
        self.damage: Damage | None = None
        self.is_walked = False
        self.is_checkpoint_synced = False
        self.has_removed = False
        self.synced_upto = 0
        self.cuts_damage = cuts

    def path(self, base_offset: int) -> str:
        return os.path.join(self.directory, segment_name(base_offset))

    def run(self) -> LogState:
        self.remove_below_start()
        self.sizes = {base: self.files.size_of(self.path(base)) for base in self.bases}
        checkpoint = self.checkpoint
        if (
            checkpoint is not None
            and self.is_as_left(checkpoint)
            and not self.is_quarantine_lost
            and not self.is_sync_failure_noted
        ):
            self.trust(len(self.bases))
            self.quarantined.extend(self.known)
            if self.segments:
                self.segments[-1].know_timestamps(
                    checkpoint.max_timestamp, checkpoint.first_timestamp, checkpoint.created_ms
                )
            return self.state(checkpoint.offset)
        self.is_walked = True
        self.remove_empty_end()
        if not self.bases:
            return self.without_segments()
        return self.state(self.walk())

    def is_as_left(self, checkpoint: Checkpoint) -> bool:
        """Whether a clean stop left exactly these files."""
        if not checkpoint.is_clean:
            return False
        if not self.bases:
            return checkpoint.log_start_offset == checkpoint.offset
        base = self.bases[-1]
        return base == checkpoint.segment_base and checkpoint.position == self.sizes[base]

    def state(self, log_end_offset: int) -> LogState:
        log_start_offset = self.checkpoint.log_start_offset if self.checkpoint else 0
        if self.bases and (self.checkpoint is None or self.bases[0] > self.clean_upto):
            # Else compaction removed what came before.
            log_start_offset = max(log_start_offset, self.bases[0])
        for segment in self.segments:
            self.adopt_holes(segment)
        if self.checkpoint is not None and self.checkpoint.offset > log_end_offset:
            self.replay.epochs.truncate_from_end(log_end_offset)
            self.forget_producers_behind(log_end_offset)
        share_aborted(self.segments, self.replay, self.checkpoint, self.names, self.files)
        log_start_offset = min(log_start_offset, log_end_offset)
        self.replay.epochs.truncate_from_start(log_start_offset)
        if (
            self.checkpoint is not None
            and max(self.checkpoint.offset, self.checkpoint.clean_upto) > log_end_offset
            and self.damage is None
        ):
            self.replace_checkpoint(self.checkpoint, log_start_offset, log_end_offset)
        return LogState(
            self.segments,
            log_start_offset,
            log_end_offset,
            self.replay.epochs,
            self.replay.producers,
            self.damage,
            clean_upto=min(self.clean_upto, log_end_offset),
            quarantined=tuple(one for one in self.quarantined if one.end_offset > log_start_offset),
            torn_bytes=self.torn_bytes,
            is_sync_failure_noted=self.is_sync_failure_noted,
        )

    def forget_producers_behind(self, end_offset: int) -> None:
        """Where all that the checkpoint knows of a producer is gone, its earlier batches are looked for."""
        try:
            self.replay.producers = producers_below(self.replay.producers, end_offset, self.segments)
        except DamagedLog:  # in a sealed segment that nobody has looked at for long
            self.replay.producers.truncate(end_offset)
            self.replay.producers.restore_open({}, self.replay.producers.undecided)

    def adopt_holes(self, segment: LogSegment) -> None:
        segment.holes = tuple(
            (one.position, one.end_position) for one in self.quarantined if one.segment_base == segment.base_offset
        )

    def replace_checkpoint(self, stale: Checkpoint, log_start_offset: int, log_end_offset: int) -> None:
        """It tells of batches that are gone, whose offsets others will get: it must not be found again, ever."""
        last = self.segments[-1] if self.segments else None
        checkpoint = replace(
            stale,
            is_clean=False,
            log_start_offset=log_start_offset,
            offset=log_end_offset,
            segment_base=last.base_offset if last is not None else log_end_offset,
            position=last.size_bytes if last is not None else 0,
            walk_from=min(stale.walk_from, last.base_offset if last is not None else log_end_offset),
            max_timestamp=last.max_timestamp if last is not None else NO_MAX_TIMESTAMP,
            first_timestamp=last.first_timestamp if last is not None else NO_MAX_TIMESTAMP,
            epochs=tuple(self.replay.epochs.entries),
            producers=self.replay.producers.encode(),
            clean_upto=min(self.clean_upto, log_end_offset),
            aborted=encode_entries(one for segment in self.segments for one in segment.aborted or ()),
        )
        file = CheckpointFile(self.directory, self.files)
        file.write(file.take_number(), checkpoint, sync=True)

    # --- files that say nothing

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

    def without_segments(self) -> LogState:
        """Nothing is there: the log was emptied, never got its first batch on disk, or lost its files."""
        checkpoint = self.checkpoint
        if checkpoint is None:
            self.clean_upto = 0
            return self.state(0)
        start = checkpoint.log_start_offset
        if checkpoint.offset > start and (self.is_same_boot or checkpoint.is_clean) and not self.cuts_damage:
            self.damage = Damage(self.directory, 0, start, "the segments are missing")
        return self.state(start)

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
        return checkpoint.segment_base == base_offset and checkpoint.position > 0

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

    # --- segments that need no look

    def trust(self, count: int) -> None:
        """Take the first ``count`` segments as they are."""
        for at in range(count):
            base = self.bases[at]
            is_last = at + 1 == len(self.bases)
            next_offset = self.replay.start_offset if is_last else self.bases[at + 1]
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

    def is_sealed(self, base_offset: int) -> bool:
        """Whether the file carries a seal that fits: it is whole, and was synced."""
        data = self.files.read_file(os.path.join(self.directory, index_name(base_offset)))
        return data is not None and decode_sealed(base_offset, data, self.sizes[base_offset]) is not None

    def sealed_count(self) -> int:
        """How many segments from the first one on carry a seal that fits; the last one does not count."""
        return next((at for at, base in enumerate(self.bases[:-1]) if not self.is_sealed(base)), len(self.bases) - 1)

    def find_synced(self, first: int) -> int:
        """Everything below the offset that this returns was there, or was synced, for certain."""
        checkpoint = self.checkpoint
        synced = self.bases[first]
        if checkpoint is not None:
            # A seal proves its own segment only: seals are made in threads, and one may overtake another.
            if self.is_same_boot or checkpoint.is_clean:
                return max(synced, checkpoint.offset)
            return max(synced, min(checkpoint.walk_from, checkpoint.segment_base))
        for at in range(len(self.bases) - 1, first + _SEALS_IN_WORK_MAX, -1):
            if self.is_sealed(self.bases[at]):
                return max(synced, self.bases[at - _SEALS_IN_WORK_MAX])
        return synced

    # --- the walk

    def walk(self) -> int:
        """Walk what cannot be trusted; the offset at which the log ends."""
        first, start = self.walk_start()
        self.trust(first)
        self.quarantined.extend(one for one in self.known if one.segment_base < self.bases[first])
        self.synced_upto = self.find_synced(first)
        found: list[Walked] = []
        for at in range(first, len(self.bases)):
            found.append(self.walk_segment(at, start if at == first else None))
            if self.is_tail_lost(at, found[-1]):
                break
        self.replay.finish()
        return self.put_together(first, found)

    def is_tail_lost(self, at: int, walked: Walked) -> bool:
        """Whether a power cut took the end of this segment: then nothing behind it was ever synced, either."""
        if self.is_same_boot or at + 1 == len(self.bases) or walked.next_offset < self.synced_upto:
            return False
        if walked.ending is Ending.CLEAN:
            next_base = self.bases[at + 1]
            if next_base <= walked.next_offset:
                return False
            if self.checkpoint is None:
                return not self.is_sealed(self.bases[at])  # else compaction may have left the gap
            # Here a seal does not help: a clean stop may have made it, and the log went on in this file after that.
            return next_base > self.clean_upto
        # With no offset missing, what is torn is a write that failed: the log went on in the next file.
        return walked.ending is Ending.TORN and self.bases[at + 1] != walked.next_offset

    def walk_start(self) -> tuple[int, Checkpoint | None]:
        """The number of the first segment to walk, and the checkpoint to start from inside it, if it may be used."""
        checkpoint = self.checkpoint
        if checkpoint is None or self.is_quarantine_lost:
            return 0, None
        # Always from the checkpoint's segment at the latest: what follows it has to be replayed.
        at = max(bisect_right(self.bases, checkpoint.segment_base) - 1, 0)
        if self.is_same_boot and self.bases[at] == checkpoint.segment_base:
            if checkpoint.walk_from >= checkpoint.segment_base:
                return at, checkpoint
            return min(at, max(bisect_right(self.bases, checkpoint.walk_from) - 1, 0)), None
        # Not behind a segment whose seal was in work: an older seal may be on file, of which it is not whole any more.
        in_work = max(bisect_right(self.bases, checkpoint.walk_from) - 1, 0)
        return min(at, in_work, self.sealed_count()), None

    def walk_segment(self, at: int, start: Checkpoint | None) -> Walked:
        base = self.bases[at]
        size = self.sizes[base]
        if not size:
            return self.walk_view(base, at, EMPTY, None, None)
        fd = self.files.open_read(self.path(base))
        try:
            # The process before may have been killed after a failed sync: what was not written is read from the disk.
            self.files.forget(fd, start.position if start is not None else 0, size)
            view = self.files.map_readonly(fd, 0, size)
            scratch = memoryview(bytearray(min(size, _FETCH_BYTES)))

            def fetch(position: int, end: int) -> None:
                while position < end:
                    read = self.files.preadv(fd, [scratch[: end - position]], position)
                    if read <= 0:
                        raise OSError(f"{self.path(base)} ends at {position} instead of {size}")
                    position += read

            return self.walk_view(base, at, view, start, fetch)
        finally:
            self.files.close(fd)

    def walk_view(
        self,
        base_offset: int,
        at: int,
        view: memoryview,
        start: Checkpoint | None,
        fetch: Callable[[int, int], None] | None,
    ) -> Walked:
        walk = SegmentWalk(
            view,
            base_offset,
            index_interval_bytes=self.settings.index_interval_bytes,
            clean_upto=self.clean_upto,
            limit_offset=self.bases[at + 1] if at + 1 < len(self.bases) else None,
            is_same_boot=self.is_same_boot,
            synced_upto=_NEVER if not self.is_same_boot and self.is_sealed(base_offset) else self.synced_upto,
            known=self.known,
            fetch=fetch,
        )
        if start is not None:
            index = self.known_index(base_offset, start.position)
            position, offset = index.boundary_before(start.position)
            # Between the last entry and the checkpoint lies a page or two: walked as well, to know it is there.
            if len(index) and walk.is_good_at(position, offset):
                walked = walk.run(
                    self.replay,
                    replay_from=self.replay.start_offset,
                    index=index,
                    position=position,
                    offset=offset,
                    max_timestamp=start.max_timestamp,
                )
                walked.first_timestamp = start.first_timestamp
                before = (one for one in self.known if one.segment_base == base_offset and one.position < position)
                walked.quarantined[:0] = before
                return walked
        return walk.run(self.replay, replay_from=self.replay.start_offset)

    def known_index(self, base_offset: int, position: int) -> SparseIndex:
        """The entries on file below ``position``."""
        data = self.files.read_file(os.path.join(self.directory, index_name(base_offset)))
        index = SparseIndex.decode(base_offset, data or b"")
        index.cut(position)
        return index

    # --- what the walk found, as one log

    def put_together(self, first: int, found: list[Walked]) -> int:
        """Judge each segment by what follows it; the offset at which the log ends. Only then is anything changed."""
        bases = self.bases[first:]
        count = len(found)
        while count and not found[count - 1].position:
            count -= 1
        if not count and not first:
            count = 1  # not one good batch in the whole log: the first file still says where it goes on
        end_offset = found[count - 1].next_offset if count else bases[0]
        self.damage = None if self.cuts_damage else self.damage_behind(bases, found, count, end_offset)
        for at in range(count - 1):
            self.judge_end(bases, found, at)
        self.note_quarantine(found[:count])
        if self.checkpoint is None:
            self.clean_upto = max((walked.gap_upto for walked in found[:count]), default=0)
        if self.damage is None:
            self.torn_bytes = sum(walked.torn_bytes for walked in found[max(count - 1, 0) :])
            self.torn_bytes += sum(self.sizes[base] for base in bases[len(found) :])
            for base in bases[count:]:
                self.remove(base)
            self.sync_removals()
        for at in range(count):
            self.keep(bases[at], found[at], is_last=at + 1 == count)
        if not count and self.damage is None:
            self.reopen_last()
        return end_offset

    def damage_behind(self, bases: list[int], found: list[Walked], count: int, end_offset: int) -> Damage | None:
        """Why the log cannot go on behind its last good batch, if it cannot."""
        for base, walked in list(zip(bases, found, strict=False))[max(count - 1, 0) :]:
            if walked.ending is Ending.DAMAGED:
                return Damage(self.path(base), walked.position, end_offset, walked.reason)
        checkpoint = self.checkpoint
        reason = None
        if checkpoint is not None and (self.is_same_boot or checkpoint.is_clean) and end_offset < checkpoint.offset:
            reason = f"the log ends before offset {checkpoint.offset}, which was there"
        elif self.is_same_boot and bases[count:]:
            # After a kill no more than one file may be without a batch, and it begins where the others end.
            is_end_clean = not count or found[count - 1].ending is Ending.CLEAN
            if not is_end_clean or bases[count:] != [end_offset]:
                reason = "files without a good batch follow"
        if reason is None:
            return None
        at = max(count - 1, 0)
        return Damage(self.path(bases[at]), found[at].position, end_offset, reason)

    def judge_end(self, bases: list[int], found: list[Walked], at: int) -> None:
        """Another segment with good batches follows: what is missing before it is a range like any other."""
        walked, next_base = found[at], bases[at + 1]
        if walked.ending is not Ending.CLEAN and walked.next_offset == next_base:
            return  # nothing is missing: a write failed here, and the log went on in the next file; cut by keep
        if walked.ending is Ending.CLEAN:
            if walked.next_offset == next_base or next_base <= self.clean_upto:
                if walked.next_offset < next_base:
                    walked.gap_upto = next_base
                walked.next_offset = next_base
                return
            size_bytes, reason = 0, "records are missing"
        else:
            size_bytes = walked.size_bytes - walked.position
            reason = walked.reason or "a torn batch"
        range_ = Quarantine(bases[at], walked.position, size_bytes, walked.next_offset, next_base, reason)
        if range_.end_offset > range_.start_offset or size_bytes:
            walked.quarantined.append(self.as_known(range_))
        walked.position += size_bytes
        walked.next_offset = next_base

    def as_known(self, new: Quarantine) -> Quarantine:
        for one in self.known:
            if (one.segment_base, one.position, one.start_offset) == (new.segment_base, new.position, new.start_offset):
                return one
        return new

    def note_quarantine(self, found: list[Walked]) -> None:
        """Durable before any file is touched: a range is told the same way after every start."""
        for walked in found:
            self.quarantined.extend(walked.quarantined)
        if self.is_quarantine_lost or set(self.quarantined) != set(self.known):
            write_quarantine(self.directory, self.files, self.quarantined)

    def keep(self, base_offset: int, walked: Walked, *, is_last: bool) -> None:
        if is_last and self.damage is not None:
            self.keep_damaged(base_offset, walked)
            return
        if not walked.position and is_last and self.is_base_known(base_offset):
            self.remove(base_offset)
            self.sync_removals()
            return
        if walked.position < walked.size_bytes:
            fd = self.files.open_write(self.path(base_offset))
            try:
                self.files.truncate(fd, walked.position)
            finally:
                self.files.close(fd)
        segment = self.segment(base_offset, walked.next_offset, walked.position, is_sealed=not is_last)
        segment.synced_bytes = 0
        # What was cut may come back in parts of a page that is written anew, so the log goes on in another file.
        segment.is_end_bad = walked.torn_bytes > 0
        self.adopt(segment, walked)
        self.files.replace_file(segment.index_path, walked.index.encode(), sync=False)
        walked.index.written_count = len(walked.index)
        self.segments.append(segment)
        if not is_last:
            segment.is_seal_pending = True
            self.unsealed.append(segment)

    def keep_damaged(self, base_offset: int, walked: Walked) -> None:
        # Nothing on disk is changed: the file goes on behind the end we serve, so it must not be cut or extended.
        segment = self.segment(base_offset, walked.next_offset, walked.position, is_sealed=True)
        # The seal on file, if any, speaks of the whole file; this segment never gets one of its own.
        segment.is_seal_pending = True
        self.adopt(segment, walked)
        self.segments.append(segment)

    def adopt(self, segment: LogSegment, walked: Walked) -> None:
        created_ms = 0
        if self.checkpoint is not None and self.checkpoint.segment_base == segment.base_offset:
            created_ms = self.checkpoint.created_ms
        segment.know_timestamps(walked.max_timestamp, walked.first_timestamp, created_ms)
        segment.adopt(walked.index, walked.max_timestamp)

    def reopen_last(self) -> None:
        """No file behind the sealed ones holds a batch, so the last of those takes the next append."""
        last = self.segments[-1]
        self.segments[-1] = self.segment(last.base_offset, last.next_offset, last.size_bytes, is_sealed=False)
