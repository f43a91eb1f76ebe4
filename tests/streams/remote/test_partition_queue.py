"""The queue of one partition beside a broker in memory that loses requests, answers and its producers."""

import random

import pytest

from kwire.errors import ErrorCode, KafkaError
from kwire.streams.remote.partition_queue import (
    DELIVERY_SECONDS,
    EPOCH_MAX,
    WAITING_BYTES_MAX,
    PartitionQueue,
    State,
    UnknownOutcome,
    WaitingBytes,
)
from storage.batch.builder import build_batch_from_bodies, encode_record_body
from storage.batch.format import ZSTD
from storage.batch.record_batch import Record, build_batch, check_batch, read_records
from tests.support.effort import repetitions

STEPS = 60
MAX_BATCH_BYTES = 100_000


class Broker:
    """One partition of a broker, with Kafka's rules for sequence numbers."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self._producers: dict[int, tuple[int, int, dict[int, int]]] = {}

    def append(self, batch: bytes) -> tuple[int, int]:
        """Return an error code and a base offset."""
        header = check_batch(memoryview(batch))
        epoch, next_sequence, stored = self._producers.get(header.producer_id, (-1, 0, {}))
        if header.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > epoch:
            if header.base_sequence and epoch >= 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            stored = {}
        elif header.base_sequence in stored:
            return 0, stored[header.base_sequence]
        elif header.base_sequence != next_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        base_offset = len(self.values)
        self.values += [int(record.value or b"") for record in read_records(batch, 1 << 20)]
        after = header.base_sequence + header.record_count
        self._producers[header.producer_id] = header.producer_epoch, after, stored | {header.base_sequence: base_offset}
        return 0, base_offset

    def forget(self) -> None:
        """Lose what is known of all producers, as when the last copy of their records is gone."""
        self._producers.clear()


class Client:
    """A queue, and what became of its appends."""

    def __init__(self) -> None:
        self.total = WaitingBytes()
        self.queue = PartitionQueue("topic 't' partition 0", MAX_BATCH_BYTES, self.total)
        self.outcomes: dict[int, int | KafkaError] = {}
        self.sent = 0
        self.now = 0.0
        self._producer_ids = 0

    def append(self, count: int = 1, *, compression: int = 0) -> None:
        first, self.sent = self.sent, self.sent + count
        values = [b"%d" % number for number in range(first, first + count)]
        batch = memoryview(build_batch([Record(None, value, 0) for value in values], compression=compression))

        def complete(outcome: int | KafkaError) -> None:
            for delta in range(count):
                assert first + delta not in self.outcomes, "an append completes once"
                self.outcomes[first + delta] = outcome if isinstance(outcome, KafkaError) else outcome + delta

        self.queue.add(batch, check_batch(batch), complete, self.now)

    def take(self) -> bytes:
        if self.queue.needs_producer_id:
            self._producer_ids += 1
            self.queue.use_producer(self._producer_ids, 0)
        return bytes(self.queue.take())


def store(client: Client, broker: Broker) -> None:
    """One attempt without faults."""
    code, base_offset = broker.append(client.take())
    if code:
        client.queue.refused(code)
    else:
        client.queue.stored(base_offset)


@pytest.mark.parametrize("seed", range(repetitions(quick=300, full=3000)))
def test_a_batch_is_stored_once_whatever_is_lost(seed: int) -> None:
    chance, client, broker = random.Random(seed), Client(), Broker()
    late: list[bytes] = []  # requests that a broker may still receive
    for _ in range(STEPS):
        for _ in range(chance.randrange(4)):
            client.append(chance.randrange(1, 4), compression=chance.choice((0, 0, 0, ZSTD)))
        if client.queue.state is State.READY:
            batch = client.take()
            match chance.randrange(9):
                case 0:  # the request is lost, or arrives later
                    late.append(batch)
                    client.queue.lost("the connection was lost")
                case 1:  # the answer is lost
                    broker.append(batch)
                    client.queue.lost("the connection was lost")
                case 2:
                    client.queue.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                case 3:
                    client.queue.not_sent("there is no connection")
                case 4:
                    broker.append(batch)
                    client.queue.refused(ErrorCode.REQUEST_TIMED_OUT)
                case 5:
                    client.queue.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                case _:
                    code, base_offset = broker.append(batch)
                    if code:
                        client.queue.refused(code)
                    else:
                        client.queue.stored(base_offset)
        if late and chance.random() < 0.3:
            broker.append(late.pop(0))
        if chance.random() < 0.1:
            client.now += DELIVERY_SECONDS
            client.queue.expire(client.now)
    while client.queue.state is not State.IDLE:
        store(client, broker)
    for batch in late:
        broker.append(batch)
    assert broker.values == sorted(set(broker.values)), "stored twice, or in another order"
    assert client.outcomes.keys() == set(range(client.sent))
    assert (client.queue.waiting_bytes, client.total.used) == (0, 0)
    for number, outcome in client.outcomes.items():
        if isinstance(outcome, int):
            assert broker.values[outcome] == number
        elif not isinstance(outcome, UnknownOutcome):
            assert number not in broker.values


def test_what_waits_together_becomes_one_batch() -> None:
    client, broker = Client(), Broker()
    client.append()
    first = client.take()
    client.append(2)
    client.append()
    client.append(3, compression=ZSTD)
    client.append()
    client.queue.stored(broker.append(first)[1])
    batches = []
    while client.queue.state is State.READY:
        batches.append(check_batch(memoryview(client.take())).record_count)
        client.queue.stored(sum([1, *batches[:-1]]))
    # A compressed batch stays what it is.
    assert batches == [3, 3, 1]
    assert list(client.outcomes.values()) == list(range(8))


def test_a_broker_that_lost_its_producers_gets_a_new_epoch() -> None:
    client, broker = Client(), Broker()
    for _ in range(3):
        client.append()
        store(client, broker)
    broker.forget()
    client.append()
    client.queue.refused(_refused_unknown(client))
    assert client.queue.state is State.READY
    store(client, broker)
    assert client.queue.epoch == 1
    assert list(client.outcomes.values()) == [0, 1, 2, 3]


def _refused_unknown(client: Client) -> int:
    client.take()
    return ErrorCode.UNKNOWN_PRODUCER_ID


def test_after_an_uncertain_attempt_no_new_sequence_is_tried() -> None:
    client = Client()
    client.append()
    client.take()
    client.queue.lost("the connection was lost")
    client.take()
    client.queue.refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert isinstance(client.outcomes[0], UnknownOutcome)
    assert "not known whether" in str(client.outcomes[0])
    client.append()
    client.take()
    assert (client.queue.epoch, client.queue.next_sequence) == (1, 0)


def test_a_producer_id_that_another_client_has_taken_over_is_replaced() -> None:
    client = Client()
    client.append()
    client.take()
    client.queue.refused(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert client.queue.needs_producer_id
    client.take()
    assert (client.queue.producer_id, client.queue.epoch) == (2, 0)


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    client = Client()
    client.queue.use_producer(77, EPOCH_MAX)
    client.append()
    client.take()
    client.queue.lost("the connection was lost")
    client.now = DELIVERY_SECONDS
    client.queue.expire(client.now)
    client.append()
    assert client.queue.needs_producer_id


def test_batches_that_are_too_large_together_are_sent_on_their_own() -> None:
    client, broker = Client(), Broker()
    client.append()
    client.append()
    assert check_batch(memoryview(client.take())).record_count == 2
    assert client.queue.refused(ErrorCode.MESSAGE_TOO_LARGE)
    while client.queue.state is State.READY:
        store(client, broker)
    assert list(client.outcomes.values()) == [0, 1]


def test_appends_beyond_the_bound_are_refused() -> None:
    client = Client()
    body = encode_record_body(None, bytes(WAITING_BYTES_MAX // 4), 0, b"")
    refused: list[int | KafkaError] = []
    for _ in range(4):
        client.queue.add(*build_batch_from_bodies([body], 0), refused.append, 0.0)
    (error,) = refused
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert client.queue.waiting_bytes <= WAITING_BYTES_MAX
    client.queue.fail(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic is deleted"))
    assert (len(refused), client.total.used) == (4, 0)


def test_an_append_that_cannot_be_sent_ends_in_time_with_the_reason() -> None:
    client = Client()
    client.append()
    client.queue.expire(DELIVERY_SECONDS - 1)
    assert not client.outcomes
    client.queue.not_ready("no broker can be reached")
    client.queue.expire(DELIVERY_SECONDS)
    error = client.outcomes[0]
    assert isinstance(error, KafkaError)
    assert not isinstance(error, UnknownOutcome)
    assert "no broker can be reached" in str(error)
