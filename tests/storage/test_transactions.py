"""Transactions in one log: what is stable, what was aborted, who may write, and what a restart remembers of it."""

from pathlib import Path
from random import Random

import pytest

from storage.batch.markers import Marker, build_marker, read_marker
from storage.batch.record_batch import parse_header, read_records
from storage.errors import CoordinatorFenced, InvalidBatch, InvalidProducerEpoch, InvalidTransactionState
from storage.log.log import Log
from storage.log.producers import ProducerStates
from storage.log.settings import LogSettings
from storage.log.transactions import UNDECIDED_MAX, AbortedTransaction, UnstableTransactions
from storage.recovery.crash_recovery import open_log
from storage.segment.txn_index import ENTRIES_MAX
from tests.support.batches import BOOT_ID, NOW_MS, LaterJobs, UnsyncedFiles, append, make_log, run_now
from tests.support.faulty_files import FaultyFiles
from tests.support.transactional import TransactionalProducer, committed_values, mark, write_history

SMALL = LogSettings(segment_bytes=600, index_interval_bytes=128)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return make_log(tmp_path)


def stable(log: Log) -> int:
    return log.last_stable_offset(log.log_end_offset)


def reopened(directory: Path, *, boot_id: str = BOOT_ID) -> Log:
    return open_log(str(directory), UnsyncedFiles(), run_now, SMALL, boot_id)


# --- markers as bytes


@pytest.mark.parametrize("is_commit", [False, True])
def test_a_marker_is_kafkas_control_batch(is_commit: bool) -> None:
    batch = build_marker(7, 3, 11, is_commit, NOW_MS)
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    (record,) = read_records(batch, 1000)
    assert record.key == bytes([0, 0, 0, is_commit])
    assert record.value == bytes([0, 0, 0, 0, 0, 11])
    assert record.timestamp_ms == NOW_MS
    assert read_marker(batch) == Marker(is_commit, 11)


# --- the last stable offset


def test_without_transactions_everything_below_the_high_watermark_is_stable(log: Log) -> None:
    append(log)
    append(log)
    assert log.last_stable_offset(1) == 1
    assert stable(log) == 2


def test_an_open_transaction_holds_up_everything_behind_its_beginning(log: Log) -> None:
    append(log)
    producer = TransactionalProducer(1)
    producer.write(log)
    append(log)
    assert stable(log) == 1
    assert log.last_stable_offset(0) == 0
    producer.write(log)
    assert stable(log) == 1
    producer.commit(log)
    assert stable(log) == log.log_end_offset == 5


def test_the_oldest_open_transaction_counts(log: Log) -> None:
    first, second = TransactionalProducer(1), TransactionalProducer(2)
    first.write(log)
    second.write(log)
    first.commit(log)
    assert stable(log) == 1
    first.write(log)
    second.abort(log)
    assert stable(log) == 3
    first.commit(log)
    assert stable(log) == log.log_end_offset


def test_a_marker_that_nobody_may_read_yet_decides_nothing(log: Log) -> None:
    producer = TransactionalProducer(1)
    append(log)
    producer.write(log)
    append(log)
    marker = producer.commit(log)
    append(log)
    assert log.last_stable_offset(1) == 1
    assert log.last_stable_offset(2) == 1
    assert log.last_stable_offset(marker) == 1
    assert log.last_stable_offset(marker + 1) == marker + 1
    assert log.last_stable_offset(marker + 2) == marker + 2


def test_a_later_marker_of_an_earlier_beginning_holds_up_as_well(log: Log) -> None:
    early, late = TransactionalProducer(1), TransactionalProducer(2)
    early.write(log)
    late.write(log)
    late.commit(log)
    marker = early.commit(log)
    append(log)
    assert log.last_stable_offset(marker) == 0
    assert log.last_stable_offset(marker + 1) == marker + 1


