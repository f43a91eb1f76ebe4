"""A stock client that writes while servers are killed, and what a stock client knows about topics."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmark.processes import ChildFailed

ANSWER_SECONDS = 30.0
CLOSE_SECONDS = 60.0
PAUSE_SECONDS = 0.005
READ_SECONDS_MAX = 300.0
# Lost connections are expected here.
LOG_EMERGENCIES = 0


class StockWriter:
    """Produces a record every few milliseconds with librdkafka: acks=all, idempotent. `acknowledged_at` has the times.

    The times are of the machine's monotonic clock.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged_at: list[float] = []
        self.failure_count = 0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": LOG_EMERGENCIES,
            }
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stock writer")

    def __enter__(self) -> "StockWriter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(CLOSE_SECONDS)
        self._producer.flush(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._is_over.is_set():
            with suppress(BufferError):  # So many records wait for the cluster that no more are taken.
                self._producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=self._delivered)
            self._producer.poll(PAUSE_SECONDS)
            time.sleep(PAUSE_SECONDS)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged_at.append(time.monotonic())
        else:
            self.failure_count += 1


class Topics:
    """Topics with one partition, replicated on three nodes."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_EMERGENCIES})

    def create(self, names: list[str], replicas: list[int]) -> None:
        """Create topics. The first of the replicas that is alive leads, so all these topics have the same leader."""
        made = self._admin.create_topics([NewTopic(name, 1, replica_assignment=[replicas]) for name in names])
        for one in made.values():
            one.result(ANSWER_SECONDS)

    def leader_and_in_sync(self, topic: str) -> tuple[int, list[int]]:
        """Return the leader, or a negative number, and the nodes whose replicas are in sync."""
        partition = self._admin.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions[0]
        return partition.leader, list(partition.isrs)

    def read(self, topic: str, *, is_committed: bool) -> Iterator[tuple[int, bytes]]:
        """Yield the offsets and values of all records."""
        level = "read_committed" if is_committed else "read_uncommitted"
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "bench",
                "isolation.level": level,
                "fetch.wait.max.ms": 50,
                "log_level": LOG_EMERGENCIES,
            }
        )
        place = TopicPartition(topic, 0, 0)
        try:
            _, end = consumer.get_watermark_offsets(place, ANSWER_SECONDS)
            consumer.assign([place])
            next_offset, deadline = 0, time.monotonic() + READ_SECONDS_MAX
            while next_offset < end:
                if time.monotonic() > deadline:
                    raise ChildFailed(f"{topic} could not be read to its end {end}: at {next_offset}")
                for message in consumer.consume(1000, 1.0):
                    if message.error() is None:
                        next_offset = message.offset() + 1
                        yield message.offset(), message.value() or b""
        finally:
            consumer.close()
