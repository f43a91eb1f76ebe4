"""Entries of a stream segment, and runs of entries that share their epochs."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct

# The last index of a range that has no end.
INDEX_MAX: Final = 2**62


class Kind(IntEnum):
    """The kind of an entry: an event of a user, a slot that stays empty, or the end of the segment."""

    EVENT = 0
    HOLE = 1
    BRIDGE = 2


class Position(NamedTuple):
    """The place of an entry in its stream."""

    segment_number: int
    entry_index: int


# Where a stream begins that was never trimmed.
FIRST_POSITION: Final = Position(1, 1)


class Entry(Struct, frozen=True, gc=False):
    """One slot of a segment. The first index is 1.

    `birth_epoch` is the epoch of the leader that created the entry; it never changes. `stamp_epoch` is the epoch of the
    leader that replicated it last. `index`, `kind` and `birth_epoch` identify the content: a leader creates at most one
    entry of each kind for an index.
    """

    index: int
    kind: Kind
    birth_epoch: int
    stamp_epoch: int
    payload: bytes = b""


class Range(NamedTuple):
    """Indexes from `first` to `last`, both included."""

    first: int
    last: int


class Run(NamedTuple):
    """Consecutive entries with the same kind and epochs."""

    first: int
    last: int
    kind: Kind
    birth_epoch: int
    stamp_epoch: int

    def identity(self) -> tuple[Kind, int]:
        """What identifies the content of each entry, together with its index."""
        return self.kind, self.birth_epoch


def run_of(entry: Entry) -> Run:
    return Run(entry.index, entry.index, entry.kind, entry.birth_epoch, entry.stamp_epoch)


def joined(runs: Iterable[Run]) -> list[Run]:
    """Join adjacent runs with equal kind and epochs. The runs are in index order and do not overlap."""
    result: list[Run] = []
    for run in runs:
        if result and result[-1].last + 1 == run.first and result[-1][2:] == run[2:]:
            result[-1] = result[-1]._replace(last=run.last)
        else:
            result.append(run)
    return result


def joined_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Sort ranges and join those that overlap or touch."""
    result: list[Range] = []
    for one in sorted(ranges):
        if result and one.first <= result[-1].last + 1:
            result[-1] = Range(result[-1].first, max(result[-1].last, one.last))
        else:
            result.append(one)
    return result


def without(ranges: Iterable[Range], removed: Range) -> list[Range]:
    """The ranges without the indexes of `removed`."""
    result = []
    for one in ranges:
        if one.first < removed.first:
            result.append(Range(one.first, min(one.last, removed.first - 1)))
        if one.last > removed.last:
            result.append(Range(max(one.first, removed.last + 1), one.last))
    return result
