"""Opening a log that exists: from its checkpoint after a clean stop, by walking its batches after any other.

After a kill the page cache is whole, so the walk starts at the newest checkpoint. After a power cut (another boot id)
only sealed segments are known to be on disk, so everything behind them is walked with its CRCs. What
:mod:`storage.walk` finds in each file is put together here: zeros behind the end and a torn tail are cut; damage with
good batches behind it is set apart as a range that cannot be read, and the log goes on. So is damage at the end where a
clean stop left word of the log end; after a crash it leaves the log open for reading up to it, with nothing cut or
rewritten, because nobody knows which offsets were given out. Closed segments that differ from the checkpoint's list of
them are walked, too (:mod:`storage.lost_segments`).

Cutting a file in place is fine here and only here: nobody holds a slice of it yet.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from storage.checkpoint import Checkpoint, CheckpointFile
from storage.errors import DamagedLog, disk_errors
from storage.files import Files
from storage.found_files import FoundFiles
from storage.index import NO_MAX_TIMESTAMP, SparseIndex
from storage.log import Damage, Log, LogState
from storage.lost_segments import OffsetRange, changed_segments, has_lost_last, missing_ranges
from storage.quarantine import Quarantine, add_range, read_quarantine, write_quarantine
from storage.replacement import finish_replacement
from storage.replay import Replay, share_aborted
from storage.segment import LogSegment, index_name, segment_name
from storage.settings import Background, LogSettings
from storage.truncation import producers_below
from storage.txn_index import encode_entries
from storage.walk import Ending, SegmentWalk, Walked
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
    was_stopped: bool = False,
    resume_offset: int | None = None,
) -> Log:
    """The log in ``directory``, which exists; with ``cuts_damage`` a damaged end goes as a torn one does.

    ``was_stopped``: nothing was appended since its last clean checkpoint was written. ``resume_offset``: should the end
    be damaged, all up to this offset is given up, and the log goes on there.
    """
    with disk_errors(f"open {directory}"):
        finish_replacement(directory, files)
        opening = _Opening(directory, files, background, settings, boot_id, cuts_damage)
        opening.known_end = opening.end_of_clean_stop() if was_stopped else resume_offset
        state = opening.run()
        log = Log(directory, files, background, settings, boot_id, state, on_first_append=on_first_append)
        if opening.is_walked:
            is_synced = was_stopped and log.log_end_offset == opening.known_end
            log.settle_walked(opening.unsealed, opening.checkpoint, is_synced=is_synced)
    return log


class _Opening(FoundFiles):
    """One opening, from listing the directory to the state the log starts from."""

    def __init__(
        self,
        directory: str,
        files: Files,
        background: Background,
        settings: LogSettings,
        boot_id: str,
        cuts: bool,
    ) -> None:
        super().__init__(directory, files, boot_id)
        self.background = background
        self.settings = settings
        known = read_quarantine(directory, files)
        # None: the list of ranges is lost, and only a look at everything brings it back.
        self.is_quarantine_lost = known is None or (
            not known and self.checkpoint is not None and self.checkpoint.has_quarantine
        )
        self.known = known or ()
        # Without a checkpoint nobody knows where compaction was, so every gap may be its work.
        self.clean_upto = self.checkpoint.clean_upto if self.checkpoint else _NEVER
        # What the checkpoint says of epochs, producers and transactions, and what follows from batches behind it.
        self.replay = Replay(self.checkpoint)
        self.segments: list[LogSegment] = []
        # Walked, and to be sealed once it is certain that none of them takes appends.
        self.unsealed: list[LogSegment] = []
        self.quarantined: list[Quarantine] = []
        self.torn_bytes = 0
        self.damage: Damage | None = None
        self.is_walked = False
        self.synced_upto = 0
        self.cuts_damage = cuts
        # Closed segments of another length than they had, and offsets of those whose files are gone.
        self.changed: frozenset[int] = frozenset()
        self.missing: list[OffsetRange] = []
        # Where the log ended, if that is known for certain.
        self.known_end: int | None = None

    def run(self) -> LogState:
        self.look()
        checkpoint = self.checkpoint
        if checkpoint is not None:
            self.changed = changed_segments(checkpoint, self.sizes)
            self.missing = missing_ranges(checkpoint, self.sizes, is_same_boot=self.is_same_boot)
        if (
            checkpoint is not None
            and self.is_as_left(checkpoint)
            and not self.is_quarantine_lost
            and not self.is_sync_failure_noted
        ):
            self.trust(len(self.bases))
            self.is_walked = bool(self.changed or self.missing)
            self.note_quarantine([])
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
        has_start_moved = self.bases and (self.checkpoint is None or self.bases[0] > self.clean_upto)
        if has_start_moved and self.skip_quarantined(log_start_offset) < self.bases[0]:
            # Else compaction removed what came before, or it is known to be lost.
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

    def skip_quarantined(self, offset: int) -> int:
        """The first offset from ``offset`` on that no quarantined range covers."""
        for one in sorted(self.quarantined, key=lambda one: one.start_offset):
            if one.start_offset <= offset < one.end_offset:
                offset = one.end_offset
        return offset

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

    def without_segments(self) -> LogState:
        """Nothing is there: the log was emptied, never got its first batch on disk, or lost its files."""
        checkpoint = self.checkpoint
        if checkpoint is None:
            self.clean_upto = 0
            return self.state(0)
        start = checkpoint.log_start_offset
        self.quarantined.extend(self.known)
        end = self.skip_quarantined(start)
        if (
            (checkpoint.offset > end or has_lost_last(checkpoint, self.sizes))
            and (self.is_same_boot or checkpoint.is_clean)
            and not self.cuts_damage
        ):
            reason = "the segments are missing"
            if self.known_end is None:
                self.damage = Damage(self.directory, 0, end, reason)
            elif end < self.known_end:
                self.quarantined.append(Quarantine(end, 0, 0, end, self.known_end, reason))
                self.note_quarantine([])
                end = self.known_end
        return self.state(end)

    # --- segments that need no look

    def trust(self, count: int) -> None:
        """Take the first ``count`` segments as they are, but for those that are not what the checkpoint says."""
        upto = self.bases[count] if count < len(self.bases) else _NEVER
        self.quarantined.extend(
            one for one in self.known if one.segment_base < upto and one.segment_base not in self.changed
        )
        for start, end in self.missing:
            if start < self.bases[0]:
                self.set_apart_missing(start, 0, start, end)
        for at in range(count):
            base = self.bases[at]
            is_last = at + 1 == len(self.bases)
            next_offset = self.replay.start_offset if is_last else self.bases[at + 1]
            gap = self.missing_between(base, next_offset)
            end_offset = gap[0] if gap is not None else next_offset
            if base in self.changed:
                self.look_at_closed(at, end_offset)
            else:
                self.segments.append(self.segment(base, end_offset, self.sizes[base], is_sealed=not is_last))
            if gap is not None:
                self.set_apart_missing(base, self.segments[-1].size_bytes, *gap)

    def missing_between(self, start_offset: int, end_offset: int) -> OffsetRange | None:
        return next((one for one in self.missing if start_offset < one[0] < end_offset), None)

    def set_apart_missing(self, base_offset: int, position: int, start_offset: int, end_offset: int) -> None:
        range_ = Quarantine(base_offset, position, 0, start_offset, end_offset, "the segment is missing")
        self.quarantined = list(add_range(self.quarantined, range_))

    def look_at_closed(self, at: int, end_offset: int) -> None:
        """Walk a closed segment that has changed: what is not a batch any more, or missing, is set apart."""
        base = self.bases[at]
        walked = self.walk_segment(at, None, limit_offset=end_offset)
        self.judge_end([base, end_offset], [walked], 0)
        self.quarantined.extend(walked.quarantined)
        self.keep(base, walked, is_last=False)

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

    def walk_segment(self, at: int, start: Checkpoint | None, limit_offset: int | None = None) -> Walked:
        """``limit_offset``: the segment was closed and ended there, and what it tells is known already."""
        base = self.bases[at]
        size = self.sizes[base]
        if not size:
            return self.walk_view(base, at, EMPTY, None, None, limit_offset)
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

            return self.walk_view(base, at, view, start, fetch, limit_offset)
        finally:
            self.files.close(fd)

    def walk_view(
        self,
        base_offset: int,
        at: int,
        view: memoryview,
        start: Checkpoint | None,
        fetch: Callable[[int, int], None] | None,
        limit_offset: int | None = None,
    ) -> Walked:
        is_closed = limit_offset is not None
        if limit_offset is None and at + 1 < len(self.bases):
            limit_offset = self.bases[at + 1]
        is_synced = is_closed or (not self.is_same_boot and self.is_sealed(base_offset))
        walk = SegmentWalk(
            view,
            base_offset,
            index_interval_bytes=self.settings.index_interval_bytes,
            clean_upto=self.clean_upto,
            limit_offset=limit_offset,
            is_same_boot=self.is_same_boot or is_closed,
            synced_upto=_NEVER if is_synced else self.synced_upto,
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
        return walk.run(self.replay, replay_from=_NEVER if is_closed else self.replay.start_offset)

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
        if self.damage is not None and self.known_end is not None and end_offset <= self.known_end:
            count = self.set_end_apart(bases, found, count, end_offset, self.damage.reason)
            end_offset, self.damage = self.known_end, None
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

    def set_end_apart(self, bases: list[int], found: list[Walked], count: int, end_offset: int, reason: str) -> int:
        """The stop said where the log ended, so what is bad or missing before that is a range like any other.

        Returns how many of the files stay. Bytes behind the end that are not a batch are nobody's and are cut.
        """
        assert self.known_end is not None
        while count < len(found) and end_offset < self.known_end and any(one.size_bytes for one in found[count:]):
            count += 1
        if not count:
            last = self.segments[-1]
            self.quarantined.append(
                self.as_known(Quarantine(last.base_offset, last.size_bytes, 0, end_offset, self.known_end, reason))
            )
            last.next_offset = self.known_end
            return count
        walked = found[count - 1]
        size_bytes = walked.size_bytes - walked.position
        if walked.next_offset == self.known_end:
            walked.torn_bytes = size_bytes
            return count
        range_ = Quarantine(
            bases[count - 1], walked.position, size_bytes, walked.next_offset, self.known_end, walked.reason or reason
        )
        walked.quarantined.append(self.as_known(range_))
        walked.position, walked.next_offset = walked.size_bytes, self.known_end
        return count

    def damage_behind(self, bases: list[int], found: list[Walked], count: int, end_offset: int) -> Damage | None:
        """Why the log cannot go on behind its last good batch, if it cannot."""
        for base, walked in list(zip(bases, found, strict=False))[max(count - 1, 0) :]:
            if walked.ending is Ending.DAMAGED:
                return Damage(self.path(base), walked.position, end_offset, walked.reason)
        checkpoint = self.checkpoint
        reason = None
        if checkpoint is not None and (self.is_same_boot or checkpoint.is_clean) and end_offset < checkpoint.offset:
            reason = f"the log ends before offset {checkpoint.offset}, which was there"
        elif self.is_same_boot and checkpoint is not None and has_lost_last(checkpoint, self.sizes):
            reason = f"{segment_name(checkpoint.segment_base)} is missing"
        elif self.is_same_boot and any(self.checkpoint_is_inside(base) for base in bases[count:]):
            reason = "the last segment does not begin with a good batch"
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
            is_lost = self.missing_between(walked.next_offset - 1, next_base) is not None
            if walked.next_offset == next_base or (next_base <= self.clean_upto and not is_lost):
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
        # If it was looked at, it waits for its seal, which would cut off what is appended from now on.
        self.unsealed = [segment for segment in self.unsealed if segment is not last]
        self.segments[-1] = self.segment(last.base_offset, last.next_offset, last.size_bytes, is_sealed=False)
