"""The decision of a recovery: what the content of a segment is, given the answers of enough replicas.

For every slot, at least R replicas must give a definite answer: the slot's entry, or that there is none. Any R replicas
share one with the W replicas of an acknowledgement, so an acknowledged entry is always among the answers. If the copies
of a slot differ, the one with the highest stamp holds: its leader has heard R replicas, too.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from kwire.cluster.core.entries import INDEX_MAX, Kind, Range, Run, joined
from kwire.cluster.core.messages import Sealed
from kwire.cluster.core.policies import Gaps
from kwire.cluster.core.quorum import Quorum
from kwire.cluster.core.runs import EntryRuns


class Decision(Struct, frozen=True):
    """The content of a segment: `runs` from index 1 on, then the bridge at `end`.

    Entries up to `base` were acknowledged before. The recovery replicates those after it with its own stamp. A bridge
    that was found keeps its birth epoch, like every other entry.
    """

    base: int
    end: int
    runs: tuple[Run, ...]
    bridge_birth_epoch: int


class Undecided(Struct, frozen=True):
    """More answers are needed for the slot at `index`. If `is_lost`, no replica holds this acknowledged entry."""

    index: int
    is_lost: bool = False


def decide(answers: Sequence[Sealed], quorum: Quorum, gaps: Gaps, epoch: int) -> Decision | Undecided:
    """Decide the content from one answer of each replica that has answered. `epoch` is that of the recovery."""
    base = max((answer.acked for answer in answers), default=0)
    columns = [_Column(answer) for answer in answers]
    bridges = [(run.first, run.stamp_epoch) for answer in answers for run in answer.runs if run.kind is Kind.BRIDGE]
    last = max((_last_valid(column.runs, bridges) for column in columns), default=0)
    runs: list[Run] = []
    for slots in _intervals(columns, max(base, last)):
        # A replica whose range is unknown may have lost the entry with the highest stamp.
        if sum(not column.is_unknown(slots.first) for column in columns) < quorum.reads:
            return Undecided(slots.first)
        winner = _winner(columns, slots.first, bridges)
        if winner is not None and winner.kind is not Kind.BRIDGE:
            runs.append(winner._replace(first=slots.first, last=slots.last))
            continue
        if winner is None and slots.first <= base:
            is_lost = len(answers) == quorum.replicas
            return Undecided(slots.first, is_lost)
        if winner is None and gaps is Gaps.FILLED and slots.first < last:
            runs.append(Run(slots.first, slots.last, Kind.HOLE, epoch, epoch))
            continue
        birth_epoch = epoch if winner is None else winner.birth_epoch
        return Decision(base, slots.first, tuple(joined(runs)), birth_epoch)
    raise AssertionError("the last interval has no entries")


class _Column:
    """The answer of one replica, by index."""

    __slots__ = ("runs", "unknown")

    def __init__(self, answer: Sealed) -> None:
        self.runs = EntryRuns(answer.runs)
        self.unknown = answer.unknown

    def is_unknown(self, index: int) -> bool:
        return any(one.first <= index <= one.last for one in self.unknown)


def _intervals(columns: Sequence[_Column], last: int) -> Iterator[Range]:
    """Ranges within which every answer stays the same. The last one begins after all entries."""
    cuts = {1, last + 1}
    for column in columns:
        for first, end, *_ in (*column.runs, *column.unknown):
            cuts |= {first, end + 1}
    firsts = sorted(cut for cut in cuts if cut <= last + 1)
    for first, following in zip(firsts, [*firsts[1:], INDEX_MAX + 1], strict=True):
        yield Range(first, following - 1)


def _is_ended(run: Run, index: int, bridges: Sequence[tuple[int, int]]) -> bool:
    """Whether a bridge with a higher stamp is before the index: its recovery had decided that nothing follows."""
    return any(bridge < index and run.stamp_epoch < stamp for bridge, stamp in bridges)


def _winner(columns: Sequence[_Column], index: int, bridges: Sequence[tuple[int, int]]) -> Run | None:
    found = [run for column in columns if (run := column.runs.at(index)) is not None]
    return max(
        (run for run in found if not _is_ended(run, index, bridges)), key=lambda run: run.stamp_epoch, default=None
    )


def _last_valid(runs: EntryRuns, bridges: Sequence[tuple[int, int]]) -> int:
    """The last index of an entry that is not behind a bridge with a higher stamp."""
    last = 0
    for run in runs:
        ends = [bridge for bridge, stamp in bridges if run.stamp_epoch < stamp]
        last = max(last, min([run.last, *ends]) if not ends or run.first <= min(ends) else 0)
    return last
