"""Programs that write, read, or both, in transactions, over confluent-kafka, until they are told to stop.

Each runs in a thread. What chance decides comes from a seed; what the server does in between does not.
"""

import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.support.history import (
    GroupOffsetRead,
    History,
    Isolation,
    Outcome,
    Passed,
    Place,
    Read,
    ReaderStarted,
    Source,
    value_in,
)
from tests.support.transactional_errors import told
from tests.support.transactional_producer import (
    EAGER,
    PATIENCE_S,
    NotedProducer,
    Tally,
    TransactionalProducer,
    TransactionFailed,
    is_usable_after,
)
from tests.support.transactional_second_generation import SecondGenerationProducer

POLL_S = 0.1
READ_BATCH_MAX = 200
TRANSACTION_RECORDS_MAX = 8
TRANSFORMED_MAX = 10
ASK_TIMEOUT_S = 30.0
# A client in a hurry gives up this soon, and then knows nothing about the end of its transaction.
HURRY_S_MAX = 0.02


class Worker:
    """A thread with a wish to end; what it raised is kept for whoever joins it."""

    def __init__(self, bootstrap: str, history: History, tally: Tally, name: str, seed: int) -> None:
        self.bootstrap = bootstrap
        self.history = history
        self.tally = tally
        self.name = name
        self.chance = Random(seed)
        self.failure = ""
        self._wish = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self.work()
        except Exception:
            self.failure = f"{self.name}: {traceback.format_exc()}"

    def work(self) -> None:
        raise NotImplementedError

    @property
    def is_wanted(self) -> bool:
        return not self._wish.is_set()

    def stop(self) -> None:
        self._wish.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        assert self.failure == "", self.failure


class Producing(Worker):
    """Keeps a producer, and takes the next incarnation when one is of no use any more."""

    incarnation = 0

    def next_producer(self) -> NotedProducer:
        self.incarnation += 1
        self.tally.add("incarnations")
        return self.make_producer().start()

    def make_producer(self) -> NotedProducer:
        return TransactionalProducer(self.bootstrap, self.history, self.tally, self.name, self.incarnation)

    def end(self, producer: NotedProducer) -> NotedProducer:
        """Commit or abort, in one of the ways that a program may end; returns the producer to go on with."""
        way = self.chance.random()
        if way < 0.06:
            return self.replaced(producer)
        if way < 0.12:
            # Gone without a word.
            self.tally.add("abandoned")
            return self.successor_of(producer)
        patience_s = self.chance.uniform(0.001, HURRY_S_MAX) if way < 0.24 else PATIENCE_S
        outcome = producer.end(self.chance.random() < 0.75, patience_s)
        return producer if is_usable_after(outcome) else self.successor_of(producer)

    def gave_up(self, producer: NotedProducer) -> NotedProducer:
        """A transaction that cannot be committed any more."""
        is_usable = not producer.is_stuck and is_usable_after(producer.end(is_commit=False))
        return producer if is_usable else self.successor_of(producer)

    def successor_of(self, producer: NotedProducer) -> NotedProducer:
        producer.is_replaced = True
        successor = self.next_producer()
        producer.close()
        return successor

    def replaced(self, zombie: NotedProducer) -> NotedProducer:
        """Somebody else takes the id in the middle of a transaction; the old one goes on as if nothing had happened."""
        zombie.is_replaced = True
        successor = self.next_producer()
        try:
            zombie.send(self.place_for_zombie())
        except TransactionFailed:
            self.tally.add("zombie's send refused")
        if zombie.end(is_commit=True) is Outcome.FENCED:
            self.tally.add("zombies fenced")
        zombie.close()
        return successor

    def place_for_zombie(self) -> Place:
        raise NotImplementedError