def test_nothing_is_stable_below_the_log_start(log: Log) -> None:
    producer = TransactionalProducer(1)
    producer.write(log)
    append(log)
    append(log)
    log.advance_log_start_offset(2)
    assert stable(log) == 2
    assert log.open_transaction(1) == (0, 0)
    producer.abort(log)
    assert stable(log) == 4
    assert log.aborted_between(2, 4) == [AbortedTransaction(1, 0, 3)]


def test_a_cut_through_markers_that_wait_forgets_none_that_stays() -> None:
    unstable = UnstableTransactions()
    unstable.open[1], unstable.open[2] = 3, 8
    assert unstable.end(2, 52) == 8
    assert unstable.end(1, 57) == 3
    unstable.truncate(53)
    # The transaction of the first is looked for by others, and retention may have taken its beginning.
    assert unstable.first_unstable(52) is not None
    assert unstable.first_unstable(53) is None


def test_more_waiting_markers_than_are_told_apart_outlive_a_cut() -> None:
    unstable = UnstableTransactions()
    for number in range(UNDECIDED_MAX + 50):
        unstable.open[number] = 2 * number
        unstable.end(number, 2 * number + 1)
    end_offset = 2 * (UNDECIDED_MAX + 10)
    unstable.truncate(end_offset)
    first = unstable.first_unstable(2 * UNDECIDED_MAX + 1)
    assert first is not None
    assert first <= 2 * UNDECIDED_MAX
    assert unstable.first_unstable(end_offset) is None


def test_markers_that_wait_are_bounded_and_never_decided_too_early() -> None:
    unstable = UnstableTransactions()
    count = UNDECIDED_MAX + 50
    for number in range(count):
        unstable.open[number] = 2 * number
        assert unstable.end(number, 2 * number + 1) == 2 * number
    assert len(unstable.undecided) == UNDECIDED_MAX
    for high_watermark in range(2 * count + 1):
        first = unstable.first_unstable(high_watermark)
        true_first = next((2 * number for number in range(count) if 2 * number + 1 >= high_watermark), None)
        if first is None:
            assert true_first is None
        else:
            assert first <= (true_first if true_first is not None else first)
    assert unstable.first_unstable(2 * count) is None


@pytest.mark.parametrize("seed", range(20))
def test_what_is_stable_agrees_with_a_list_of_all_transactions(seed: int) -> None:
    chance = Random(seed)
    unstable = UnstableTransactions()
    transactions: list[list[int]] = []  # first offset, marker
    by_producer: dict[int, list[int]] = {}
    high_watermark = 0
    for offset in range(400):
        producer_id = chance.randrange(8)
        if producer_id in by_producer and chance.random() < 0.6:
            by_producer.pop(producer_id)[1] = offset
            unstable.end(producer_id, offset)
        elif producer_id not in by_producer:
            by_producer[producer_id] = [offset, 2**63]
            transactions.append(by_producer[producer_id])
            unstable.open[producer_id] = offset
        high_watermark = chance.randint(high_watermark, offset + 1)
        expected = min((first for first, marker in transactions if marker >= high_watermark), default=None)
        assert unstable.first_unstable(high_watermark) == expected


# --- aborted transactions


def test_aborted_transactions_are_told_by_what_they_touch(log: Log) -> None:
    first, second = TransactionalProducer(1), TransactionalProducer(2)
    first.write(log)  # 0
    second.write(log)  # 1
    first.abort(log)  # 2
    second.write(log)  # 3
    second.commit(log)  # 4
    first.write(log)  # 5
    second.write(log)  # 6
    second.abort(log)  # 7
    first.abort(log)  # 8
    one, two, three = AbortedTransaction(1, 0, 2), AbortedTransaction(1, 5, 8), AbortedTransaction(2, 6, 7)
    assert log.aborted_between(0, 9) == [one, two, three]
    assert log.aborted_between(0, 1) == [one]
    assert log.aborted_between(0, 0) == []
    assert log.aborted_between(3, 5) == []
    assert log.aborted_between(3, 6) == [two]
    assert log.aborted_between(8, 9) == [two]
    assert log.aborted_between(9, 9) == []


