"""Reading a log: finds the segment of an offset, searches by timestamp, and lists aborted transactions.

Offsets rise from segment to segment, but there may be gaps: compaction removes records, and damaged ranges are
quarantined. A read skips gaps of compaction and ends before a quarantined range. A read that starts inside such a range
is refused.

Thread rule: all methods are called on the log's thread, except :meth:`ReadableLog.warm_start` and
:meth:`ReadableLog.warm_aborted`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from msgspec import Struct

from storage.errors import DamagedLog, LogClosed, OffsetOutOfRange, QuarantinedRange, disk_errors
from storage.log.leader_epochs import LeaderEpochs
from storage.log.producers import ProducerStates
from storage.log.quarantine import Quarantine
from storage.log.transactions import AbortedTransaction, OpenTransaction
from storage.segment.map_windows import EMPTY
from storage.segment.reads import LogRead
from storage.segment.segment import LogSegment
from storage.segment.time_search import TimestampAndOffset, find_largest, first_at_or_after
from storage.segment.txn_index import TransactionIndex, find_aborted

_base_offset = attrgetter("base_offset")
_first_offset = attrgetter("first_offset")


class Damage(Struct, frozen=True):
    """Damage at the end of a log: the log is served up to ``offset`` and takes no appends."""

    path: str
    position: int
    offset: int
    reason: str


class LogState(Struct):
    """The initial state of a log object: empty, or the result of :mod:`storage.recovery.crash_recovery`."""

    segments: list[LogSegment]
    log_start_offset: int
    log_end_offset: int
    epochs: LeaderEpochs
    producers: ProducerStates
    damage: Damage | None = None
    quarantined: tuple[Quarantine, ...] = ()
    # The log was compacted below this offset, so offset gaps are normal there.
    clean_upto: int = 0
    # Bytes of an unfinished write that were truncated from the end.
    torn_bytes: int = 0
    # A sync has failed in an earlier run, and the file that records it still exists.
    is_sync_failure_marked: bool = False


class ReadableLog:
    """A log, for reading. Its segments are in offset order. The last one takes the appends, unless it is sealed."""

    __slots__ = (
        "_abort_segments",
        "_active",
        "_bases",
        "_directory",
        "_segments",
        "clean_upto",
        "damage",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "quarantined",
        "torn_bytes",
    )

    def __init__(self, directory: str, state: LogState) -> None:
        self._directory = directory
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = state.log_end_offset
        self.epochs = state.epochs
        self.producers = state.producers
        self.damage = state.damage
        self.clean_upto = state.clean_upto
        self.torn_bytes = state.torn_bytes
        self.quarantined: tuple[Quarantine, ...] = ()
        self._segments: list[LogSegment] = []
        self._bases: list[int] = []
        self._active: LogSegment | None = None
        # The segments with ABORT markers.
        self._abort_segments: list[LogSegment] = []
        self._set_segments(state.segments)
        self._set_quarantined(tuple(one for one in state.quarantined if one.start_offset < state.log_end_offset))

    def _set_segments(self, segments: list[LogSegment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._active = segments[-1] if segments else None
        self._abort_segments = [segment for segment in segments if segment.has_aborted]

    def _set_quarantined(self, quarantined: tuple[Quarantine, ...]) -> None:
        self.quarantined = tuple(sorted(quarantined, key=lambda one: one.start_offset))
        for segment in self._segments:
            segment.holes = tuple(
                (one.position, one.position + one.size_bytes)
                for one in self.quarantined
                if one.segment_base == segment.base_offset and one.size_bytes
            )

    # --- reading

    def read(self, offset: int, max_bytes: int, upto: int, *, at_least_one: bool = True) -> LogRead:
        """Return whole batches of one segment below offset ``upto``, starting with the batch that holds ``offset``.

        The view is empty if ``offset`` is not below ``upto`` yet, or if no batch fits and ``at_least_one`` is not set.
        Raises :class:`QuarantinedRange` for an offset whose bytes are damaged. If the end of the log is damaged, raises
        :class:`DamagedLog` for offsets from there on: the real log end offset is unknown.
        """
        if offset >= upto or offset >= self.log_end_offset:
            if self.damage is not None and offset >= self.log_end_offset:
                raise DamagedLog(f"{self._directory} is damaged from offset {self.log_end_offset} on")
            if offset > self.log_end_offset or offset < self.log_start_offset:
                raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
            if offset == self.log_end_offset and self._active is not None:
                self._active.cache_end()
            return LogRead(EMPTY, offset, None, 0)
        if offset < self.log_start_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if self.quarantined:
            return self._read_around(offset, max_bytes, upto, at_least_one)
        segment = self._active
        if segment is None:
            raise LogClosed(f"{self._directory} is closed")
        if offset >= segment.base_offset:
            return segment.read(offset, max_bytes, upto, at_least_one)
        segment = self._segment_for(offset)
        read = segment.read(offset, max_bytes, upto, at_least_one)
        if read.position >= segment.size_bytes:
            # The segment ends with a gap: the next batch is in the next segment.
            return self._segment_after(segment).read(offset, max_bytes, upto, at_least_one)
        return read

    def _read_around(self, offset: int, max_bytes: int, upto: int, at_least_one: bool) -> LogRead:
        ceiling: tuple[int, int] | None = None
        ahead: Quarantine | None = None
        for one in self.quarantined:
            if one.start_offset <= offset < one.end_offset:
                raise QuarantinedRange(one.start_offset, one.end_offset)
            if offset < one.start_offset:
                ahead = one
                break
        if not self._segments:
            raise LogClosed(f"{self._directory} is closed")
        segment = self._segment_for(offset)
        if ahead is not None:
            if ahead.segment_base == segment.base_offset:
                ceiling = ahead.position, ahead.start_offset
            upto = min(upto, ahead.start_offset)
        read = segment.read(offset, max_bytes, upto, at_least_one, ceiling)
        if read.position >= segment.size_bytes and segment is not self._active:
            return self._segment_after(segment).read(offset, max_bytes, upto, at_least_one)
        return read

    def _segment_for(self, offset: int) -> LogSegment:
        at = max(bisect_right(self._bases, offset) - 1, 0)
        segment = self._segments[at]
        if offset >= segment.next_offset and at + 1 < len(self._segments):
            segment = self._segments[at + 1]  # compaction removed the end of the segment before
        return segment

    def _segment_after(self, segment: LogSegment) -> LogSegment:
        return self._segments[bisect_right(self._bases, segment.base_offset)]

    def is_start_warm(self, offset: int) -> bool:
        """Whether :meth:`read` from ``offset`` would find its first batch without waiting for the disk."""
        active = self._active
        if active is None or not self.log_start_offset <= offset < self.log_end_offset:
            return True
        return (active if offset >= active.base_offset else self._segment_for(offset)).is_start_warm(offset)

    def warm_start(self, offset: int) -> None:
        """Load the index and the first pages for a read from ``offset``. Waits for the disk, so call it in a thread."""
        if self._segments and self.log_start_offset <= offset < self.log_end_offset:
            with disk_errors(f"read {self._directory}"):
                self._segment_for(offset).warm_start(offset)

    # --- transactions

    def last_stable_offset(self, high_watermark: int) -> int:
        """The last stable offset: every transaction that began below it has a marker below ``high_watermark``."""
        first_offset = self.producers.first_unstable(high_watermark)
        if first_offset is not None and first_offset < high_watermark:
            high_watermark = first_offset
        return max(high_watermark, self.log_start_offset)

    def open_transaction(self, producer_id: int) -> OpenTransaction | None:
        return self.producers.open_transaction(producer_id)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that began below ``end_offset``, with the marker at or after ``start_offset``.

        Sorted by first offset. Complete for an ``end_offset`` up to the last stable offset: open transactions have no
        outcome yet.
        """
        segments = self._abort_segments
        if not segments:
            return []
        found: list[AbortedTransaction] = []
        for segment in segments[_first_index(segments, start_offset) :]:
            if self._aborted_of(segment).collect(start_offset, end_offset, found):
                break
        return sorted(found, key=_first_offset)

    def is_aborted_warm(self, offset: int) -> bool:
        """Whether the transaction index that :meth:`aborted_between` needs first is in memory."""
        segments = self._abort_segments
        return not segments or segments[_first_index(segments, offset)].aborted is not None

    def warm_aborted(self, offset: int) -> None:
        """Load the transaction index that :meth:`aborted_between` needs first. May be called in any thread.

        If the file of the index is not valid, :meth:`aborted_between` scans the batches.
        """
        segments = self._abort_segments
        segment = segments[_first_index(segments, offset)] if segments else None
        if segment is not None and segment.aborted is None:
            entries = segment.read_aborted()
            if entries is not None:
                segment.aborted = TransactionIndex(entries)

    def _aborted_of(self, segment: LogSegment) -> TransactionIndex:
        aborted = segment.aborted
        if aborted is None:
            entries = segment.read_aborted()
            if entries is None:
                entries = find_aborted([one for one in self._segments if one.base_offset <= segment.base_offset])
            aborted = segment.aborted = TransactionIndex(entries)
        return aborted

    # --- timestamps

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first record with ``timestamp_ms`` or later."""
        return first_at_or_after(self._segments, timestamp_ms, self.log_start_offset, self.log_end_offset)

    def max_timestamp_offset(self) -> TimestampAndOffset | None:
        """The first record with the largest timestamp."""
        return find_largest(self._segments, self.log_start_offset, self.log_end_offset)

    # --- properties

    @property
    def directory(self) -> str:
        return self._directory

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def segments(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def release(self) -> None:
        """Close the descriptors and maps of sealed segments. The next read opens them again."""
        for segment in self._segments:
            segment.release()


def _first_index(segments: list[LogSegment], offset: int) -> int:
    """The index of the last segment that begins at or below ``offset``, or 0."""
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)