class Writer(Producing):
    """Writes to several partitions."""

    def __init__(
        self, bootstrap: str, history: History, tally: Tally, name: str, seed: int, places: Sequence[Place]
    ) -> None:
        super().__init__(bootstrap, history, tally, name, seed)
        self.places = places

    def place_for_zombie(self) -> Place:
        return self.chance.choice(self.places)

    def work(self) -> None:
        producer = self.next_producer()
        while self.is_wanted:
            producer.begin()
            try:
                for _ in range(self.chance.randint(1, TRANSACTION_RECORDS_MAX)):
                    producer.send(self.chance.choice(self.places))
            except TransactionFailed:
                producer = self.gave_up(producer)
            else:
                producer = self.end(producer)
        producer.close()


class SecondGenerationWriter(Writer):
    """The same by the second generation of transactions (KIP-890), which the other clients do not speak."""

    def make_producer(self) -> NotedProducer:
        return SecondGenerationProducer(self.bootstrap, self.history, self.tally, self.name, self.incarnation)


class Sleeper(Worker):
    """Leaves transactions behind under ids that nobody uses again: the server alone can end them."""

    def __init__(
        self, bootstrap: str, history: History, tally: Tally, name: str, seed: int, place: Place, timeout_s: float
    ) -> None:
        super().__init__(bootstrap, history, tally, name, seed)
        self.place = place
        self.timeout_s = timeout_s

    def work(self) -> None:
        count = 0
        while self.is_wanted:
            count += 1
            producer = TransactionalProducer(
                self.bootstrap, self.history, self.tally, f"{self.name}-{count}", 1, self.timeout_s
            ).start()
            producer.begin()
            producer.send(self.place)
            producer.flush()
            producer.close()
            self.tally.add("left to time out")
            self._wish.wait(self.chance.uniform(0.5, 2.0) * self.timeout_s)


class Transformer(Producing):
    """Reads one topic as the static member of a group, writes to another, and commits its position with it."""

    def __init__(
        self,
        bootstrap: str,
        history: History,
        tally: Tally,
        name: str,
        seed: int,
        inputs: Sequence[Place],
        outputs: Sequence[Place],
    ) -> None:
        super().__init__(bootstrap, history, tally, name, seed)
        self.inputs = inputs
        self.outputs = outputs
        self._batch: list[Source] = []

    def place_for_zombie(self) -> Place:
        return self.chance.choice(self.outputs)

    def work(self) -> None:
        producer = self.next_producer()
        consumer = self.next_consumer()
        try:
            while self.is_wanted:
                if not self.poll(consumer):
                    continue
                producer, is_committed = self.transform(producer, consumer)
                if not is_committed:
                    # What it has read and not committed is read again, from the position that the group has now.
                    consumer.close()
                    consumer = self.next_consumer()
        finally:
            consumer.close()
            producer.close()

    def next_consumer(self) -> Consumer:
        consumer = Consumer(
            {
                **EAGER,
                "bootstrap.servers": self.bootstrap,
                "group.id": self.name,
                "group.instance.id": self.name,
                "isolation.level": str(Isolation.COMMITTED),
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
            }
        )
        note_positions(self.history, consumer, self.name, self.inputs)
        # With functions of its own it is asked before it is assigned anything, so never in the middle of a transaction.
        consumer.subscribe([self.inputs[0].topic], on_assign=self._reassigned, on_revoke=self._reassigned)
        return consumer

    def _reassigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._batch.clear()

    def poll(self, consumer: Consumer) -> bool:
        """Fill the batch; a new assignment empties it on the way."""
        self._batch.clear()
        timeout_s = POLL_S
        while len(self._batch) < TRANSFORMED_MAX:
            message = consumer.poll(timeout_s)
            timeout_s = 0.0
            if message is None:
                break
            if message.error() is None:
                self._batch.append(Source(place_of(message), offset_of(message)))
        return bool(self._batch)

    def transform(self, producer: NotedProducer, consumer: Consumer) -> tuple[NotedProducer, bool]:
        assert isinstance(producer, TransactionalProducer)
        producer.begin()
        try:
            positions = {}
            for source in self._batch:
                producer.send(self.chance.choice(self.outputs), source)
                positions[source.place] = source.offset + 1
            producer.send_positions(self.name, positions, consumer.consumer_group_metadata())
        except TransactionFailed:
            return self.gave_up(producer), False
        successor = self.end(producer)
        return successor, producer.outcome is Outcome.COMMITTED


