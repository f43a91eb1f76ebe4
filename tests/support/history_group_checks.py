"""Checks of positions that groups commit in transactions, and of programs that read, write and commit in one."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.history import GroupOffsetRead, OffsetSent, Place, Source
from tests.support.history_anomalies import Anomaly, Kind
from tests.support.history_view import HistoryView, Transaction

NO_OFFSET = -1


class Commit(NamedTuple):
    """A position and the transaction with which it was sent."""

    sent: OffsetSent
    transaction: Transaction


GroupPlace = tuple[str, Place]


def commits_of(view: HistoryView) -> dict[GroupPlace, list[Commit]]:
    commits: dict[GroupPlace, list[Commit]] = defaultdict(list)
    for transaction in view.transactions.values():
        for sent in transaction.offsets:
            commits[sent.group, sent.place].append(Commit(sent, transaction))
    return commits


def positions_told(view: HistoryView) -> Iterator[Anomaly]:
    """Whoever asks is told a position that may be committed, and none before one that surely is."""
    commits = commits_of(view)
    for read in view.group_reads:
        yield from _is_allowed(read, commits[read.group, read.place])


def _is_allowed(read: GroupOffsetRead, commits: list[Commit]) -> Iterator[Anomaly]:
    facts = f"{read.group} was told {read.place}@{read.offset}"
    same = [commit for commit in commits if commit.sent.offset == read.offset and commit.sent.at <= read.at]
    if read.offset != NO_OFFSET:
        if not same:
            yield Anomaly(Kind.PHANTOM_OFFSET, facts)
        elif not any(commit.transaction.may_commit for commit in same):
            yield Anomaly(Kind.ABORTED_OFFSET, f"{facts}, sent by {listed_names(same)}")
        elif min(commit.transaction.commit_asked_at for commit in same if commit.transaction.may_commit) > read.at:
            yield Anomaly(Kind.DIRTY_OFFSET, f"{facts} before the commit of {listed_names(same)}")
    confirmed = [
        commit for commit in commits if commit.transaction.must_commit and commit.transaction.ended_at < read.asked_at
    ]
    highest = max(confirmed, key=lambda commit: commit.sent.offset, default=None)
    if highest is not None and read.offset < highest.sent.offset:
        yield Anomaly(Kind.LOST_OFFSET, f"{facts} after {highest.transaction} committed {highest.sent.offset}")


def listed_names(commits: list[Commit]) -> str:
    return ", ".join(str(commit.transaction) for commit in commits)


def positions_and_records(view: HistoryView) -> Iterator[Anomaly]:
    """In the end the records of a transaction are there if and only if its position is."""
    commits = commits_of(view)
    for read in view.group_reads:
        if not read.is_final:
            continue
        of_group = commits[read.group, read.place]
        for sent, transaction in of_group:
            is_there = any(one.value in view.committed_values for one in transaction.sent)
            # Confirmed ones are compared where the position is told.
            if is_there and sent.offset > read.offset and not transaction.must_commit:
                facts = f"{read.group} is at {read.place}@{read.offset}, records of {transaction} are there"
                yield Anomaly(Kind.LOST_OFFSET, f"{facts}, which committed {sent.offset}")
        last = [commit.transaction for commit in of_group if commit.sent.offset == read.offset]
        has_records = any(
            not transaction.sent or any(one.value in view.committed_values for one in transaction.sent)
            for transaction in last
        )
        if any(transaction.may_commit for transaction in last) and not has_records:
            facts = f"{read.group} is at {read.place}@{read.offset} by {', '.join(map(str, last))}"
            yield Anomaly(Kind.OFFSET_WITHOUT_RECORDS, facts)


def inputs_and_outputs(view: HistoryView) -> Iterator[Anomaly]:
    """Every input below the position of its group has one output, and no input has two."""
    outputs: dict[tuple[str, Source], list[str]] = defaultdict(list)
    for transaction in view.transactions.values():
        groups = {sent.group for sent in transaction.offsets}
        for sent in transaction.sent:
            if sent.source is not None and sent.value in view.committed_values:
                for group in groups:
                    outputs[group, sent.source].append(sent.value)
    for (group, source), values in outputs.items():
        if len(values) > 1:
            yield Anomaly(Kind.PROCESSED_TWICE, f"{group} made {', '.join(values)} of {source}")
    for read in view.group_reads:
        if not read.is_final:
            continue
        for offset, value in view.committed.get(read.place, {}).items():
            if offset < read.offset and not outputs.get((read.group, Source(read.place, offset))):
                facts = f"{read.group} is at {read.place}@{read.offset} without an output for {value} at {offset}"
                yield Anomaly(Kind.NOT_PROCESSED, facts)


GROUP_CHECKS = (positions_told, positions_and_records, inputs_and_outputs)