def test_markers_in_later_segments_are_found(tmp_path: Path) -> None:
    log = make_log(tmp_path, settings=SMALL)
    long, short = TransactionalProducer(1), TransactionalProducer(2)
    long.write(log)
    expected = []
    for _ in range(20):
        first = short.write(log, bytes(100)).base_offset
        if first % 3:
            expected.append(AbortedTransaction(2, first, short.abort(log)))
        else:
            short.commit(log)
    marker = long.abort(log)
    append(log)
    assert log.segment_count > 4
    everything = [AbortedTransaction(1, 0, marker), *expected]
    assert log.aborted_between(0, log.log_end_offset) == everything
    for start in range(log.log_end_offset):
        for end in (start + 1, start + 4, log.log_end_offset):
            found = [one for one in everything if one.first_offset < end and one.last_offset >= start]
            assert log.aborted_between(start, end) == found


def test_a_reader_of_committed_data_sees_neither_aborted_nor_open_records(log: Log) -> None:
    first, second = TransactionalProducer(1), TransactionalProducer(2)
    first.write(log, b"aborted")
    second.write(log, b"committed")
    append(log)
    first.abort(log)
    first.write(log, b"committed later")
    second.commit(log)
    first.commit(log)
    second.write(log, b"open")
    append(log)
    assert [value for _, value in committed_values(log)] == [b"committed", b"value", b"committed later"]


