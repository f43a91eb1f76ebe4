"""Measures what a stock client gets from a cluster: records of one topic, one at a time, acks=all.

It is a separate program (`python -m benchmark.bridge.produce_program --help`). The client is librdkafka, which sends
each record at once (`linger.ms=0`). The time is from the call until the client reports that the record is stored.
"""

import argparse
import json
import time

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmark.histogram import Latencies

ANSWER_SECONDS_MAX = 30.0
RECORDS_MAX = 1_000_000
# Not counted: the first ones wait for the connection and for the leader of the new topic.
FIRST_RECORDS = 20


def measure(bootstrap: str, topic: str, records: int, seconds: float, value_bytes: int) -> Latencies:
    """Produce up to `records` records for at most `seconds`."""
    _create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    for _ in range(FIRST_RECORDS):
        _produce(producer, topic, value_bytes)
    samples: list[int] = []
    ends = time.perf_counter() + seconds
    while len(samples) < records and time.perf_counter() < ends:
        samples.append(_produce(producer, topic, value_bytes))
    return Latencies.of(samples)


def _create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(ANSWER_SECONDS_MAX)


def _produce(producer: Producer, topic: str, value_bytes: int) -> int:
    """Produce one record. Return the nanoseconds until it was stored."""
    failures: list[KafkaError] = []
    stored_at: list[int] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        stored_at.append(time.perf_counter_ns())
        if error is not None:
            failures.append(error)

    began = time.perf_counter_ns()
    producer.produce(topic, b"x" * value_bytes, partition=0, on_delivery=delivered)
    producer.poll(ANSWER_SECONDS_MAX)
    if failures or not stored_at:
        raise SystemExit(f"a record was not stored: {failures[0] if failures else 'no answer'}")
    return stored_at[0] - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", default="produce-latency")
    parser.add_argument("--records", type=int, default=3_000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--value-bytes", type=int, default=100)
    given = parser.parse_args()
    if not 0 < given.records <= RECORDS_MAX:
        parser.error(f"--records: 1 to {RECORDS_MAX}")
    latencies = measure(given.bootstrap, given.topic, given.records, given.seconds, given.value_bytes)
    print(json.dumps({"figures": latencies.figures(), "latency": latencies.encode()}))


if __name__ == "__main__":
    main()
