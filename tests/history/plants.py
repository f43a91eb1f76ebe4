"""Anomalies to plant in good histories, each with the kinds that the checker must name.

Some break more than one promise, always or where chance has it so: a record that stands twice is mostly out of order as
well. `also` lists what may be named beside what must be; anything else is a false alarm.
"""

from collections.abc import Callable
from typing import NamedTuple

from tests.history.field import MOMENT_S, Field, ended_at
from tests.history.honest_world import DATA, INPUTS, OUTPUTS
from tests.support.history import (
    Acknowledged,
    Ended,
    Isolation,
    Outcome,
    Passed,
    Read,
    Sent,
    Source,
)
from tests.support.history_anomalies import Kind
from tests.support.history_view import Reading, Transaction

OUT_OF_ORDER = (Kind.BROKEN_ORDER, Kind.LATE_WRITE, Kind.BROKEN_REAL_TIME_ORDER)
# A record put anywhere in the log may stand where readers were before its transaction ended.
ANYWHERE = (*OUT_OF_ORDER, Kind.DIRTY_READ, Kind.READ_PAST_OPEN_TRANSACTION)


class Plant(NamedTuple):
    """One anomaly."""

    plant: Callable[[Field], None]
    kinds: frozenset[Kind]
    also: frozenset[Kind]


PLANTS: dict[str, Plant] = {}


def planted(*kinds: Kind, also: tuple[Kind, ...] = ()) -> Callable[[Callable[[Field], None]], Callable[[Field], None]]:
    def enter(plant: Callable[[Field], None]) -> Callable[[Field], None]:
        PLANTS[plant.__name__] = Plant(plant, frozenset(kinds), frozenset(also))
        return plant

    return enter


# --- what is committed


@planted(Kind.ABORTED_READ, also=(Kind.NOT_PROCESSED,))
def aborted_record_is_shown(field: Field) -> None:
    sent = field.pick(field.pick(field.aborted()).sent)
    field.show(sent.place, field.offset_of(sent.value), sent.value)


@planted(Kind.ABORTED_READ)
def aborted_record_is_shown_to_one_reader_once(field: Field) -> None:
    value, reading = field.pick(
        (sent.value, reading)
        for one in field.aborted()
        for sent in one.sent
        for reading in field.readings(passes(sent, field.offset_of(sent.value)))
    )
    field.show_to(reading, reading.place, field.offset_of(value), value)


def passes(sent: Sent, offset: int) -> Callable[[Reading], bool]:
    return lambda reading: reading.place == sent.place and (reading.start or 0) <= offset < reading.position


@planted(Kind.ABORTED_READ, also=(Kind.NOT_PROCESSED,))
def abandoned_transaction_is_shown(field: Field) -> None:
    transaction = field.pick(field.transactions(lambda one: one.outcome is None and not one.offsets))
    for sent in transaction.sent:
        field.show(sent.place, field.offset_of(sent.value), sent.value)


@planted(Kind.ABORTED_READ, also=(Kind.NOT_PROCESSED,))
def fenced_transaction_is_shown(field: Field) -> None:
    for sent in field.stored(field.pick(field.fenced())):
        field.show(sent.place, field.offset_of(sent.value), sent.value)


@planted(Kind.DIRTY_READ, also=(Kind.READ_PAST_OPEN_TRANSACTION,))
def record_is_shown_before_the_commit_is_asked(field: Field) -> None:
    transaction = field.pick(field.confirmed())
    sent = transaction.sent[0]
    at = transaction.commit_asked_at - MOMENT_S
    offset = field.offset_of(sent.value)
    reader = field.early_reader(sent.place, offset, at)
    field.add(at, Read(reader=reader, place=sent.place, offset=offset, value=sent.value))


@planted(Kind.LOST_WRITE)
def committed_transaction_is_taken_for_aborted(field: Field) -> None:
    field.hide(sent.value for sent in field.pick(field.confirmed()).sent)


@planted(Kind.LOST_WRITE, Kind.LOST_APPEND)
def committed_transaction_is_gone_from_the_log(field: Field) -> None:
    values = [sent.value for sent in field.pick(field.confirmed()).sent]
    field.hide(values)
    for value in values:
        field.unstore(value)