def note_positions(
    history: History, consumer: Consumer, group: str, places: Sequence[Place], *, is_final: bool = False
) -> dict[Place, int]:
    """What the group has committed; -1 is nothing. The consumer is of that group, and asks for stable positions."""
    asked = [TopicPartition(place.topic, place.partition) for place in places]
    deadline = time.monotonic() + ASK_TIMEOUT_S
    while True:
        asked_at = history.clock()
        try:
            told = consumer.committed(asked, timeout=ASK_TIMEOUT_S)
            break
        except KafkaException:
            if time.monotonic() >= deadline:
                raise
    assert [position.error for position in told if position.error is not None] == []
    positions = {Place(position.topic, position.partition): max(position.offset, -1) for position in told}
    history.note_all(
        GroupOffsetRead(group=group, place=place, offset=offset, asked_at=asked_at, is_final=is_final)
        for place, offset in positions.items()
    )
    return positions


def asking_consumer(bootstrap: str, group: str) -> Consumer:
    """One that asks for the positions of a group, and is no member of it."""
    return Consumer({**EAGER, "bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"})


class Reader(Worker):
    """Reads committed records from the beginning; one that reconnects does so now and then, mostly where it was."""

    def __init__(
        self,
        bootstrap: str,
        history: History,
        tally: Tally,
        name: str,
        seed: int,
        places: Sequence[Place],
        *,
        reconnects: bool,
    ) -> None:
        super().__init__(bootstrap, history, tally, name, seed)
        self.positions = dict.fromkeys(places, 0)
        self.reconnects = reconnects
        self.life = 0

    def work(self) -> None:
        while self.is_wanted:
            self.life += 1
            if self.life > 1:
                self.tally.add("reconnects")
                if self.chance.random() < 0.2:
                    self.positions = dict.fromkeys(self.positions, 0)
            consumer = reading_consumer(self.bootstrap, Isolation.COMMITTED, self.positions)
            reader = f"{self.name}/{self.life}"
            self.history.note_all(
                ReaderStarted(reader=reader, place=place, position=position)
                for place, position in self.positions.items()
            )
            polls_left = self.chance.randint(5, 60) if self.reconnects else None
            try:
                while self.is_wanted and polls_left != 0:
                    self.poll(consumer, reader)
                    polls_left = None if polls_left is None else polls_left - 1
            finally:
                consumer.close()

    def has_reached(self, offsets: Mapping[Place, int]) -> bool:
        assert self.failure == "", self.failure
        return all(self.positions[place] >= offset for place, offset in offsets.items())

    def poll(self, consumer: Consumer, reader: str) -> None:
        for message in consumer.consume(READ_BATCH_MAX, POLL_S):
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self.tally.add(told("read", error.name()))
                continue
            place, offset = place_of(message), offset_of(message)
            if error is not None:
                self.history.note(Passed(reader=reader, place=place, position=offset))
                self.positions[place] = max(self.positions[place], offset)
                continue
            self.history.note(Read(reader=reader, place=place, offset=offset, value=value_in(message.value())))
            self.positions[place] = max(self.positions[place], offset + 1)


def reading_consumer(bootstrap: str, isolation: Isolation, positions: Mapping[Place, int]) -> Consumer:
    consumer = Consumer(
        {
            **EAGER,
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": str(isolation),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # A position that the server does not have is a loss, and no reason to begin elsewhere.
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(place.topic, place.partition, offset) for place, offset in positions.items()])
    return consumer


def place_of(message: Message) -> Place:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return Place(topic, partition)


def offset_of(message: Message) -> int:
    offset = message.offset()
    assert isinstance(offset, int)
    return offset
