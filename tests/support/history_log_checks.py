"""Checks of what is committed, and of the log under it."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.support.history import Isolation, Place
from tests.support.history_anomalies import Anomaly, Kind
from tests.support.history_view import HistoryView, Transaction, listed, told


def aborted_and_dirty_reads(view: HistoryView) -> Iterator[Anomaly]:
    for seen in view.observations():
        transaction = view.transaction_of(seen.value)
        if transaction is None:
            continue
        if not transaction.may_commit:
            yield Anomaly(Kind.ABORTED_READ, f"{told(seen)}, sent by {transaction}")
        elif seen.at < transaction.commit_asked_at:
            ahead_s = transaction.commit_asked_at - seen.at
            yield Anomaly(Kind.DIRTY_READ, f"{told(seen)}, {ahead_s:.6f} s before {transaction} asked")


def lost_and_torn_transactions(view: HistoryView) -> Iterator[Anomaly]:
    for transaction in view.transactions.values():
        missing = [sent for sent in transaction.sent if sent.value not in view.committed_values]
        if not missing or not transaction.may_commit:
            continue
        places = ", ".join(f"{sent.value} in {sent.place} ({where(view, sent.value)})" for sent in missing)
        facts = f"{transaction}: {len(missing)} of {len(transaction.sent)} missing: {places}"
        is_part = len(missing) < len(transaction.sent)
        if transaction.must_commit:
            yield Anomaly(Kind.LOST_WRITE, facts)
        if is_part:
            yield Anomaly(Kind.TORN_TRANSACTION if transaction.must_commit else Kind.PARTLY_THERE, facts)


def where(view: HistoryView, value: str) -> str:
    offsets = [f"@{offset}" for _, offset in view.offsets_in_log.get(value, ())]
    return f"in the log {', '.join(offsets)}" if offsets else "not in the log"


def duplicates(view: HistoryView) -> Iterator[Anomaly]:
    seen_at: dict[str, set[tuple[Place, int]]] = defaultdict(set)
    for seen in view.observations():
        seen_at[seen.value].add((seen.place, seen.offset))
    for value, offsets in seen_at.items():
        if len(offsets) > 1:
            yield Anomaly(Kind.DUPLICATE, f"{value} at {listed(offsets)}")
    for value, found in view.offsets_in_log.items():
        if len(found) > 1 and len(seen_at[value]) < 2:
            yield Anomaly(Kind.DOUBLED_APPEND, f"{value} at {listed(found)}")


def hanging_transactions(view: HistoryView) -> Iterator[Anomaly]:
    for place, log in view.final[Isolation.UNCOMMITTED].items():
        stable = view.final[Isolation.COMMITTED][place].end_offset
        if stable < log.end_offset:
            value = view.log[place].get(stable)
            transaction = None if value is None else view.transaction_of(value)
            facts = (
                f"{place} ends at {log.end_offset}, committed records at {stable}, where {value} of {transaction} is"
            )
            yield Anomaly(Kind.HANGING_TRANSACTION, facts)


def circular_flow(view: HistoryView) -> Iterator[Anomaly]:
    """A cycle of transactions of which each has made records out of the records of the one before."""
    readers: dict[str, set[str]] = defaultdict(set)
    sources: Counter[str] = Counter()
    for transaction in view.transactions.values():
        read_from = set()
        for sent in transaction.sent:
            value = view.log.get(sent.source.place, {}).get(sent.source.offset) if sent.source else None
            writer = None if value is None else view.transaction_of(value)
            if writer is not None:
                read_from.add(writer.name)
        sources[transaction.name] = len(read_from)
        for name in read_from:
            readers[name].add(transaction.name)
    free = [name for name, count in sources.items() if count == 0]
    while free:
        for reader in readers[free.pop()]:
            sources[reader] -= 1
            if sources[reader] == 0:
                free.append(reader)
    left = sorted(name for name, count in sources.items() if count)
    if left:
        yield Anomaly(Kind.CIRCULAR_FLOW, f"among or behind {', '.join(left)}")


def strangers(view: HistoryView) -> Iterator[Anomaly]:
    """Every reader's records, and the log's: somebody sent them, and to that partition."""
    found = {(seen.place, seen.offset, seen.value) for seen in view.observations()}
    found |= {(place, offset, value) for place, records in view.log.items() for offset, value in records.items()}
    for place, offset, value in sorted(found):
        sent = view.sent.get(value)
        if sent is None:
            yield Anomaly(Kind.PHANTOM, f"{value} at {place}@{offset}")
        elif sent.place != place:
            yield Anomaly(Kind.MISPLACED_RECORD, f"{value} at {place}@{offset}, sent to {sent.place}")


def acknowledged_records(view: HistoryView) -> Iterator[Anomaly]:
    for ack in view.acknowledged:
        found = view.offsets_in_log.get(ack.value, [])
        if not found:
            yield Anomaly(Kind.LOST_APPEND, f"{ack.value}, acknowledged at {ack.place}@{ack.offset}")
        elif ack.offset >= 0 and (ack.place, ack.offset) not in found:
            yield Anomaly(
                Kind.MOVED_RECORD, f"{ack.value}, acknowledged at {ack.place}@{ack.offset}, is at {listed(found)}"
            )


def order_of_a_producer(view: HistoryView) -> Iterator[Anomaly]:
    """By partition: rising inside a transaction, and every transaction behind the one before it of the same id."""
    by_id: dict[str, list[Transaction]] = defaultdict(list)
    for transaction in view.transactions.values():
        by_id[transaction.transactional_id].append(transaction)
    for transactions in by_id.values():
        highest: dict[Place, tuple[int, str]] = {}
        for transaction in sorted(transactions, key=lambda one: (one.incarnation, one.begun_at)):
            own: dict[Place, tuple[int, str]] = {}
            for sent in transaction.sent:
                for offset in (
                    offset for place, offset in view.offsets_in_log.get(sent.value, ()) if place == sent.place
                ):
                    before, value = highest.get(sent.place, (-1, ""))
                    if offset < before:
                        facts = f"{value} at {sent.place}@{before} is behind {sent.value} of {transaction} at {offset}"
                        yield Anomaly(Kind.LATE_WRITE, facts)
                    before, value = own.get(sent.place, (-1, ""))
                    if offset < before:
                        facts = f"{sent.value} at {sent.place}@{offset} was sent after {value} at {before}"
                        yield Anomaly(Kind.BROKEN_ORDER, facts)
                    own[sent.place] = max(own.get(sent.place, (-1, "")), (offset, sent.value))
            for place, last in own.items():
                highest[place] = max(highest.get(place, (-1, "")), last)


def real_time_order(view: HistoryView) -> Iterator[Anomaly]:
    """Whatever is sent after an acknowledgement gets a higher offset, whoever sent the one or the other."""
    moments: list[tuple[float, int, Place, str, int]] = []
    for ack in view.acknowledged:
        moments.append((ack.at, 1, ack.place, ack.value, ack.offset))
    # A record sent at the very moment of an acknowledgement may have gone out before it.
    moments += [(sent.at, 0, sent.place, sent.value, -1) for sent in view.sent.values()]
    highest: dict[Place, tuple[int, str]] = {}
    for _, is_acknowledgement, place, value, offset in sorted(moments):
        before, earlier = highest.get(place, (-1, ""))
        if is_acknowledgement:
            highest[place] = max((before, earlier), (offset, value))
            continue
        for found_place, found in view.offsets_in_log.get(value, ()):
            if found_place == place and found < before:
                facts = f"{value} at {place}@{found} was sent after {earlier} was acknowledged at {before}"
                yield Anomaly(Kind.BROKEN_REAL_TIME_ORDER, facts)


def zombies(view: HistoryView) -> Iterator[Anomaly]:
    for transaction in view.transactions.values():
        fenced_at = transaction.fenced_at
        for sent in transaction.sent:
            if sent.at > fenced_at and sent.value in view.offsets_in_log:
                facts = f"{sent.value} at {listed(view.offsets_in_log[sent.value])}, {sent.at - fenced_at:.6f} s late"
                yield Anomaly(Kind.ZOMBIE_WRITE, facts)
        if transaction.must_commit and transaction.commit_asked_at > fenced_at and transaction.sent:
            yield Anomaly(Kind.ZOMBIE_COMMIT, f"{transaction}, {transaction.commit_asked_at - fenced_at:.6f} s late")


LOG_CHECKS = (
    aborted_and_dirty_reads,
    lost_and_torn_transactions,
    duplicates,
    hanging_transactions,
    circular_flow,
    strangers,
    acknowledged_records,
    order_of_a_producer,
    real_time_order,
    zombies,
)
