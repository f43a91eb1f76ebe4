"""What can be wrong with a history of transactions, by name."""

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

FACTS_SHOWN_MAX = 5


class Kind(StrEnum):
    """Everything that can be wrong."""

    # What is committed.
    ABORTED_READ = "a reader was given a record of a transaction that was not committed"
    DIRTY_READ = "a reader was given a record before its producer asked for the commit"
    LOST_WRITE = "a record of a transaction that was confirmed as committed is missing"
    TORN_TRANSACTION = "a transaction that was confirmed as committed is there in part"
    PARTLY_THERE = "a transaction of unknown outcome is there in part"
    DUPLICATE = "a committed record stands at two offsets"
    HANGING_TRANSACTION = "readers of committed records never reach the end of the log"
    CIRCULAR_FLOW = "transactions have read from each other"
    # The log under it.
    PHANTOM = "a record that nobody sent"
    MISPLACED_RECORD = "a record stands in a partition to which it was not sent"
    DOUBLED_APPEND = "a record was appended twice"
    LOST_APPEND = "a record that was acknowledged is not in the log"
    MOVED_RECORD = "a record stands at another offset than its producer was told"
    BROKEN_ORDER = "records of one transaction stand in another order than they were sent"
    LATE_WRITE = "a record stands behind those of the next transaction of its transactional id"
    BROKEN_REAL_TIME_ORDER = "a record stands before one that was acknowledged before it was sent"
    ZOMBIE_WRITE = "a record was stored that its producer sent after it was fenced"
    ZOMBIE_COMMIT = "a transaction was committed whose producer asked for it after it was fenced"
    # Readers.
    READER_WENT_BACK = "a reader was given an offset below its position"
    SKIPPED_RECORD = "a reader passed a committed record without getting it"
    INCONSISTENT_OFFSET = "readers were given different records at one offset"
    VANISHED_RECORD = "a reader was given a committed record that is gone later"
    READ_PAST_OPEN_TRANSACTION = "a reader passed a record whose transaction was still open"
    # Groups, and programs that read, write and commit their position in one transaction.
    ABORTED_OFFSET = "a group stands at a position that was not committed"
    DIRTY_OFFSET = "a group stood at a position before its commit was asked for"
    PHANTOM_OFFSET = "a group stands at a position that nobody committed"
    LOST_OFFSET = "a group stands before a position that was committed"
    OFFSET_WITHOUT_RECORDS = "a transaction's position was committed, but not its records"
    PROCESSED_TWICE = "an input has two outputs"
    NOT_PROCESSED = "a group is past an input that has no output"


class Anomaly(NamedTuple):
    """One broken promise."""

    kind: Kind
    facts: str


def report(anomalies: Iterable[Anomaly]) -> str:
    """How many of each kind, and the facts of the first few."""
    by_kind: dict[Kind, list[str]] = defaultdict(list)
    for kind, facts in anomalies:
        by_kind[kind].append(facts)
    lines = []
    for kind, all_facts in by_kind.items():
        lines.append(f"{kind.name}: {kind} ({len(all_facts)})")
        lines += [f"    {facts}" for facts in all_facts[:FACTS_SHOWN_MAX]]
    return "\n".join(lines)
