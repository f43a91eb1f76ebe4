"""BatchCache: record batches that were fetched, for all readers of all remote logs. No I/O.

A *run* is what one fetch has returned: whole batches and the aborted transactions among them. The runs of all logs
share one bound; the run that was read the longest time ago is evicted first.
"""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from kwire.errors import ErrorCode, KafkaError
from kwire.streams.log import StreamRead
from storage.batch.format import ABORT, CONTROL_BIT, HEADER_BYTES, MAGIC, NO_TIMESTAMP
from storage.batch.markers import control_type_of
from storage.batch.record_batch import parse_header
from storage.log.transactions import AbortedTransaction

CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
# What a run and each of its batches cost beside their bytes.
_RUN_BYTES: Final = 600
_BATCH_BYTES: Final = 150


class FirstOfTransaction(NamedTuple):
    """An aborted transaction as a fetch names it: the end is not known."""

    first_offset: int
    producer_id: int


class Run:
    """Whole batches. The run answers reads from `start` up to, not including, `next_offset`."""

    __slots__ = ("_ends", "_lasts", "aborted", "cost_bytes", "data", "last_timestamp_ms", "next_offset", "start")

    def __init__(
        self, start: int, data: memoryview, aborted: Iterable[FirstOfTransaction] = (), next_offset: int | None = None
    ) -> None:
        """`start` is the offset that was asked for. `next_offset` is after the last batch, unless it is given.

        Raises KafkaError if the bytes are not batches. An incomplete last batch is left out.
        """
        self.start = start
        self.last_timestamp_ms = NO_TIMESTAMP
        self._lasts: list[int] = []
        self._ends: list[int] = []
        begun = sorted(aborted, reverse=True)
        open_since: dict[int, int] = {}
        ended: list[AbortedTransaction] = []
        position, size = 0, len(data)
        while size - position >= HEADER_BYTES:
            header = parse_header(data, position)
            end = position + header.size_bytes
            if header.magic != MAGIC or end - position < HEADER_BYTES:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the bytes after offset {start} are not record batches of format {MAGIC}",
                )
            if end > size:
                break
            while begun and begun[-1].first_offset <= header.last_offset:
                one = begun.pop()
                open_since[one.producer_id] = one.first_offset
            if (
                header.attributes & CONTROL_BIT
                and header.producer_id in open_since
                and control_type_of(data[position:end]) == ABORT
            ):
                first_offset = open_since.pop(header.producer_id)
                ended.append(AbortedTransaction(header.producer_id, first_offset, header.base_offset))
            self.last_timestamp_ms = max(self.last_timestamp_ms, header.max_timestamp)
            self._lasts.append(header.last_offset)
            self._ends.append(end)
            position = end
        last = self._lasts[-1] if self._lasts else start - 1
        self.next_offset = last + 1 if next_offset is None else next_offset
        # Of transactions without a marker in this run, everything in the run is aborted.
        ended += [AbortedTransaction(producer_id, first, last) for producer_id, first in open_since.items()]
        self.aborted: Sequence[AbortedTransaction] = sorted(ended, key=attrgetter("first_offset"))
        self.data = data[:position]
        self.cost_bytes = position + _RUN_BYTES + _BATCH_BYTES * len(self._ends)

    def own(self) -> None:
        """Copy the bytes, so that the run does not keep a larger response in memory."""
        self.data = memoryview(bytes(self.data))

    def read(self, offset: int, max_bytes: int) -> StreamRead | None:
        """Return the batches from an offset on; None if the run has no batch from there on."""
        first = bisect_left(self._lasts, offset)
        if first == len(self._lasts):
            return None
        begin = self._ends[first - 1] if first else 0
        last = max(first, bisect_right(self._ends, begin + max_bytes, first) - 1)
        is_whole = last == len(self._ends) - 1
        next_offset = self.next_offset if is_whole else self._lasts[last] + 1
        aborted = self.aborted
        if aborted:
            aborted = [one for one in aborted if one.first_offset < next_offset and one.last_offset >= offset]
        return StreamRead(self.data[begin : self._ends[last]], next_offset, aborted)


_by_start = attrgetter("start")


class LogRuns:
    """The runs of one log and one isolation level, in the order of their starts."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def find(self, offset: int) -> Run | None:
        """Return a run that answers a read at an offset."""
        number = bisect_right(self.runs, offset, key=_by_start) - 1
        if number < 0 or self.runs[number].next_offset <= offset:
            return None
        return self.runs[number]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)


class BatchCache:
    """The runs of all logs. `used_bytes` stays below `bytes_max`, except for one run that is larger."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._order: OrderedDict[Run, LogRuns] = OrderedDict()

    def add(self, runs: LogRuns, run: Run) -> None:
        """Add a run, in place of one with the same start, and evict those that were not read for the longest time."""
        number = bisect_left(runs.runs, run.start, key=_by_start)
        if number < len(runs.runs) and runs.runs[number].start == run.start:
            self._drop(runs.runs[number])
        insort(runs.runs, run, key=_by_start)
        self._order[run] = runs
        self.used_bytes += run.cost_bytes
        while self.used_bytes > self.bytes_max and len(self._order) > 1:
            self._drop(next(iter(self._order)))

    def read(self, runs: LogRuns, offset: int, max_bytes: int) -> StreamRead | int:
        """Return cached batches from an offset on, or the offset from which on nothing is cached.

        This offset is higher than `offset` if there are no batches up to it.
        """
        while (run := runs.find(offset)) is not None:
            self._order.move_to_end(run)
            if (read := run.read(offset, max_bytes)) is not None:
                return read
            offset = run.next_offset
        return offset

    def clear(self, runs: LogRuns) -> None:
        """Drop all runs of a log."""
        for run in list(runs):
            self._drop(run)

    def _drop(self, run: Run) -> None:
        runs = self._order.pop(run).runs
        del runs[bisect_left(runs, run.start, key=_by_start)]
        self.used_bytes -= run.cost_bytes
