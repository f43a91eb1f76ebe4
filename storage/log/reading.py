"""The readable side of a log: segments in offset order, and how a read finds its way through them.

Offsets only rise from segment to segment, but there may be gaps: compaction removes records, and ranges whose bytes
are damaged are quarantined. A read jumps over the first kind, ends before the second, and is refused inside it.

Thread rule: all methods belong to the log's thread, except :meth:`ReadableLog.warm_start` and
:meth:`ReadableLog.warm_aborted`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from msgspec import Struct

from storage.epochs import LeaderEpochs
from storage.errors import DamagedLog, LogClosed, OffsetOutOfRange, QuarantinedRange, disk_errors
from storage.producers import ProducerStates
from storage.quarantine import Quarantine
from storage.reads import LogRead
from storage.segment import LogSegment
from storage.times import TimestampAndOffset, first_at_or_after, largest
from storage.transactions import AbortedTransaction, OpenTransaction
from storage.txn_index import TransactionIndex, find_aborted
from storage.windows import EMPTY

_base_offset = attrgetter("base_offset")
_first_offset = attrgetter("first_offset")


class Damage(Struct, frozen=True):
    """Bytes that are neither batches nor empty: the log is served up to ``offset`` and takes no appends."""

    path: str
    position: int
    offset: int
    reason: str


class LogState(Struct):
    """What a log starts from: nothing, or what :mod:`storage.recovery` found."""

    segments: list[LogSegment]
    log_start_offset: int
    log_end_offset: int
    epochs: LeaderEpochs
    producers: ProducerStates
    damage: Damage | None = None
    quarantined: tuple[Quarantine, ...] = ()
    # Compaction has looked at everything below: gaps are normal there.
    clean_upto: int = 0
    # What was cut off the end because it was a batch that was never finished.
    torn_bytes: int = 0
    # A sync has failed in an earlier run, and the note that says so is still there.
    is_sync_failure_noted: bool = False


class ReadableLog:
    """Owns ``segments``, which are in offset order; the last one is where appends go, unless it is sealed."""

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
        # Those with ABORT markers.
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
        """Whole batches from the one that holds ``offset``, all below offset ``upto``, out of one segment.

        The view is empty when nothing lies below ``upto`` yet, or when nothing fits and ``at_least_one`` is not set.
        Raises :class:`QuarantinedRange` for an offset whose bytes are damaged, :class:`DamagedLog` for one after the
        place from which on the log is damaged: that is not its head.
        """
        if offset >= upto or offset >= self.log_end_offset:
            if self.damage is not None and offset >= self.log_end_offset:
                raise DamagedLog(f"{self._directory} is damaged from offset {self.log_end_offset} on")
            if offset > self.log_end_offset or offset < self.log_start_offset:
                raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
            if offset == self.log_end_offset and self._active is not None:
                self._active.remember_end()
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
            # The end of this segment is a gap: what follows lies in the next one.
            return self._behind(segment).read(offset, max_bytes, upto, at_least_one)
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
            return self._behind(segment).read(offset, max_bytes, upto, at_least_one)
        return read

    def _segment_for(self, offset: int) -> LogSegment:
        at = max(bisect_right(self._bases, offset) - 1, 0)
        segment = self._segments[at]
        if offset >= segment.next_offset and at + 1 < len(self._segments):
            segment = self._segments[at + 1]  # compaction removed the end of the one before
        return segment

    def _behind(self, segment: LogSegment) -> LogSegment:
        return self._segments[bisect_right(self._bases, segment.base_offset)]

    def is_start_warm(self, offset: int) -> bool:
        """Whether :meth:`read` from ``offset`` on would find its place without waiting for the disk."""
        active = self._active
        if active is None or not self.log_start_offset <= offset < self.log_end_offset:
            return True
        return (active if offset >= active.base_offset else self._segment_for(offset)).is_start_warm(offset)

    def warm_start(self, offset: int) -> None:
        """Load what that read needs (index, first pages); waits for the disk, so it belongs in a thread."""
        if self._segments and self.log_start_offset <= offset < self.log_end_offset:
            with disk_errors(f"read {self._directory}"):
                self._segment_for(offset).warm_start(offset)

    # --- transactions

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction has ended with a marker below ``high_watermark``, which only rises."""
        first_offset = self.producers.first_unstable(high_watermark)
        if first_offset is not None and first_offset < high_watermark:
            high_watermark = first_offset
        return max(high_watermark, self.log_start_offset)

    def open_transaction(self, producer_id: int) -> OpenTransaction | None:
        return self.producers.open_transaction(producer_id)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those that began below ``end_offset`` and whose marker is at or behind ``start_offset``, by first offset.

        Complete for an ``end_offset`` up to the last stable offset: of what is open nobody knows how it will end.
        """
        segments = self._abort_segments
        if not segments:
            return []
        found: list[AbortedTransaction] = []
        for segment in segments[_first_place(segments, start_offset) :]:
            if self._aborted_of(segment).collect(start_offset, end_offset, found):
                break
        return sorted(found, key=_first_offset)

    def is_aborted_warm(self, offset: int) -> bool:
        """Whether :meth:`aborted_between` can begin at ``offset`` without waiting for the disk."""
        segments = self._abort_segments
        return not segments or segments[_first_place(segments, offset)].aborted is not None

    def warm_aborted(self, offset: int) -> None:
        """Read what it needs from its file, in a thread. If that does not fit, the batches have to tell it later."""
        segments = self._abort_segments
        segment = segments[_first_place(segments, offset)] if segments else None
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
        """The first record stored with ``timestamp_ms`` or later."""
        return first_at_or_after(self._segments, timestamp_ms, self.log_start_offset, self.log_end_offset)

    def max_timestamp_offset(self) -> TimestampAndOffset | None:
        """The record with the largest timestamp, the first of them when there are several."""
        return largest(self._segments, self.log_start_offset, self.log_end_offset)

    # --- facts

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
        """Give back the descriptors and maps of sealed segments; they come back when somebody reads there."""
        for segment in self._segments:
            segment.release()


def _first_place(segments: list[LogSegment], offset: int) -> int:
    """Of the one that ``offset`` lies in, or in front of."""
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)
