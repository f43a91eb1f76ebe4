"""Idempotent producers: each batch once, in order, over the wrap of the sequence and over a restart."""

import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from storage.batch.format import MAX_SEQUENCE
from storage.batch.record_batch import BatchHeader, parse_header
from storage.errors import InvalidProducerEpoch, OutOfOrderSequence
from storage.log.producers import ProducerStates, add_sequence
from tests.support.batches import NOW_MS, make_batch

TEMPLATE = parse_header(make_batch())


def header(
    sequence: int, count: int = 1, *, producer_id: int = 1, epoch: int = 0, timestamp_ms: int = NOW_MS
) -> BatchHeader:
    return replace(
        TEMPLATE,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
        last_offset_delta=count - 1,
    )


class Written:
    """Appends through the states, as a log does."""

    def __init__(self, producers: ProducerStates | None = None) -> None:
        self.producers = ProducerStates() if producers is None else producers
        self.end = 0

    def append(self, batch: BatchHeader, *, now_ms: int = NOW_MS) -> tuple[int, bool]:
        repeated = self.producers.check(batch)
        if repeated is not None:
            return repeated.base_offset, True
        offset = self.end
        self.end += batch.last_offset_delta + 1
        self.producers.record(batch, offset, -1, now_ms)
        return offset, False


def test_batches_follow_each_other() -> None:
    log = Written()
    assert log.append(header(0, 3)) == (0, False)
    assert log.append(header(3, 2)) == (3, False)
    for sequence in (6, 4, 100):
        with pytest.raises(OutOfOrderSequence):
            log.append(header(sequence))
    assert log.append(header(5)) == (5, False)


def test_an_unknown_producer_starts_anywhere() -> None:
    assert Written().append(header(77)) == (0, False)


def test_the_last_five_batches_are_recognised() -> None:
    log = Written()
    for number in range(8):
        log.append(header(2 * number, 2))
    for number in range(3, 8):
        assert log.append(header(2 * number, 2)) == (2 * number, True)
    for number in range(3):
        with pytest.raises(OutOfOrderSequence):
            log.append(header(2 * number, 2))
    # The same start with another count is another batch.
    with pytest.raises(OutOfOrderSequence):
        log.append(header(14, 1))


def test_a_new_epoch_starts_at_zero() -> None:
    log = Written()
    log.append(header(0, 5))
    with pytest.raises(OutOfOrderSequence):
        log.append(header(5, epoch=1))
    assert log.append(header(0, epoch=1)) == (5, False)
    assert log.append(header(0, epoch=1)) == (5, True)
    with pytest.raises(InvalidProducerEpoch):
        log.append(header(5, epoch=0))
    with pytest.raises(InvalidProducerEpoch):
        log.append(header(0, 5, epoch=0))


def test_sequences_wrap_between_and_within_batches() -> None:
    assert add_sequence(MAX_SEQUENCE, 1) == 0
    log = Written()
    log.append(header(MAX_SEQUENCE))
    assert log.append(header(0)) == (1, False)
    log = Written()
    assert log.append(header(MAX_SEQUENCE - 1, 5)) == (0, False)
    assert log.append(header(MAX_SEQUENCE - 1, 5)) == (0, True)
    assert log.append(header(3)) == (5, False)


def test_a_marker_raises_the_epoch_and_has_no_sequence() -> None:
    log = Written()
    log.append(header(0, 5))
    assert log.append(header(-1, epoch=0)) == (5, False)
    assert log.append(header(5)) == (6, False)
    assert log.append(header(-1, epoch=1)) == (7, False)
    with pytest.raises(OutOfOrderSequence):
        log.append(header(6, epoch=1))
    assert log.append(header(0, epoch=1)) == (8, False)


def test_silent_producers_expire() -> None:
    log = Written()
    log.append(header(0, producer_id=1), now_ms=1000)
    log.append(header(0, producer_id=2), now_ms=2000)
    assert log.producers.expire(2500, 1000) == 1
    assert 1 not in log.producers
    assert 2 in log.producers
    assert log.append(header(44, producer_id=1))[1] is False


