"""Scans of one partition, forwards and backwards. `merged_scan.py` merges the scans of several partitions."""

from abc import ABC, abstractmethod
from collections import deque
from typing import NamedTuple, Protocol

from kwire.streams.log import NotReady, StreamLog
from kwire.web.browse.record_cursor import RecordCursor, ScanCounts, ScanRules
from kwire.web.browse.record_json import FoundRecord

# A backward scan reads windows of offsets. It begins with a small window, and doubles it while windows are cheap.
WINDOW_OFFSETS_MIN = 16
WINDOW_OFFSETS_MAX = 1 << 24
WINDOW_BYTES_CHEAP = 256 * 1024
WINDOW_BYTES_LARGE = 2 * 1024 * 1024


class Pacer(Protocol):
    """Lets a scan yield to the event loop, and ends it by an exception."""

    async def pause(self) -> None:
        """Called after each chunk of work."""
        ...

    async def wait(self, needed: NotReady) -> None:
        """Called if the next chunk needs a disk or a thread."""
        ...


class Pending(NamedTuple):
    """A record that was found and not sent yet. Records are sent in the order of `rank`."""

    rank: int
    record: FoundRecord


class PartitionScan(ABC):
    """A scan of one partition. `rank` is the lowest rank that records may have which were not examined yet."""

    def __init__(self, log: StreamLog, rules: ScanRules, counts: ScanCounts) -> None:
        self.log = log
        self._rules = rules
        self._counts = counts
        self.pending: deque[Pending] = deque()
        # None before the first chunk: then the partition is examined first.
        self.rank: int | None = None

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether all offsets were examined."""

    @property
    @abstractmethod
    def position(self) -> int:
        """The offset where the scan continues, forwards from it or backwards before it."""

    @property
    @abstractmethod
    def offsets_left(self) -> int: ...

    @abstractmethod
    async def advance(self, pacer: Pacer, count_max: int) -> None:
        """Examine a chunk, and append at most `count_max` records to `pending`."""

    @abstractmethod
    def release(self) -> None:
        """Release the memory of the log before a longer wait."""

    @abstractmethod
    def drop_after_first(self) -> None:
        """Drop all pending records but the first, and examine them again later."""

    @property
    def next_offset(self) -> int:
        """The `next` with which a later request continues after the last record that was sent."""
        return self._resume_at(self.pending[0].record) if self.pending else self.position

    @abstractmethod
    def _resume_at(self, record: FoundRecord) -> int:
        """Return the position before which `record` has not been examined."""

    def _put(self, found: list[FoundRecord]) -> None:
        """Append records in the order of the scan. Ranks never decrease, so the order of offsets is kept."""
        for record in found:
            rank = self._rank_of(record.timestamp_ms)
            last = self.pending[-1].rank if self.pending else self.rank
            self.pending.append(Pending(rank if last is None else max(rank, last), record))

    @abstractmethod
    def _rank_of(self, timestamp_ms: int) -> int: ...

    def _raise_rank(self, timestamp_ms: int | None) -> None:
        if timestamp_ms is not None:
            rank = self._rank_of(timestamp_ms)
            self.rank = rank if self.rank is None else max(self.rank, rank)


class ForwardScan(PartitionScan):
    """Examines the records from `position` up to, not including, `upto`, the oldest first."""

    def __init__(self, log: StreamLog, position: int, upto: int, rules: ScanRules, counts: ScanCounts) -> None:
        super().__init__(log, rules, counts)
        self._cursor = RecordCursor(log, position, upto, rules, counts)

    @property
    def is_done(self) -> bool:
        return self._cursor.is_done

    @property
    def position(self) -> int:
        return self._cursor.position

    @property
    def offsets_left(self) -> int:
        return max(0, self._cursor.upto - self._cursor.position)

    def extend(self, upto: int) -> None:
        """Continue up to a new end of the log."""
        self._cursor.upto = max(self._cursor.upto, upto)

    async def advance(self, pacer: Pacer, count_max: int) -> None:
        found: list[FoundRecord] = []
        needed = self._cursor.read(found, count_max)
        self._put(found)
        if self.pending:
            self.rank = self.pending[-1].rank
        elif self._cursor.last_timestamp_ms is not None:
            self._raise_rank(self._cursor.last_timestamp_ms)
        if needed is None:
            await pacer.pause()
        else:
            await pacer.wait(needed)

    def release(self) -> None:
        self._cursor.release()

    def drop_after_first(self) -> None:
        while len(self.pending) > 1:
            dropped = self.pending.pop()
            self._cursor.seek(dropped.record.offset)
            self.rank = dropped.rank

    def _resume_at(self, record: FoundRecord) -> int:
        return record.offset

    def _rank_of(self, timestamp_ms: int) -> int:
        return timestamp_ms


class BackwardScan(PartitionScan):
    """Examines the records before `top`, down to `start`, the newest first."""

    def __init__(self, log: StreamLog, start: int, top: int, rules: ScanRules, counts: ScanCounts) -> None:
        super().__init__(log, rules, counts)
        self._start = start
        self._top = max(start, top)
        self._window = WINDOW_OFFSETS_MIN
        # The cursor over the current window.
        self._cursor: RecordCursor | None = None

    @property
    def is_done(self) -> bool:
        return self._top <= self._start

    @property
    def position(self) -> int:
        return self._top

    @property
    def offsets_left(self) -> int:
        return self._top - self._start

    async def advance(self, pacer: Pacer, count_max: int) -> None:
        bottom = max(self._start, self._top - self._window)
        bytes_before = self._counts.scanned_bytes
        cursor = self._cursor = RecordCursor(
            self.log, bottom, self._top, self._rules, self._counts, is_aligned=True, lowest=self._start
        )
        kept: deque[FoundRecord] = deque(maxlen=count_max)
        is_cut = False
        while not cursor.is_done:
            found: list[FoundRecord] = []
            needed = cursor.read(found, count_max)
            is_cut = is_cut or len(kept) + len(found) > count_max
            kept.extend(found)
            if needed is None:
                await pacer.pause()
            else:
                await pacer.wait(needed)
        self._cursor = None
        self._put(list(reversed(kept)))
        if is_cut:
            self._top = kept[0].offset
            self.rank = self.pending[-1].rank
        else:
            self._top = cursor.first_offset
            self._raise_rank(cursor.first_timestamp_ms)
            if self.pending:
                self.rank = max(self.rank or self.pending[-1].rank, self.pending[-1].rank)
        self._resize(self._counts.scanned_bytes - bytes_before, is_cut=is_cut)

    def drop_after_first(self) -> None:
        while len(self.pending) > 1:
            dropped = self.pending.pop()
            self._top = dropped.record.offset + 1
            self.rank = dropped.rank

    def release(self) -> None:
        if self._cursor is not None:
            self._cursor.release()

    def _resize(self, window_bytes: int, *, is_cut: bool) -> None:
        if window_bytes < WINDOW_BYTES_CHEAP and not is_cut:
            self._window = min(2 * self._window, WINDOW_OFFSETS_MAX)
        elif window_bytes > WINDOW_BYTES_LARGE or is_cut:
            self._window = max(self._window // 2, WINDOW_OFFSETS_MIN)

    def _resume_at(self, record: FoundRecord) -> int:
        return record.offset + 1

    def _rank_of(self, timestamp_ms: int) -> int:
        return -timestamp_ms