@planted(Kind.LOST_WRITE, Kind.TORN_TRANSACTION)
def commit_reached_some_partitions_only(field: Field) -> None:
    transaction = field.pick(one for one in field.confirmed() if len({sent.place for sent in one.sent}) > 1)
    place = field.pick({sent.place for sent in transaction.sent})
    field.hide(sent.value for sent in transaction.sent if sent.place == place)


@planted(Kind.LOST_WRITE, Kind.TORN_TRANSACTION)
def first_record_of_a_transaction_is_lost(field: Field) -> None:
    field.hide([field.pick(field.confirmed(at_least=2)).sent[0].value])


@planted(Kind.PARTLY_THERE)
def part_of_an_uncertain_commit_is_missing(field: Field) -> None:
    field.hide([field.pick(field.pick(field.uncertain(is_there=True)).sent).value])


@planted(Kind.PARTLY_THERE, also=(Kind.NOT_PROCESSED,))
def part_of_an_uncertain_abort_is_shown(field: Field) -> None:
    sent = field.pick(field.pick(field.uncertain(is_there=False)).sent)
    field.show(sent.place, field.offset_of(sent.value), sent.value)


@planted(Kind.DUPLICATE, also=(*OUT_OF_ORDER, Kind.NOT_PROCESSED))
def committed_record_stands_twice(field: Field) -> None:
    sent = field.pick(field.pick(field.confirmed()).sent)
    # Behind the first: before it could be a moment at which its transaction was not committed yet.
    offset = field.pick(field.marker_offsets(sent.place, above=field.offset_of(sent.value)))
    field.store(sent.place, offset, sent.value)
    field.show(sent.place, offset, sent.value)


@planted(Kind.DUPLICATE, Kind.MISPLACED_RECORD, also=ANYWHERE)
def committed_record_stands_in_two_partitions(field: Field) -> None:
    sent = field.pick(sent for one in field.confirmed() for sent in one.sent if sent.place in DATA)
    place = field.pick(place for place in DATA if place != sent.place)
    offset = field.pick(field.marker_offsets(place))
    field.store(place, offset, sent.value)
    field.show(place, offset, sent.value)


@planted(Kind.HANGING_TRANSACTION)
def transaction_never_ends(field: Field) -> None:
    sent = field.pick(field.pick(field.aborted()).sent)
    field.final(Isolation.COMMITTED, sent.place).end_offset = field.offset_of(sent.value)


@planted(Kind.CIRCULAR_FLOW)
def two_transactions_read_each_other(field: Field) -> None:
    one, other = OUTPUTS
    # Where each will be stored.
    sources = {place: Source(place, field.final(Isolation.UNCOMMITTED, place).end_offset) for place in OUTPUTS}
    field.extra_transaction("extra-1", [(one, sources[other])], outcome=Outcome.COMMITTED, is_there=True)
    field.extra_transaction("extra-2", [(other, sources[one])], outcome=Outcome.COMMITTED, is_there=True)


# --- the log under it


@planted(Kind.PHANTOM)
def record_that_nobody_sent(field: Field) -> None:
    place = field.pick(DATA)
    offset = field.pick(field.marker_offsets(place))
    field.store(place, offset, "nobody's")
    field.show(place, offset, "nobody's")


@planted(Kind.PHANTOM)
def marker_is_shown_as_a_record(field: Field) -> None:
    reading, offset = field.pick(
        (reading, offset)
        for reading in field.readings(lambda one: one.place in DATA)
        for offset in field.marker_offsets(reading.place)
        if (reading.start or 0) <= offset < reading.position
    )
    field.show_to(reading, reading.place, offset, "\x00\x00\x00\x01")


@planted(Kind.MISPLACED_RECORD, also=(Kind.MOVED_RECORD, *ANYWHERE))
def record_is_stored_in_another_partition(field: Field) -> None:
    sent = field.pick(sent for one in field.aborted() for sent in one.sent if sent.place in DATA)
    place = field.pick(place for place in DATA if place != sent.place)
    field.unstore(sent.value)
    field.store(place, field.pick(field.marker_offsets(place)), sent.value)