def test_the_number_of_producers_is_bounded() -> None:
    log = Written(ProducerStates(producers_max=50))
    for number in range(500):
        log.append(header(0, producer_id=number), now_ms=number)
        assert len(log.producers) <= 50
    assert 499 in log.producers
    assert 0 not in log.producers


def test_truncation_forgets_batches_that_are_gone() -> None:
    log = Written()
    for number in range(4):
        log.append(header(number, producer_id=1))
    log.append(header(0, producer_id=2))
    log.producers.truncate(3)
    assert 2 not in log.producers
    state = log.producers.get(1)
    assert state is not None
    assert state.next_sequence == 3


@dataclass
class Naive:
    """Remembers everything and applies the rules one by one."""

    end: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    stored: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)

    def append(self, batch: BatchHeader) -> tuple[int, bool] | str:
        producer_id, count = batch.producer_id, batch.last_offset_delta + 1
        known = producer_id in self.epochs
        history = self.stored.setdefault(producer_id, [])
        if known and batch.producer_epoch < self.epochs[producer_id]:
            return "InvalidProducerEpoch"
        if known and batch.producer_epoch > self.epochs[producer_id]:
            if batch.base_sequence != 0:
                return "OutOfOrderSequence"
            history.clear()
        elif known:
            expected = (history[-1][0] + history[-1][1]) % 2**31
            if batch.base_sequence != expected:
                for sequence, stored_count, offset in history[-5:]:
                    if (sequence, stored_count) == (batch.base_sequence, count):
                        return offset, True
                return "OutOfOrderSequence"
        offset = self.end
        self.epochs[producer_id] = batch.producer_epoch
        history.append((batch.base_sequence, count, offset))
        self.end += count
        return offset, False


moves = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.integers(0, 2),
        st.sampled_from([0, 1, 2, 3, 4, 5, 6, MAX_SEQUENCE - 1, MAX_SEQUENCE]),
        st.integers(1, 3),
    ),
    max_size=40,
)


@given(moves, st.integers(0, 40))
def test_the_states_agree_with_the_naive_rules_also_over_a_restart(
    given_moves: list[tuple[int, int, int, int]], restart_at: int
) -> None:
    log, naive = Written(), Naive()
    for number, (producer_id, epoch, sequence, count) in enumerate(given_moves):
        if number == restart_at:
            log.producers = ProducerStates.decode(log.producers.encode())
        batch = header(sequence, count, producer_id=producer_id, epoch=epoch)
        found: tuple[int, bool] | str
        try:
            found = log.append(batch)
        except (OutOfOrderSequence, InvalidProducerEpoch) as error:
            found = type(error).__name__
        assert found == naive.append(batch)


def test_the_last_timestamp_is_that_of_the_batch_or_of_the_log() -> None:
    producers = ProducerStates()
    producers.record(header(0, timestamp_ms=77), 0, -1, 1000)
    state = producers.get(1)
    assert state is not None
    assert (state.last_timestamp, state.last_ms, state.last_sequence) == (77, 1000, 0)
    producers.record(header(1, timestamp_ms=78), 1, 999, 1001)
    assert (state.last_timestamp, state.last_ms, state.last_sequence) == (999, 1001, 1)
    again = ProducerStates.decode(producers.encode()).get(1)
    assert again is not None
    assert (again.last_timestamp, again.last_ms, again.last_sequence) == (999, 1001, 1)


def test_a_producer_that_only_ended_a_transaction_has_no_sequence() -> None:
    producers = ProducerStates()
    producers.record(header(-1, epoch=3), 0, -1, 1000)
    state = producers.get(1)
    assert state is not None
    assert state.last_sequence == -1


def test_states_from_before_the_last_timestamp_are_read() -> None:
    old = struct.pack(">qhiqB" + "iiqqq", 7, 2, 5, 1000, 1, 3, 4, 30, 31, -1)
    producers = ProducerStates.decode(old)
    state = producers.get(7)
    assert state is not None
    assert (state.epoch, state.next_sequence, state.last_ms, state.last_timestamp) == (2, 5, 1000, -1)
    assert state.last_sequence == 4
    assert ProducerStates.decode(producers.encode()).encode() == producers.encode()
    assert len(ProducerStates.decode(b"")) == 0
