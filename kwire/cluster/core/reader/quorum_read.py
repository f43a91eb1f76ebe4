"""Quorum reads: entries that are acknowledged, computed by the reader without waiting for the acked index.

A reader asks the replicas for all their entries. A slot is acknowledged if W replicas hold it with the same stamp and
all slots before it are acknowledged. The answers may come from different moments: a recovery that decided otherwise has
sealed R replicas before, one of which is among the W and would have shown its copy to the recovery.
"""

from collections.abc import Sequence

from kwire.cluster.core.entries import Entry, Kind, Run
from kwire.cluster.core.messages import Peeked
from kwire.cluster.core.quorum import Quorum
from kwire.cluster.core.runs import EntryRuns


def acknowledged(first: int, answers: Sequence[Peeked], quorum: Quorum) -> list[Entry]:
    """The acknowledged entries from `first` on that these answers prove, one answer of each replica.

    All slots before `first` must be acknowledged, and all earlier segments sealed.
    """
    read = _QuorumRead(answers, quorum)
    found: list[Entry] = []
    while (entry := read.proven(first + len(found))) is not None:
        found.append(entry)
        if entry.kind is Kind.BRIDGE:
            break
    return found


class _QuorumRead:
    def __init__(self, answers: Sequence[Peeked], quorum: Quorum) -> None:
        self._answers, self._quorum = answers, quorum
        self._runs = [EntryRuns(answer.runs) for answer in answers]
        self._acked = max((answer.acked for answer in answers), default=0)
        self._entries = {(one.index, one.kind, one.birth_epoch): one for answer in answers for one in answer.entries}

    def proven(self, index: int) -> Entry | None:
        held = [run for runs in self._runs if (run := runs.at(index)) is not None]
        newest = max(held, key=lambda run: run.stamp_epoch, default=None)
        if newest is None or not self._is_acknowledged(index, newest, held):
            return None
        return self._entries.get((index, *newest.identity()))

    def _is_acknowledged(self, index: int, newest: Run, held: Sequence[Run]) -> bool:
        if sum(run.stamp_epoch == newest.stamp_epoch for run in held) >= self._quorum.writes:
            return True
        # An entry up to an acked index is acknowledged. R definite answers show which of the copies it is.
        definite = sum(not any(one.first <= index <= one.last for one in answer.unknown) for answer in self._answers)
        return index <= self._acked and definite >= self._quorum.reads