@planted(Kind.DOUBLED_APPEND, also=ANYWHERE)
def repeated_request_is_stored_twice(field: Field) -> None:
    sent = field.pick(field.pick(field.aborted()).sent)
    field.store(sent.place, field.pick(field.marker_offsets(sent.place)), sent.value)


@planted(Kind.LOST_APPEND)
def acknowledged_record_of_an_aborted_transaction_is_gone(field: Field) -> None:
    field.unstore(field.pick(field.pick(field.aborted()).sent).value)


@planted(Kind.MOVED_RECORD, also=(Kind.BROKEN_REAL_TIME_ORDER,))
def producer_is_told_another_offset(field: Field) -> None:
    told = field.pick(event for event in field.events if isinstance(event, Acknowledged) and event.offset >= 0)
    told.offset += 1


@planted(Kind.BROKEN_ORDER, also=(Kind.BROKEN_REAL_TIME_ORDER,))
def two_records_of_a_transaction_change_places(field: Field) -> None:
    first, second = field.pick(
        (first, second)
        for one in field.confirmed(at_least=2)
        for index, first in enumerate(one.sent)
        for second in one.sent[index + 1 :]
        if first.place == second.place
    )
    field.swap(first.value, second.value)


@planted(Kind.BROKEN_REAL_TIME_ORDER, also=ANYWHERE)
def records_of_two_producers_change_places(field: Field) -> None:
    acknowledged = {told.value: told for told in field.view.acknowledged if told.offset >= 0}
    transactions = field.confirmed()
    earlier, later = field.pick(
        (earlier, later)
        for one in transactions
        for other in transactions
        if one.transactional_id != other.transactional_id
        for earlier in one.sent
        for later in other.sent
        if earlier.place == later.place and earlier.value in acknowledged and acknowledged[earlier.value].at < later.at
    )
    field.swap(earlier.value, later.value)


@planted(Kind.LATE_WRITE, also=(Kind.MOVED_RECORD, Kind.BROKEN_ORDER))
def delayed_record_is_stored_after_the_next_transaction(field: Field) -> None:
    value, _ = delayed(field)
    assert value not in field.view.committed_values


@planted(Kind.LATE_WRITE, Kind.ABORTED_READ, also=(Kind.MOVED_RECORD, Kind.BROKEN_ORDER, Kind.NOT_PROCESSED))
def delayed_record_leaks_into_the_next_transaction(field: Field) -> None:
    """What KAFKA-17754 is about: the next commit takes a record along that belongs to an aborted transaction."""
    value, offset = delayed(field)
    field.show(field.view.sent[value].place, offset, value)


def delayed(field: Field) -> tuple[str, int]:
    """Moves a record of an aborted transaction behind the records of the next one of the same id."""
    sent, offset = field.pick(
        (sent, offset)
        for one in field.aborted()
        for sent in one.sent
        for other in field.transactions()
        if other.transactional_id == one.transactional_id
        and (other.incarnation, other.begun_at) > (one.incarnation, one.begun_at)
        for behind in field.stored(other)
        if behind.place == sent.place
        for offset in field.marker_offsets(sent.place, above=field.offset_of(behind.value))
    )
    field.unstore(sent.value)
    field.store(sent.place, offset, sent.value)
    return sent.value, offset


@planted(Kind.ZOMBIE_WRITE, also=ANYWHERE)
def record_of_a_fenced_producer_is_stored(field: Field) -> None:
    sent = field.pick(field.fenced()).sent[-1]
    field.store(sent.place, field.pick(field.marker_offsets(sent.place)), sent.value)


