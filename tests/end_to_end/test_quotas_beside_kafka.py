"""The same quotas on Apache Kafka and on kwire, with the same stock clients: they are throttled for the same time."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kwire.wire.messages.alter_client_quotas import AlterClientQuotasResponse
from kwire.wire.messages.describe_client_quotas import DescribeClientQuotasResponse
from tests.server.frames import frame, parse
from tests.support.apache_kafka import ApacheKafkaProcess
from tests.support.clients import DEADLINE_S
from tests.support.quotas import alteration, describe, described, entry
from tests.support.server import KwireProcess, wait_until

pytestmark = [
    pytest.mark.full("it takes a minute, and the times of kwire alone are tested in tests/server/test_quotas.py"),
    pytest.mark.timeout(300),
]

RATE = 1_000_000
# The window of 10 seconds is free. What is sent beyond it takes this many seconds.
SECONDS = 5
RECORD = bytes(10_000)
COUNT = (10 + SECONDS) * RATE // len(RECORD)
TOPIC = "t"
TOLERANCE = 0.2
# The match type of DescribeClientQuotas for one name.
MATCH_EXACT = 0


RunningServer = ApacheKafkaProcess | KwireProcess


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningServer]]:
    directory = tmp_path_factory.mktemp("beside")
    (directory / "kafka").mkdir()
    kafka, kwire = ApacheKafkaProcess(directory / "kafka"), KwireProcess(directory / "kwire")
    try:
        kafka.start()
        kwire.start()
        kwire.ready()
        yield {"kafka": kafka, "kwire": kwire}
    finally:
        kafka.stop()
        kwire.kill()


def ask(server: RunningServer, request: object, response: type[Any]) -> Any:
    port = int(server.bootstrap.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as connection:
        connection.sendall(frame(request, 1))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        return parse(response, 1, stream.read(size))


def set_quota(server: RunningServer, client_id: str, kind: str, value: float) -> None:
    answer = ask(server, alteration(entry({"client-id": client_id}, {kind: value})), AlterClientQuotasResponse)
    assert [one.error_code for one in answer.entries] == [0]
    # Kafka's broker applies a change when it has read it from its metadata log, and then describes it.
    is_this_client = describe(("client-id", MATCH_EXACT, client_id))

    def is_applied() -> bool:
        (found,) = described(ask(server, is_this_client, DescribeClientQuotasResponse)) or [({}, {})]
        return found[1].get(kind) == value

    wait_until(is_applied, f"{server.bootstrap} applies the quota of {client_id}", DEADLINE_S)


def create_topic(server: RunningServer, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(DEADLINE_S)


def produce(server: RunningServer, client_id: str, topic: str, count: int) -> float:
    """Return the seconds in which a producer with nothing but defaults sends `count` records."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "client.id": client_id, "acks": "all"})
    producer.list_topics(topic, DEADLINE_S)
    began = time.monotonic()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, RECORD)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(DEADLINE_S) == 0
    return time.monotonic() - began


def consume(server: RunningServer, client_id: str, topic: str, count: int) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "client.id": client_id,
            "group.id": client_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # A consumer that reads far ahead would have the records before it is asked for them.
            "queued.max.messages.kbytes": 1024,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    began = time.monotonic()
    left = count
    while left:
        messages = consumer.consume(100, DEADLINE_S)
        assert messages, f"{left} records are missing"
        assert not any(one.error() for one in messages)
        left -= len(messages)
    seconds = time.monotonic() - began
    consumer.close()
    return seconds


def compare(title: str, measure: Callable[[RunningServer], float], servers: dict[str, RunningServer]) -> None:
    times = {name: measure(server) for name, server in servers.items()}
    print(f"\n{title}: Apache Kafka {times['kafka']:.2f} s, kwire {times['kwire']:.2f} s")
    assert times["kafka"] > SECONDS / 2, "Kafka itself is not throttled"
    assert abs(times["kwire"] / times["kafka"] - 1) <= TOLERANCE


def test_producers_take_the_same_time(servers: dict[str, RunningServer]) -> None:
    def measure(server: RunningServer) -> float:
        create_topic(server, "produced")
        set_quota(server, "producer", "producer_byte_rate", RATE)
        return produce(server, "producer", "produced", COUNT)

    compare(f"{COUNT * len(RECORD)} bytes produced at {RATE} bytes/s", measure, servers)


def test_consumers_take_the_same_time(servers: dict[str, RunningServer]) -> None:
    def measure(server: RunningServer) -> float:
        create_topic(server, "consumed")
        produce(server, "unlimited", "consumed", COUNT)
        set_quota(server, "consumer", "consumer_byte_rate", RATE)
        return consume(server, "consumer", "consumed", COUNT)

    compare(f"{COUNT * len(RECORD)} bytes consumed at {RATE} bytes/s", measure, servers)


def test_request_times_are_throttled_by_both(servers: dict[str, RunningServer]) -> None:
    """The times themselves differ, because the servers take different times for a request."""
    for name, server in servers.items():
        create_topic(server, "requests")
        set_quota(server, "busy", "request_percentage", 0.05)
        throttled: list[float] = []
        producer = Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "client.id": "busy",
                "linger.ms": 0,
                "throttle_cb": lambda event, throttled=throttled: throttled.append(event.throttle_time),
            }
        )
        began = time.monotonic()
        count = 0
        while time.monotonic() - began < SECONDS:
            producer.produce("requests", b"x")
            assert producer.flush(DEADLINE_S) == 0
            count += 1
        print(
            f"\nrequest_percentage=0.05 on {name}: {count} requests in {SECONDS} s, "
            f"{len(throttled)} throttled, longest {max(throttled, default=0):.2f} s"
        )
        assert throttled
        assert max(throttled) <= 1.0
