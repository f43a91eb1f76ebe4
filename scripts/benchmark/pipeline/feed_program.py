"""Produces orders at a fixed rate, until its standard input is closed. The record timestamps are the send times.

It is a separate program (`python -m benchmark.pipeline.feed_program --help`).
"""

import argparse
import select
import sys
import time

from kafka import KafkaProducer

from benchmark.events.topics import order

TURN_SECONDS = 0.05
FLUSH_SECONDS_MAX = CLOSE_SECONDS_MAX = 30


def feed(producer: KafkaProducer, topic: str, rate: int) -> None:
    began, sent = time.perf_counter(), 0
    failures: list[Exception] = []
    while not failures and not select.select([sys.stdin], [], [], TURN_SECONDS)[0]:
        due = int((time.perf_counter() - began) * rate)
        for number in range(sent, due):
            producer.send(topic, order(number).encode()).add_errback(failures.append)
        sent = max(sent, due)
    producer.flush(timeout=FLUSH_SECONDS_MAX)
    if failures:
        sys.exit(f"{len(failures)} of {sent} records were not taken, the first: {failures[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmark.pipeline.feed_program", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", type=int, required=True, help="records per second")
    arguments = parser.parse_args()
    producer = KafkaProducer(bootstrap_servers=arguments.bootstrap)
    try:
        feed(producer, arguments.topic, arguments.rate)
    finally:
        producer.close(timeout=CLOSE_SECONDS_MAX)


if __name__ == "__main__":
    main()
