"""A gentle load on a server: a producer, and a group that reads slower. It ends with its standard input."""

import json
import select
import sys

from kafka import KafkaConsumer, KafkaProducer

from tests.console.data import ORDER_COUNT, order

PAUSE_S = 0.1
POLL_MS = 50


def main(bootstrap: str) -> None:
    number = ORDER_COUNT
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
    consumer = KafkaConsumer("clicks", bootstrap_servers=bootstrap, group_id="analytics", max_poll_records=20)
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        for index in range(number // 10 % 9 + 1):
            producer.send("clicks", json.dumps(order(number + index)).encode())
        producer.flush()
        consumer.poll(timeout_ms=POLL_MS)
        number += 10
    consumer.close()
    producer.close()


if __name__ == "__main__":
    main(sys.argv[1])
