"""Transactions of confluent-kafka: librdkafka."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import confluent_kafka as confluent
from confluent_kafka import KafkaError, KafkaException

from tests.support.transactional_clients.interface import (
    CALL_TIMEOUT_S,
    HEARTBEAT_INTERVAL_MS,
    POLL_MS,
    RECONNECT_MS_MAX,
    SESSION_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    Consumer,
    Place,
    Record,
    Refused,
)

BATCH_RECORDS_MAX = 100


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise Refused(repr(error)) from error


class ConfluentProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._failures: list[KafkaError] = []
        self._producer: Any = confluent.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                # The client demands that a record's time is up before the transaction's.
                "message.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
            }
        )
        with refusals():
            self._producer.init_transactions(CALL_TIMEOUT_S)

    def begin(self) -> None:
        with refusals():
            self._producer.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        with refusals():
            self._producer.produce(topic, value=value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            self._failures.append(error)

    def flush(self) -> None:
        assert self._producer.flush(CALL_TIMEOUT_S) == 0
        failures, self._failures = self._failures, []
        if failures:
            raise Refused(repr(failures[0]))

    def send_offsets(self, consumer: Consumer, offsets: Mapping[Place, int]) -> None:
        assert isinstance(consumer, ConfluentConsumer)
        with refusals():
            self._producer.send_offsets_to_transaction(
                [confluent.TopicPartition(*place, offset) for place, offset in offsets.items()],
                consumer.client.consumer_group_metadata(),
                CALL_TIMEOUT_S,
            )

    def commit(self) -> None:
        with refusals():
            self._producer.commit_transaction(CALL_TIMEOUT_S)

    def abort(self) -> None:
        with refusals():
            self._producer.abort_transaction(CALL_TIMEOUT_S)

    def close(self) -> None:
        """Nothing is left to do: the client ends with its last reference."""


class ConfluentConsumer:
    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self.client: Any = confluent.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # The client finds that it is at the end when an answer comes back empty.
                "fetch.wait.max.ms": POLL_MS,
                "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
                **settings,
            }
        )
        self._is_at_end = False

    def poll(self) -> list[Record]:
        records = []
        for message in self.client.consume(BATCH_RECORDS_MAX, POLL_MS / 1000):
            error = message.error()
            if error is None:
                self._is_at_end = False
                records.append(Record(message.partition(), message.offset(), message.value().decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._is_at_end = True
            elif not error.retriable() and error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                raise Refused(repr(error))
        return records

    def is_at_end(self) -> bool:
        """The client itself compares with the end that the last answer named."""
        return self._is_at_end

    def close(self) -> None:
        self.client.close()


class ConfluentClients:
    waits_for_stable_offsets = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._closes: list[Callable[[], None]] = []

    def producer(self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> ConfluentProducer:
        return ConfluentProducer(self.bootstrap, transactional_id, timeout_ms)

    def reader(self, place: Place, *, is_committed: bool = True) -> ConfluentConsumer:
        level = "read_committed" if is_committed else "read_uncommitted"
        # The client wants the name of a group also where it joins none.
        consumer = ConfluentConsumer(self.bootstrap, **{"group.id": "unused", "isolation.level": level})
        consumer.client.assign([confluent.TopicPartition(*place, confluent.OFFSET_BEGINNING)])
        self._closes.append(consumer.close)
        return consumer

    def member(self, topic: str, group: str) -> ConfluentConsumer:
        settings = {
            "group.id": group,
            "isolation.level": "read_committed",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        }
        consumer = ConfluentConsumer(self.bootstrap, **settings)
        consumer.client.subscribe([topic])
        self._closes.append(consumer.close)
        return consumer

    def close(self) -> None:
        for close in self._closes:
            close()
