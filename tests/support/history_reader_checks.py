"""Checks of what each reader was given, and in which order."""

from collections import defaultdict
from collections.abc import Iterator
from math import inf

from tests.support.history import Place, Read
from tests.support.history_anomalies import Anomaly, Kind
from tests.support.history_view import HistoryView, Reading, RunningMaximum, reached, told


def reader_positions(view: HistoryView) -> Iterator[Anomaly]:
    for reading in view.readings.values():
        assert reading.start is not None, f"{reading.reader} reads {reading.place} without a beginning"
        position = reading.start
        for step in reading.steps:
            offset = step.offset if isinstance(step, Read) else step.position
            if offset < position:
                what = f"got {step.value} at {offset}" if isinstance(step, Read) else f"is at {offset}"
                yield Anomaly(Kind.READER_WENT_BACK, f"{reading.reader} was at {reading.place}@{position}, {what}")
            position = max(position, reached(step))


def skipped_records(view: HistoryView) -> Iterator[Anomaly]:
    for reading in view.readings.values():
        got = {read.offset for read in reading.reads}
        for offset, value in view.committed.get(reading.place, {}).items():
            if (reading.start or 0) <= offset < reading.position and offset not in got:
                facts = f"{reading.reader} is at {reading.place}@{reading.position} and never got {value} at {offset}"
                yield Anomaly(Kind.SKIPPED_RECORD, f"{facts}, of {view.transaction_of(value)}")


def inconsistent_offsets(view: HistoryView) -> Iterator[Anomaly]:
    first: dict[tuple[Place, int], tuple[str, str]] = {}
    for place, records in view.log.items():
        for offset, value in records.items():
            first[place, offset] = (value, "the log")
    for seen in view.observations():
        value, reader = first.setdefault((seen.place, seen.offset), (seen.value, seen.reader))
        if value != seen.value:
            yield Anomaly(Kind.INCONSISTENT_OFFSET, f"{told(seen)}, {reader} has {value} there")


def vanished_records(view: HistoryView) -> Iterator[Anomaly]:
    for seen in view.observations():
        transaction = view.transaction_of(seen.value)
        is_there = seen.value in view.committed_values
        # One that was never committed is an aborted read, whether it is still there or not.
        if transaction is not None and transaction.may_commit and not is_there:
            yield Anomaly(Kind.VANISHED_RECORD, f"{told(seen)}, of {transaction}")


def reads_past_open_transactions(view: HistoryView) -> Iterator[Anomaly]:
    open_records: dict[Place, list[tuple[int, float, str]]] = defaultdict(list)
    for transaction in view.transactions.values():
        until = transaction.open_until
        for sent in transaction.sent:
            for place, offset in view.offsets_in_log.get(sent.value, ()):
                open_records[place].append((offset, until, f"{sent.value}@{offset}"))
    latest = {place: RunningMaximum(records) for place, records in open_records.items()}
    for reading in view.readings.values():
        if reading.place in latest:
            yield from _passed_open(reading, latest[reading.place])


def _passed_open(reading: Reading, latest: RunningMaximum) -> Iterator[Anomaly]:
    for step in reading.steps:
        # A record of the open transaction itself is a dirty or an aborted read.
        position = step.offset if isinstance(step, Read) else step.position
        until, record = latest.below(position)
        if step.at < until:
            open_for = "ever" if until == inf else f"{until - step.at:.6f} s more"
            facts = f"{reading.reader} is at {reading.place}@{position} while {record} is open for {open_for}"
            yield Anomaly(Kind.READ_PAST_OPEN_TRANSACTION, facts)
            return


READER_CHECKS = (
    reader_positions,
    skipped_records,
    inconsistent_offsets,
    vanished_records,
    reads_past_open_transactions,
)