def test_a_full_list_of_aborted_transactions_makes_the_log_go_on_in_the_next_segment(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    producer = TransactionalProducer(1)
    for _ in range(ENTRIES_MAX + 10):
        producer.write(log)
        producer.abort(log)
    assert [len(segment.aborted or ()) for segment in log.segments()] == [ENTRIES_MAX, 10]
    assert len(log.aborted_between(0, log.log_end_offset)) == ENTRIES_MAX + 10


# --- who may write


def test_an_unknown_producer_may_be_marked(log: Log) -> None:
    assert mark(log, 5, 3).base_offset == 0
    assert stable(log) == 1
    assert log.aborted_between(0, 1) == []
    state = log.producers.get(5)
    assert state is not None
    assert (state.epoch, state.coordinator_epoch, state.next_sequence) == (3, 0, 0)


def test_a_marker_of_an_old_epoch_or_coordinator_is_refused(log: Log) -> None:
    producer = TransactionalProducer(1, epoch=5)
    producer.write(log)
    producer.end(log, is_commit=True, coordinator_epoch=8)
    producer.write(log)
    with pytest.raises(InvalidProducerEpoch):
        mark(log, 1, 4, coordinator_epoch=9)
    with pytest.raises(CoordinatorFenced):
        mark(log, 1, 5, coordinator_epoch=7)
    assert (log.log_end_offset, stable(log)) == (3, 2)
    assert log.open_transaction(1) == (2, 5)
    assert mark(log, 1, 5, coordinator_epoch=8).base_offset == 3
    assert stable(log) == 4


def test_a_marker_of_the_same_epoch_lets_the_sequences_go_on(log: Log) -> None:
    producer = TransactionalProducer(1)
    producer.write(log, b"1", b"2")
    producer.commit(log)
    assert producer.write(log).is_duplicate is False
    producer.sequence -= 1
    assert producer.write(log).is_duplicate is True


def test_a_marker_of_a_new_epoch_fences_and_begins_the_sequences_anew(log: Log) -> None:
    producer = TransactionalProducer(1)
    producer.write(log, b"1", b"2")
    mark(log, 1, 1, is_commit=True)
    assert stable(log) == 3
    with pytest.raises(InvalidProducerEpoch):
        producer.write(log)
    assert TransactionalProducer(1, epoch=1).write(log).base_offset == 3
    assert log.open_transaction(1) == (3, 1)


def test_plain_data_in_an_open_transaction_is_refused(log: Log) -> None:
    producer = TransactionalProducer(1)
    producer.write(log, is_transactional=False)
    producer.write(log)
    with pytest.raises(InvalidTransactionState):
        producer.write(log, is_transactional=False)
    assert log.log_end_offset == 2
    producer.commit(log)
    producer.write(log, is_transactional=False)
    assert stable(log) == 4


def test_a_control_batch_that_is_no_marker_is_refused(log: Log) -> None:
    batch = bytearray(build_marker(1, 0, 0, True, NOW_MS))
    header = parse_header(batch)
    with pytest.raises(InvalidBatch):
        log.append(memoryview(batch)[:-2], header, 0, NOW_MS)
    assert log.log_end_offset == 0


def test_a_producer_with_an_open_transaction_is_neither_forgotten_nor_pushed_out(log: Log) -> None:
    log.producers = ProducerStates(producers_max=10)
    open_ones = [TransactionalProducer(number) for number in range(5)]
    for producer in open_ones:
        producer.write(log)
    for number in range(100, 150):
        TransactionalProducer(number).write(log, is_transactional=False)
    assert len(log.producers) <= 15
    assert log.producers.expire(NOW_MS + 10**9, 1) > 0
    assert sorted(log.producers.ids) == [0, 1, 2, 3, 4]
    open_ones[0].commit(log)
    assert log.producers.expire(NOW_MS + 10**9, 1) == 1


# --- what is remembered


def facts(log: Log) -> tuple[object, ...]:
    states = [(one, state.epoch, state.coordinator_epoch, state.next_sequence) for one, state in log.producers.items()]
    return (
        stable(log),
        log.aborted_between(0, log.log_end_offset),
        [log.open_transaction(producer_id) for producer_id in range(3)],
        sorted(states),
    )


@pytest.mark.parametrize("has_jobs", [True, False], ids=["jobs done", "jobs lost"])
@pytest.mark.parametrize("how", ["kill", "power cut", "clean stop", "parked", "checkpoint lost"])
def test_a_restart_knows_the_same_transactions(tmp_path: Path, how: str, has_jobs: bool) -> None:
    files = FaultyFiles()
    jobs = LaterJobs()
    log = Log(str(tmp_path), files, jobs, SMALL, BOOT_ID)
    write_history(log)
    before = facts(log)
    assert log.segment_count > 3
    if how != "kill":
        log.flush()
    if has_jobs or how == "parked":
        jobs.run()
    if how == "clean stop":
        log.close()
    elif how == "parked":
        assert log.park()
    elif how == "checkpoint lost":
        (tmp_path / "checkpoint").unlink(missing_ok=True)
    elif how == "power cut":
        files.cut_power()
    again = reopened(tmp_path, boot_id="another" if how == "power cut" else BOOT_ID)
    assert facts(again) == before
    third = TransactionalProducer(2)
    third.sequence = 1
    third.abort(again)
    assert again.aborted_between(0, 1) == [AbortedTransaction(2, 0, again.log_end_offset - 1)]
    # Once more, from what the second run wrote down.
    before = facts(again)
    assert facts(reopened(tmp_path)) == before


@pytest.mark.parametrize("seed", range(12))
def test_a_cut_opens_what_ended_behind_it(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    log = make_log(tmp_path, settings=SMALL)
    producers = [TransactionalProducer(number) for number in range(4)]
    snapshots = {0: facts(log)}
    for _ in range(60):
        producer = chance.choice(producers)
        if chance.random() < 0.4:
            is_bumped = chance.random() < 0.3
            mark(log, producer.producer_id, producer.epoch + is_bumped, is_commit=chance.random() < 0.5)
            if is_bumped:
                producer.epoch, producer.sequence = producer.epoch + 1, 0
        else:
            producer.write(log, bytes(chance.randint(0, 60)))
        snapshots[log.log_end_offset] = facts(log)
    for end in sorted(snapshots, reverse=True):
        log.truncate(end)
        assert facts(log) == snapshots[end], f"cut to {end}"
        log = reopened(tmp_path)  # after a kill
        assert facts(log) == snapshots[end]
