"""The entries of a replica as runs: what is at each index, without the payloads."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter

from kwire.cluster.core.entries import Run, joined

_first = attrgetter("first")
_last = attrgetter("last")


class EntryRuns:
    """Runs in index order. They do not overlap; adjacent runs differ in their kind or epochs."""

    __slots__ = ("_runs",)

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs = joined(runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def last(self) -> int:
        """The largest index, or 0."""
        return self._runs[-1].last if self._runs else 0

    def at(self, index: int) -> Run | None:
        """The run that contains the index."""
        position = bisect_left(self._runs, index, key=_last)
        if position < len(self._runs) and self._runs[position].first <= index:
            return self._runs[position]
        return None

    def between(self, first: int, last: int) -> Iterator[Run]:
        """The runs from `first` to `last`, cut at both ends."""
        position = bisect_left(self._runs, first, key=_last)
        while position < len(self._runs) and self._runs[position].first <= last:
            run = self._runs[position]
            yield run._replace(first=max(run.first, first), last=min(run.last, last))
            position += 1

    def put(self, run: Run) -> None:
        """Replace the entries of these indexes."""
        runs = self._runs
        if not runs or runs[-1].last < run.first:
            start = end = len(runs)
        else:
            start, end = bisect_left(runs, run.first, key=_last), bisect_right(runs, run.last, key=_first)
        pieces = [run]
        if start < end:
            if runs[start].first < run.first:
                pieces.insert(0, runs[start]._replace(last=run.first - 1))
            if runs[end - 1].last > run.last:
                pieces.append(runs[end - 1]._replace(first=run.last + 1))
        # The neighbours may now be equal to the new run.
        start, end, neighbours = max(start - 1, 0), min(end + 1, len(runs)), (start, end)
        runs[start:end] = joined([*runs[start : neighbours[0]], *pieces, *runs[neighbours[1] : end]])

    def remove_after(self, index: int) -> None:
        while self._runs and self._runs[-1].last > index:
            run = self._runs.pop()
            if run.first <= index:
                self._runs.append(run._replace(last=index))
