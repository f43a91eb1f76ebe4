"""Opens an existing log: from its checkpoint after a clean stop, by scanning its batches after a crash.

After a kill the page cache is intact, so the scan starts at the newest checkpoint. After a power cut (another boot id)
only sealed segments are known to be on disk, so everything after them is scanned and its CRCs are checked. The results
of :mod:`storage.segment.scan` for each file are combined here:

- Zeros after the end and a torn tail are truncated.
- Damage that is followed by valid batches is quarantined, and the log continues.
- Damage at the end is quarantined, too, if a clean stop has stored the log end offset. After a crash it is unknown
  which offsets were assigned. Then the log is opened for reading only, up to the damage, and is not changed.
- Closed segments that differ from the checkpoint's list are scanned (:mod:`storage.recovery.lost_segments`).

Only this module may truncate a file in place, because no reader holds a slice of the file yet.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from storage.disk.files import Files
from storage.errors import DamagedLog, disk_errors
from storage.log.log import Damage, Log, LogState
from storage.log.quarantine import Quarantine, add_range, read_quarantine, write_quarantine
from storage.log.segment_replacement import finish_replacement
from storage.log.settings import Background, LogSettings
from storage.recovery.checkpoint import Checkpoint, CheckpointFile
from storage.recovery.log_files import LogFiles
from storage.recovery.lost_segments import OffsetRange, changed_segments, has_lost_last, missing_ranges
from storage.recovery.replay import Replay, assign_aborted
from storage.recovery.truncation import producers_below
from storage.segment.index import NO_MAX_TIMESTAMP, SparseIndex
from storage.segment.map_windows import EMPTY
from storage.segment.scan import Ending, ScanResult, SegmentScan
from storage.segment.segment import LogSegment, index_name, segment_name
from storage.segment.txn_index import encode_entries

_FETCH_BYTES: Final = 1024 * 1024
_NEVER: Final = 2**63
# Without a checkpoint, the seals of up to this many segments are assumed to have been pending.
_PENDING_SEALS_MAX: Final = 8

# Called before the first append of a run. The first sync calls the returned function. See OnFirstAppend.
FirstAppend = Callable[[], Callable[[], None]]


def open_log(
    directory: str,
    files: Files,
    background: Background,
    settings: LogSettings,
    boot_id: str,
    *,
    on_first_append: FirstAppend | None = None,
    truncates_damage: bool = False,
    was_stopped: bool = False,
    resume_offset: int | None = None,
    log_type: type[Log] = Log,
) -> Log:
    """Open the log in ``directory``. With ``truncates_damage`` a damaged end is truncated like a torn one.

    ``was_stopped``: nothing was appended since the last clean checkpoint of the log was written. ``resume_offset``: if
    the end is damaged, quarantine everything up to this offset and continue there.
    """
    with disk_errors(f"open {directory}"):
        finish_replacement(directory, files)
        recovery = _LogRecovery(directory, files, background, settings, boot_id, truncates_damage)
        recovery.known_end = recovery.end_of_clean_stop() if was_stopped else resume_offset
        state = recovery.run()
        log = log_type(directory, files, background, settings, boot_id, state, on_first_append=on_first_append)
        if recovery.is_scanned:
            is_synced = was_stopped and log.log_end_offset == recovery.known_end
            log.finish_recovery(recovery.unsealed, recovery.checkpoint, is_synced=is_synced)
    return log


class _LogRecovery(LogFiles):
    """Opens one log: from listing its directory to the initial state of the log object."""

    def __init__(
        self,
        directory: str,
        files: Files,
        background: Background,
        settings: LogSettings,
        boot_id: str,
        truncates_damage: bool,
    ) -> None:
        super().__init__(directory, files, boot_id)
        self.background = background
        self.settings = settings
        known = read_quarantine(directory, files)
        # Whether the list of quarantined ranges is lost. Only a scan of the whole log can restore it.
        self.is_quarantine_lost = known is None or (
            not known and self.checkpoint is not None and self.checkpoint.has_quarantine
        )
        self.known = known or ()
        # Without a checkpoint the compacted part is unknown, so every gap may be due to compaction.
        self.clean_upto = self.checkpoint.clean_upto if self.checkpoint else _NEVER
        # Epochs, producers and transactions: from the checkpoint, updated with the batches after it.
        self.replay = Replay(self.checkpoint)
        self.segments: list[LogSegment] = []
        # Scanned segments, to be sealed once it is certain that none of them takes appends.
        self.unsealed: list[LogSegment] = []
        self.quarantined: list[Quarantine] = []
        self.torn_bytes = 0
        self.damage: Damage | None = None
        self.is_scanned = False
        self.synced_upto = 0
        self.truncates_damage = truncates_damage
        # Closed segments whose length has changed, and the offset ranges of closed segments without a file.
        self.changed: frozenset[int] = frozenset()
        self.missing: list[OffsetRange] = []
        # The log end offset, if it is certain.
        self.known_end: int | None = None

    def run(self) -> LogState:
        self.prepare()
        checkpoint = self.checkpoint
        if checkpoint is not None:
            self.changed = changed_segments(checkpoint, self.sizes)
            self.missing = missing_ranges(checkpoint, self.sizes, is_same_boot=self.is_same_boot)
        if (
            checkpoint is not None
            and self.matches_clean_stop(checkpoint)
            and not self.is_quarantine_lost
            and not self.is_sync_failure_marked
        ):
            self.trust(len(self.bases))
            self.is_scanned = bool(self.changed or self.missing)
            self.store_quarantine([])
            if self.segments:
                self.segments[-1].set_timestamps(
                    checkpoint.max_timestamp, checkpoint.first_timestamp, checkpoint.created_ms
                )
            return self.state(checkpoint.offset)
        self.is_scanned = True
        self.remove_empty_end()
        if not self.bases:
            return self.without_segments()
        return self.state(self.scan())

    def matches_clean_stop(self, checkpoint: Checkpoint) -> bool:
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
            # Otherwise the records before the first segment were removed by compaction or are quarantined.
            log_start_offset = max(log_start_offset, self.bases[0])
        for segment in self.segments:
            self.adopt_holes(segment)
        if self.checkpoint is not None and self.checkpoint.offset > log_end_offset:
            self.replay.epochs.truncate_from_end(log_end_offset)
            self.truncate_producers(log_end_offset)
        assign_aborted(self.segments, self.replay, self.checkpoint, self.names, self.files)
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
            is_sync_failure_marked=self.is_sync_failure_marked,
        )

    def truncate_producers(self, end_offset: int) -> None:
        """Remove batches from ``end_offset`` on from the producer states. If none are left, search for earlier ones."""
        try:
            self.replay.producers = producers_below(self.replay.producers, end_offset, self.segments)
        except DamagedLog:  # the search found damage in a sealed segment that was not scanned
            self.replay.producers.truncate(end_offset)
            self.replay.producers.restore_transactions({}, self.replay.producers.undecided)

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
        """Replace, durably, a checkpoint that describes lost batches: their offsets will be assigned again."""
        last = self.segments[-1] if self.segments else None
        checkpoint = replace(
            stale,
            is_clean=False,
            log_start_offset=log_start_offset,
            offset=log_end_offset,
            segment_base=last.base_offset if last is not None else log_end_offset,
            position=last.size_bytes if last is not None else 0,
            scan_from=min(stale.scan_from, last.base_offset if last is not None else log_end_offset),
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
        """The state of a log without segments: it was emptied, never had a batch on disk, or lost its files."""
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
            and not self.truncates_damage
        ):
            reason = "the segments are missing"
            if self.known_end is None:
                self.damage = Damage(self.directory, 0, end, reason)
            elif end < self.known_end:
                self.quarantined.append(Quarantine(end, 0, 0, end, self.known_end, reason))
                self.store_quarantine([])
                end = self.known_end
        return self.state(end)

    # --- segments without a scan

    def trust(self, count: int) -> None:
        """Use the first ``count`` segments without a scan, except those that differ from the checkpoint."""
        upto = self.bases[count] if count < len(self.bases) else _NEVER
        self.quarantined.extend(
            one for one in self.known if one.segment_base < upto and one.segment_base not in self.changed
        )
        for start, end in self.missing:
            if start < self.bases[0]:
                self.quarantine_missing(start, 0, start, end)
        for at in range(count):
            base = self.bases[at]
            is_last = at + 1 == len(self.bases)
            next_offset = self.replay.start_offset if is_last else self.bases[at + 1]
            gap = self.missing_between(base, next_offset)
            end_offset = gap[0] if gap is not None else next_offset
            if base in self.changed:
                self.scan_closed(at, end_offset)
            else:
                self.segments.append(self.segment(base, end_offset, self.sizes[base], is_sealed=not is_last))
            if gap is not None:
                self.quarantine_missing(base, self.segments[-1].size_bytes, *gap)

    def missing_between(self, start_offset: int, end_offset: int) -> OffsetRange | None:
        return next((one for one in self.missing if start_offset < one[0] < end_offset), None)

    def quarantine_missing(self, base_offset: int, position: int, start_offset: int, end_offset: int) -> None:
        range_ = Quarantine(base_offset, position, 0, start_offset, end_offset, "the segment is missing")
        self.quarantined = list(add_range(self.quarantined, range_))

    def scan_closed(self, at: int, end_offset: int) -> None:
        """Scan a closed segment that has changed, and quarantine damaged and missing batches."""
        base = self.bases[at]
        scanned = self.scan_segment(at, None, limit_offset=end_offset)
        self.quarantine_segment_end([base, end_offset], [scanned], 0)
        self.quarantined.extend(scanned.quarantined)
        self.keep(base, scanned, is_last=False)

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
        """The offset below which everything was certainly synced, or written in this boot."""
        checkpoint = self.checkpoint
        synced = self.bases[first]
        if checkpoint is not None:
            # A seal proves only that its own segment was synced: seals are written in threads, in any order.
            if self.is_same_boot or checkpoint.is_clean:
                return max(synced, checkpoint.offset)
            return max(synced, min(checkpoint.scan_from, checkpoint.segment_base))
        for at in range(len(self.bases) - 1, first + _PENDING_SEALS_MAX, -1):
            if self.is_sealed(self.bases[at]):
                return max(synced, self.bases[at - _PENDING_SEALS_MAX])
        return synced

    # --- scanning

    def scan(self) -> int:
        """Scan the segments that cannot be trusted. Returns the log end offset."""
        first, start = self.scan_start()
        self.trust(first)
        self.synced_upto = self.find_synced(first)
        found: list[ScanResult] = []
        for at in range(first, len(self.bases)):
            found.append(self.scan_segment(at, start if at == first else None))
            if self.is_tail_lost(at, found[-1]):
                break
        self.replay.finish()
        return self.combine(first, found)

    def is_tail_lost(self, at: int, scanned: ScanResult) -> bool:
        """Whether a power cut lost the end of this segment. If so, nothing after it was synced either."""
        if self.is_same_boot or at + 1 == len(self.bases) or scanned.next_offset < self.synced_upto:
            return False
        if scanned.ending is Ending.CLEAN:
            next_base = self.bases[at + 1]
            if next_base <= scanned.next_offset:
                return False
            if self.checkpoint is None:
                return not self.is_sealed(self.bases[at])  # else the gap may be due to compaction
            # A seal proves nothing here: a clean stop may have written it before later appends to this file.
            return next_base > self.clean_upto
        # If no offset is missing, the torn bytes are a failed write, and the log continued in the next file.
        return scanned.ending is Ending.TORN and self.bases[at + 1] != scanned.next_offset

    def scan_start(self) -> tuple[int, Checkpoint | None]:
        """The index of the first segment to scan, and the checkpoint, if the scan may start at its position."""
        checkpoint = self.checkpoint
        if checkpoint is None or self.is_quarantine_lost:
            return 0, None
        # Scan at the latest from the checkpoint's segment: the batches after the checkpoint have to be replayed.
        at = max(bisect_right(self.bases, checkpoint.segment_base) - 1, 0)
        if self.is_same_boot and self.bases[at] == checkpoint.segment_base:
            if checkpoint.scan_from >= checkpoint.segment_base:
                return at, checkpoint
            return min(at, max(bisect_right(self.bases, checkpoint.scan_from) - 1, 0)), None
        # Scan at the latest from the first segment whose seal was pending: a seal on disk may be outdated.
        pending_at = max(bisect_right(self.bases, checkpoint.scan_from) - 1, 0)
        return min(at, pending_at, self.sealed_count()), None

    def scan_segment(self, at: int, start: Checkpoint | None, limit_offset: int | None = None) -> ScanResult:
        """Scan one segment. With ``limit_offset``, the segment was closed at that offset and is not replayed."""
        base = self.bases[at]
        size = self.sizes[base]
        if not size:
            return self.scan_view(base, at, EMPTY, None, None, limit_offset)
        fd = self.files.open_read(self.path(base))
        try:
            # The last process may have been killed after a failed sync: drop clean pages and read them from the disk.
            self.files.drop_cached_pages(fd, start.position if start is not None else 0, size)
            view = self.files.map_readonly(fd, 0, size)
            scratch = memoryview(bytearray(min(size, _FETCH_BYTES)))

            def fetch(position: int, end: int) -> None:
                while position < end:
                    read = self.files.preadv(fd, [scratch[: end - position]], position)
                    if read <= 0:
                        raise OSError(f"{self.path(base)} ends at byte {position} instead of {size}")
                    position += read

            return self.scan_view(base, at, view, start, fetch, limit_offset)
        finally:
            self.files.close(fd)

    def scan_view(
        self,
        base_offset: int,
        at: int,
        view: memoryview,
        start: Checkpoint | None,
        fetch: Callable[[int, int], None] | None,
        limit_offset: int | None = None,
    ) -> ScanResult:
        is_closed = limit_offset is not None
        if limit_offset is None and at + 1 < len(self.bases):
            limit_offset = self.bases[at + 1]
        is_synced = is_closed or (not self.is_same_boot and self.is_sealed(base_offset))
        scan = SegmentScan(
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
            position, offset = index.find_position(start.position)
            # Start at the last index entry, a page or two before the checkpoint, to verify the bytes in between.
            if len(index) and scan.is_valid_at(position, offset):
                scanned = scan.run(
                    self.replay,
                    replay_from=self.replay.start_offset,
                    index=index,
                    position=position,
                    offset=offset,
                    max_timestamp=start.max_timestamp,
                )
                scanned.first_timestamp = start.first_timestamp
                before = (one for one in self.known if one.segment_base == base_offset and one.position < position)
                scanned.quarantined[:0] = before
                return scanned
        return scan.run(self.replay, replay_from=_NEVER if is_closed else self.replay.start_offset)

    def known_index(self, base_offset: int, position: int) -> SparseIndex:
        """The index entries on disk below ``position``."""
        data = self.files.read_file(os.path.join(self.directory, index_name(base_offset)))
        index = SparseIndex.decode(base_offset, data or b"")
        index.truncate(position)
        return index

    # --- combining the results

    def combine(self, first: int, found: list[ScanResult]) -> int:
        """Combine the results of all segments into one log, then change files. Returns the log end offset."""
        bases = self.bases[first:]
        count = len(found)
        while count and not found[count - 1].position:
            count -= 1
        if not count and not first:
            count = 1  # no valid batch in the whole log: the name of the first file is the offset to continue at
        end_offset = found[count - 1].next_offset if count else bases[0]
        self.damage = None if self.truncates_damage else self.find_end_damage(bases, found, count, end_offset)
        if self.damage is not None and self.known_end is not None and end_offset <= self.known_end:
            count = self.quarantine_end(bases, found, count, end_offset, self.damage.reason)
            end_offset, self.damage = self.known_end, None
        for at in range(count - 1):
            self.quarantine_segment_end(bases, found, at)
        self.store_quarantine(found[:count])
        if self.checkpoint is None:
            self.clean_upto = max((scanned.gap_upto for scanned in found[:count]), default=0)
        if self.damage is None:
            self.torn_bytes = sum(scanned.torn_bytes for scanned in found[max(count - 1, 0) :])
            self.torn_bytes += sum(self.sizes[base] for base in bases[len(found) :])
            for base in bases[count:]:
                self.remove(base)
            self.sync_removals()
        for at in range(count):
            self.keep(bases[at], found[at], is_last=at + 1 == count)
        if not count and self.damage is None:
            self.reopen_last()
        return end_offset

    def quarantine_end(self, bases: list[int], found: list[ScanResult], count: int, end: int, reason: str) -> int:
        """Quarantine damaged and missing batches up to the known log end offset.

        Returns the number of files to keep. Bytes after the log end that are not a batch are truncated.
        """
        assert self.known_end is not None
        while count < len(found) and end < self.known_end and any(one.size_bytes for one in found[count:]):
            count += 1
        if not count:
            last = self.segments[-1]
            range_ = Quarantine(last.base_offset, last.size_bytes, 0, end, self.known_end, reason)
            self.quarantined.append(self.as_known(range_))
            last.next_offset = self.known_end
            return count
        scanned = found[count - 1]
        size_bytes = scanned.size_bytes - scanned.position
        if scanned.next_offset == self.known_end:
            scanned.torn_bytes = size_bytes
            return count
        base, position, reason = bases[count - 1], scanned.position, scanned.reason or reason
        range_ = Quarantine(base, position, size_bytes, scanned.next_offset, self.known_end, reason)
        scanned.quarantined.append(self.as_known(range_))
        scanned.position, scanned.next_offset = scanned.size_bytes, self.known_end
        return count

    def find_end_damage(self, bases: list[int], found: list[ScanResult], count: int, end_offset: int) -> Damage | None:
        """The damage after the last valid batch that keeps the log from taking appends, if any."""
        for base, scanned in list(zip(bases, found, strict=False))[max(count - 1, 0) :]:
            if scanned.ending is Ending.DAMAGED:
                return Damage(self.path(base), scanned.position, end_offset, scanned.reason)
        checkpoint = self.checkpoint
        reason = None
        if checkpoint is not None and (self.is_same_boot or checkpoint.is_clean) and end_offset < checkpoint.offset:
            reason = f"the log ends before offset {checkpoint.offset}, up to which the checkpoint has records"
        elif self.is_same_boot and checkpoint is not None and has_lost_last(checkpoint, self.sizes):
            reason = f"{segment_name(checkpoint.segment_base)} is missing"
        elif self.is_same_boot and any(self.checkpoint_is_inside(base) for base in bases[count:]):
            reason = "the last segment does not begin with a valid batch"
        elif self.is_same_boot and bases[count:]:
            # After a kill at most one file may be without a batch, and it begins where the others end.
            is_end_clean = not count or found[count - 1].ending is Ending.CLEAN
            if not is_end_clean or bases[count:] != [end_offset]:
                reason = "segments without a valid batch follow"
        if reason is None:
            return None
        at = max(count - 1, 0)
        return Damage(self.path(bases[at]), found[at].position, end_offset, reason)

    def quarantine_segment_end(self, bases: list[int], found: list[ScanResult], at: int) -> None:
        """Quarantine damaged and missing batches at the end of a segment that is not the last one."""
        scanned, next_base = found[at], bases[at + 1]
        if scanned.ending is not Ending.CLEAN and scanned.next_offset == next_base:
            return  # no offset is missing: these bytes are a failed write, which keep() truncates
        if scanned.ending is Ending.CLEAN:
            is_lost = self.missing_between(scanned.next_offset - 1, next_base) is not None
            if scanned.next_offset == next_base or (next_base <= self.clean_upto and not is_lost):
                if scanned.next_offset < next_base:
                    scanned.gap_upto = next_base
                scanned.next_offset = next_base
                return
            size_bytes, reason = 0, "records are missing"
        else:
            size_bytes = scanned.size_bytes - scanned.position
            reason = scanned.reason or "a torn batch"
        range_ = Quarantine(bases[at], scanned.position, size_bytes, scanned.next_offset, next_base, reason)
        if range_.end_offset > range_.start_offset or size_bytes:
            scanned.quarantined.append(self.as_known(range_))
        scanned.position += size_bytes
        scanned.next_offset = next_base

    def as_known(self, new: Quarantine) -> Quarantine:
        for one in self.known:
            if (one.segment_base, one.position, one.start_offset) == (new.segment_base, new.position, new.start_offset):
                return one
        return new

    def store_quarantine(self, found: list[ScanResult]) -> None:
        """Write the quarantined ranges, durably, before any file is changed: every start reports the same ranges."""
        for scanned in found:
            self.quarantined.extend(scanned.quarantined)
        if self.is_quarantine_lost or set(self.quarantined) != set(self.known):
            write_quarantine(self.directory, self.files, self.quarantined)

    def keep(self, base_offset: int, scanned: ScanResult, *, is_last: bool) -> None:
        if is_last and self.damage is not None:
            self.keep_damaged(base_offset, scanned)
            return
        if not scanned.position and is_last and self.is_base_known(base_offset):
            self.remove(base_offset)
            self.sync_removals()
            return
        if scanned.position < scanned.size_bytes:
            fd = self.files.open_write(self.path(base_offset))
            try:
                self.files.truncate(fd, scanned.position)
            finally:
                self.files.close(fd)
        segment = self.segment(base_offset, scanned.next_offset, scanned.position, is_sealed=not is_last)
        segment.synced_bytes = 0
        # Truncated bytes may reappear if their page is rewritten and torn, so the log continues in another file.
        segment.is_end_bad = scanned.torn_bytes > 0
        self.adopt(segment, scanned)
        self.files.replace_file(segment.index_path, scanned.index.encode(), sync=False)
        scanned.index.written_count = len(scanned.index)
        self.segments.append(segment)
        if not is_last:
            segment.is_seal_pending = True
            self.unsealed.append(segment)

    def keep_damaged(self, base_offset: int, scanned: ScanResult) -> None:
        # The file has bytes after the end that is served, so it must not be truncated or extended.
        segment = self.segment(base_offset, scanned.next_offset, scanned.position, is_sealed=True)
        # A seal on disk, if any, covers the whole file. No seal is written for this shorter segment.
        segment.is_seal_pending = True
        self.adopt(segment, scanned)
        self.segments.append(segment)

    def adopt(self, segment: LogSegment, scanned: ScanResult) -> None:
        created_ms = 0
        if self.checkpoint is not None and self.checkpoint.segment_base == segment.base_offset:
            created_ms = self.checkpoint.created_ms
        segment.set_timestamps(scanned.max_timestamp, scanned.first_timestamp, created_ms)
        segment.adopt(scanned.index, scanned.max_timestamp)

    def reopen_last(self) -> None:
        """Reopen the last sealed segment for appends, because no later file has a batch."""
        last = self.segments[-1]
        # If this segment was scanned, its seal is pending. The seal would truncate later appends, so cancel it.
        self.unsealed = [segment for segment in self.unsealed if segment is not last]
        self.segments[-1] = self.segment(last.base_offset, last.next_offset, last.size_bytes, is_sealed=False)