@planted(Kind.ZOMBIE_COMMIT, also=(Kind.NOT_PROCESSED,))
def fenced_producer_commits(field: Field) -> None:
    transaction = field.pick(field.fenced())
    late = transaction.sent[-1].value
    field.drop(lambda event: isinstance(event, Sent) and event.value == late)
    for event in field.events:
        if isinstance(event, Ended) and event.transaction == transaction.name:
            event.outcome = Outcome.COMMITTED
    for sent in field.stored(transaction):
        field.show(sent.place, field.offset_of(sent.value), sent.value)
    # Who read them before the late commit was asked for read them too early as well, which is not the point here.
    field.drop(
        lambda event: (
            isinstance(event, (Read, Passed))
            and event.reader != "last"
            and event.place in {sent.place for sent in transaction.sent}
        )
    )


# --- readers


def goes_on(reading: Reading) -> bool:
    return len(list(reading.reads)) > 3


@planted(Kind.READER_WENT_BACK)
def reader_gets_a_record_again(field: Field) -> None:
    reads = list(field.pick(field.readings(goes_on)).reads)
    again = field.pick(reads[:-1])
    index = field.events.index(reads[-1])
    repeated = Read(at=reads[-1].at, reader=again.reader, place=again.place, offset=again.offset, value=again.value)
    field.events.insert(index + 1, repeated)


@planted(Kind.READER_WENT_BACK)
def reader_gets_a_record_below_its_beginning(field: Field) -> None:
    reading, offset, value = field.pick(
        (reading, offset, value)
        for reading in field.readings(lambda one: bool(one.start and one.steps))
        for offset, value in field.view.committed[reading.place].items()
        if offset < (reading.start or 0)
    )
    first = reading.steps[0]
    read = Read(at=first.at, reader=reading.reader, place=reading.place, offset=offset, value=value)
    field.events.insert(field.events.index(first), read)


@planted(Kind.SKIPPED_RECORD)
def reader_misses_a_record(field: Field) -> None:
    read = field.pick(list(field.pick(field.readings(goes_on)).reads)[:-1])
    field.events.remove(read)


@planted(Kind.SKIPPED_RECORD)
def reader_misses_what_was_committed_last(field: Field) -> None:
    """It is told that it has reached the end."""
    reading = field.pick(field.readings(lambda one: one.reader == "last" and any(one.reads)))
    field.events.remove(list(reading.reads)[-1])


@planted(
    Kind.INCONSISTENT_OFFSET,
    Kind.DUPLICATE,
    also=(Kind.DIRTY_READ,),
)
def one_reader_gets_two_records_in_each_others_places(field: Field) -> None:
    first, *_, last = field.pick(field.readings(goes_on)).reads
    first.value, last.value = last.value, first.value


@planted(Kind.INCONSISTENT_OFFSET, Kind.DUPLICATE, also=(Kind.DIRTY_READ,))
def offset_is_given_out_twice(field: Field) -> None:
    """One reader sees what stood there before a crash, all others what was written there afterwards."""
    read, other = field.pick(
        (read, other)
        for reading in field.readings(goes_on)
        for read in reading.reads
        for other in reading.reads
        if other.offset > read.offset
    )
    read.value = other.value


@planted(Kind.VANISHED_RECORD)
def transaction_is_gone_after_it_was_read(field: Field) -> None:
    read_live = {read.value for reading in field.readings(lambda one: one.reader != "last") for read in reading.reads}
    transaction = field.pick(
        one for one in field.uncertain(is_there=True) if any(sent.value in read_live for sent in one.sent)
    )
    field.hide((sent.value for sent in transaction.sent), also_from_readers=False)


@planted(Kind.READ_PAST_OPEN_TRANSACTION)
def reader_passes_an_open_transaction(field: Field) -> None:
    transaction = field.pick(field.aborted())
    sent = field.pick(transaction.sent)
    at = transaction.abort_asked_at - MOMENT_S
    offset = field.offset_of(sent.value)
    reader = field.early_reader(sent.place, offset, at)
    field.add(at, Passed(reader=reader, place=sent.place, position=offset + 1))


