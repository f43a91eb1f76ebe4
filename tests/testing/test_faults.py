"""Faults that a test injects into its server, seen by stock clients."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError, NotLeaderForPartitionError, TopicAuthorizationFailedError

from kwire.testing import KwireServer
from tests.support.clients import unique_name

WAIT_S = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[KwireServer]:
    with KwireServer() as server:
        yield server


@pytest.fixture
def server(running: KwireServer) -> Iterator[KwireServer]:
    yield running
    running.faults.clear()


@pytest.fixture
def topic(server: KwireServer) -> str:
    name = unique_name("faults")
    server.create_topic(name)
    return name


@pytest.fixture
def producer(server: KwireServer) -> Iterator[Any]:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap_server, retry_backoff_ms=10)
    yield producer
    producer.close(WAIT_S)


def confluent_producer(server: KwireServer, **options: object) -> Any:
    return Producer({"bootstrap.servers": server.bootstrap_server, "retry.backoff.ms": 10, **options})


def delivered(producer: Any, topic: str, value: bytes) -> str | None:
    """Send a record with confluent-kafka, and return the name of its error."""
    outcome: list[str | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error.name() if error else None))
    assert producer.flush(WAIT_S) == 0
    return outcome[0]


def test_a_producer_retries_an_error_as_often_as_it_comes(server: KwireServer, topic: str, producer: Any) -> None:
    fault = server.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
    assert producer.send(topic, b"value").get(WAIT_S).offset == 0
    assert fault.hits == 3
    assert server.end_offsets(topic) == [1]


def test_an_error_that_is_not_retried_reaches_the_program(server: KwireServer, topic: str) -> None:
    with server.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None) as fault:
        kafka_python = KafkaProducer(bootstrap_servers=server.bootstrap_server)
        with pytest.raises(TopicAuthorizationFailedError):
            kafka_python.send(topic, b"refused").get(WAIT_S)
        kafka_python.close(WAIT_S)
        assert delivered(confluent_producer(server), topic, b"refused") == "TOPIC_AUTHORIZATION_FAILED"
        assert fault.hits == 2
    assert server.end_offsets(topic) == [0]
    assert delivered(confluent_producer(server), topic, b"stored") is None


def test_a_connection_that_ends_after_the_append_makes_a_duplicate_unless_the_producer_is_idempotent(
    server: KwireServer, topic: str
) -> None:
    fault = server.faults.disconnect("Produce", when="after")
    assert delivered(confluent_producer(server, **{"enable.idempotence": False}), topic, b"twice") is None
    assert (fault.hits, server.end_offsets(topic)) == (1, [2])
    server.faults.disconnect("Produce", when="after")
    assert delivered(confluent_producer(server, **{"enable.idempotence": True}), topic, b"once") is None
    assert server.end_offsets(topic) == [3]


def test_a_connection_that_ends_before_the_append_loses_nothing(server: KwireServer, topic: str, producer: Any) -> None:
    fault = server.faults.disconnect("Produce", times=2)
    producer.send(topic, b"value").get(WAIT_S)
    assert (fault.hits, server.end_offsets(topic)) == (2, [1])


def test_a_delay_holds_back_the_response_and_not_the_append(server: KwireServer, topic: str, producer: Any) -> None:
    producer.send(topic, b"first").get(WAIT_S)
    fault = server.faults.delay("Produce", 0.4, times=1)
    began = time.monotonic()
    sent = producer.send(topic, b"late")
    while server.end_offsets(topic) == [1]:
        assert time.monotonic() < began + 0.4
    sent.get(WAIT_S)
    assert time.monotonic() >= began + 0.4
    producer.send(topic, b"in time").get(WAIT_S)
    assert fault.hits == 1


@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka"])
def test_a_consumer_reads_on_after_errors_of_fetch_and_coordinator(
    server: KwireServer, topic: str, producer: Any, client: str
) -> None:
    for number in range(3):
        producer.send(topic, b"%d" % number).get(WAIT_S)
    coordinator = server.faults.error("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=2)
    fetch = server.faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
    values = read_with_kafka_python if client == "kafka-python" else read_with_confluent
    assert values(server, topic, 3) == [b"0", b"1", b"2"]
    assert (coordinator.hits, fetch.hits) == (2, 2)


def read_with_kafka_python(server: KwireServer, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=server.bootstrap_server, group_id=unique_name("g"), auto_offset_reset="earliest"
    )
    try:
        return [next(consumer).value for _ in range(count)]
    finally:
        consumer.close()


def read_with_confluent(server: KwireServer, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap_server, "group.id": unique_name("g"), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            found.append(value)
    consumer.close()
    return found


def test_incremental_fetches_fail_too(server: KwireServer, topic: str, producer: Any) -> None:
    """A consumer that waits at the head names no partitions in its requests."""

    async def run() -> None:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=server.bootstrap_server, auto_offset_reset="earliest")
        await consumer.start()
        try:
            producer.send(topic, b"first").get(WAIT_S)
            assert (await asyncio.wait_for(consumer.getone(), WAIT_S)).value == b"first"
            with server.faults.error("Fetch", "LEADER_NOT_AVAILABLE", times=2) as fault:
                producer.send(topic, b"second").get(WAIT_S)
                assert (await asyncio.wait_for(consumer.getone(), WAIT_S)).value == b"second"
                assert fault.hits == 2
        finally:
            await consumer.stop()

    asyncio.run(run())


def test_a_topic_without_a_leader_is_looked_for_until_it_has_one(server: KwireServer, topic: str) -> None:
    fault = server.faults.error("Metadata", "LEADER_NOT_AVAILABLE", times=2)
    assert delivered(confluent_producer(server), topic, b"value") is None
    assert fault.hits == 2


def test_dropped_connections_are_opened_again(server: KwireServer, topic: str, producer: Any) -> None:
    producer.send(topic, b"before").get(WAIT_S)
    assert server.faults.drop_connections() > 0
    assert producer.send(topic, b"after").get(WAIT_S).offset == 1


def test_all_apis_at_once(server: KwireServer) -> None:
    fault = server.faults.delay("*", 0.05)
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_server)
    admin.list_topics()
    admin.close()
    assert fault.hits >= 2


def test_a_slow_disk_makes_producers_wait(server: KwireServer, topic: str, producer: Any) -> None:
    producer.send(topic, b"first").get(WAIT_S)
    server.faults.slow_disk(0.3)
    began = time.monotonic()
    producer.send(topic, b"second").get(WAIT_S)
    assert time.monotonic() - began >= 0.3
    server.faults.clear()


def test_a_full_disk_and_a_broken_disk_refuse_records(server: KwireServer, topic: str) -> None:
    once = {"retries": 0, "enable.idempotence": False, "message.timeout.ms": 3000}
    server.faults.failing_disk("ENOSPC")
    assert delivered(confluent_producer(server, **once), topic, b"refused") == "KAFKA_STORAGE_ERROR"
    server.faults.failing_disk("EIO")
    assert delivered(confluent_producer(server, **once), topic, b"refused") == "KAFKA_STORAGE_ERROR"
    server.restart()
    assert delivered(confluent_producer(server), topic, b"stored") is None
    assert read_with_confluent(server, topic, 1) == [b"stored"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda faults: faults.error("Prodce", "NONE"), '"Prodce" is not an API of this server: name one of'),
        (lambda faults: faults.error("Produce", "NOT_AN_ERROR"), "'NOT_AN_ERROR' is not an error of Kafka"),
        (lambda faults: faults.error("Produce", 0), "NONE is not an error"),
        (lambda faults: faults.error("Produce", 5000), "5000 is not an error of Kafka"),
        (lambda faults: faults.delay("Fetch", 0), "seconds must be positive, got 0"),
        (lambda faults: faults.delay("Fetch", 1.0, times=0), "times must be None or a positive number, got 0"),
        (lambda faults: faults.disconnect("Fetch", when="never"), 'when must be "before" or "after", got "never"'),
        (lambda faults: faults.slow_disk(-1), "seconds must be positive, got -1"),
        (lambda faults: faults.failing_disk("EBADF"), 'one of EIO, ENOSPC, got "EBADF"'),
    ],
)
def test_a_fault_that_cannot_be_is_refused(server: KwireServer, call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r".*") as refused:
        call(server.faults)
    assert text in str(refused.value)


def test_retries_can_be_used_up(server: KwireServer, topic: str) -> None:
    with server.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=None):
        producer = KafkaProducer(
            bootstrap_servers=server.bootstrap_server, retries=2, retry_backoff_ms=10, enable_idempotence=False
        )
        with pytest.raises((NotLeaderForPartitionError, KafkaError)):
            producer.send(topic, b"never").get(WAIT_S)
        producer.close(WAIT_S)


def test_a_paused_server_answers_when_it_resumes(server: KwireServer, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap_server, "group.id": unique_name("g")})
    server.pause()
    with pytest.raises(KafkaException):
        consumer.list_topics(topic, timeout=0.3)
    server.resume()
    assert topic in consumer.list_topics(topic, timeout=WAIT_S).topics
    consumer.close()