@planted(Kind.READ_PAST_OPEN_TRANSACTION, also=(Kind.DIRTY_READ,))
def reader_gets_a_record_behind_an_open_transaction(field: Field) -> None:
    """What it gets may be committed; but what stands before it is not decided."""
    opened, behind, at = field.pick(
        (sent, behind, one.open_until - MOMENT_S)
        for one in field.transactions()
        for sent in field.stored(one)
        for other in field.confirmed()
        if other is not one
        for behind in other.sent
        if behind.place == sent.place
        and behind.at < one.open_until - MOMENT_S
        and field.offset_of(behind.value) > field.offset_of(sent.value)
    )
    offset = field.offset_of(behind.value)
    reader = field.early_reader(opened.place, offset, at)
    field.add(at, Read(reader=reader, place=opened.place, offset=offset, value=behind.value))


# --- groups


def has_own(field: Field, transaction: Transaction) -> bool:
    """Whether nobody who may have committed has sent the same position before."""
    sent = transaction.offsets[0]
    return not any(
        earlier.may_commit and earlier.begun_at < transaction.begun_at and earlier.offsets[0].offset == sent.offset
        for earlier in field.transforming(lambda one: one.offsets[0].place == sent.place)
    )


@planted(Kind.ABORTED_OFFSET)
def position_of_an_aborted_transaction_is_told(field: Field) -> None:
    transaction = field.pick(field.transforming(lambda one: one.outcome is Outcome.ABORTED and has_own(field, one)))
    sent = transaction.offsets[0]
    field.told_group_offset(sent.place, sent.offset, ended_at(transaction) + MOMENT_S)


@planted(Kind.DIRTY_OFFSET)
def pending_position_is_told(field: Field) -> None:
    transaction = field.pick(field.transforming(lambda one: one.must_commit and has_own(field, one)))
    sent = transaction.offsets[0]
    field.told_group_offset(sent.place, sent.offset, transaction.commit_asked_at - MOMENT_S)


@planted(Kind.PHANTOM_OFFSET)
def position_that_nobody_sent_is_told(field: Field) -> None:
    transaction = field.pick(field.transforming(lambda one: one.must_commit))
    field.told_group_offset(transaction.offsets[0].place, 1_000_000, ended_at(transaction) + MOMENT_S)


@planted(Kind.LOST_OFFSET, also=(Kind.OFFSET_WITHOUT_RECORDS,))
def position_goes_back(field: Field) -> None:
    transaction = field.pick(field.transforming(lambda one: one.must_commit))
    field.final_group_offset(transaction.offsets[0].place).offset = -1


@planted(Kind.LOST_OFFSET)
def records_of_an_uncertain_transaction_are_there_but_not_its_position(field: Field) -> None:
    place = field.pick(INPUTS)
    final = field.final_group_offset(place).offset
    field.extra_transaction(
        "extra",
        [(field.pick(OUTPUTS), Source(place, 1_000_000))],
        outcome=Outcome.UNKNOWN,
        is_there=True,
        offset=(place, final + 1),
    )


@planted(Kind.OFFSET_WITHOUT_RECORDS, also=(Kind.NOT_PROCESSED,))
def position_of_an_uncertain_transaction_is_there_but_not_its_records(field: Field) -> None:
    place = field.pick(INPUTS)
    final = field.final_group_offset(place)
    final.offset += 1
    field.extra_transaction(
        "extra",
        [(field.pick(OUTPUTS), Source(place, 1_000_000))],
        outcome=Outcome.UNKNOWN,
        is_there=False,
        offset=(place, final.offset),
    )


@planted(Kind.PROCESSED_TWICE)
def input_is_processed_again(field: Field) -> None:
    transaction = field.pick(field.transforming(lambda one: one.must_commit))
    place = transaction.offsets[0].place
    field.extra_transaction(
        "extra",
        [(field.pick(OUTPUTS), transaction.sent[0].source)],
        outcome=Outcome.COMMITTED,
        is_there=True,
        offset=(place, field.final_group_offset(place).offset),
    )


@planted(Kind.NOT_PROCESSED)
def input_is_passed_over(field: Field) -> None:
    transaction = field.pick(field.transforming(lambda one: one.must_commit, at_least=2))
    value = transaction.sent[0].value
    field.hide([value])
    field.unstore(value)
    field.drop(lambda event: isinstance(event, (Sent, Acknowledged)) and event.value == value)
