"""Small beginnings shared by the end-to-end tests: names nobody else uses, topics, and reading a topic whole."""

import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetSpec, TopicPartition

CODECS = ("gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 60.0
# A poll that ends before the group is joined makes kafka-python join anew, for ever if every poll is too short.
POLL_MS = 1_000


def unique_name(stem: str) -> str:
    """A topic or group name that no other test, and no earlier run on the same broker, has used."""
    return f"{stem}-{uuid.uuid4().hex[:10]}"


class Topics:
    """Creates topics through one admin client that lives as long as the broker under test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin: Any = None

    @property
    def admin(self) -> Any:
        if self._admin is None:
            self._admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        return self._admin

    def create(self, stem: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        name = unique_name(stem)
        self.admin.create_topics(
            {name: {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}},
            wait_for_metadata=True,
        )
        # Apache Kafka tells of a leader a moment before it leads; this call is repeated by the client until it does.
        self.admin.list_partition_offsets(
            {TopicPartition(name, index): OffsetSpec.LATEST for index in range(partitions)}
        )
        return name

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()


def produce_values(bootstrap: str, topic: str, values: Iterable[bytes], *, partition: int = 0, **options: Any) -> None:
    """Send values in order with kafka-python's default, idempotent producer and wait until each is acknowledged."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, **options)
    try:
        sent = [producer.send(topic, value=value, partition=partition) for value in values]
        for future in sent:
            future.get(timeout=DEADLINE_S)
    finally:
        producer.close(timeout=DEADLINE_S)


def poll_records(consumer: Any, count: int, timeout_s: float = DEADLINE_S) -> list[Any]:
    """Poll a kafka-python consumer until `count` records have come, in the order they came."""
    records: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count:
        if time.monotonic() >= deadline:
            raise AssertionError(f"only {len(records)} of {count} records within {timeout_s} s")
        for batch in consumer.poll(timeout_ms=POLL_MS).values():
            records.extend(batch)
    return records


def read_topic(bootstrap: str, topic: str) -> dict[int, list[Any]]:
    """Every record of a topic from the first offset to the present end, by partition."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        partitions = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic) or ())]
        assert partitions, f"{topic} has no partitions"
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        found: dict[int, list[Any]] = {partition.partition: [] for partition in partitions}
        deadline = time.monotonic() + DEADLINE_S
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            if time.monotonic() >= deadline:
                raise AssertionError(f"{topic} was not read to its end within {DEADLINE_S} s")
            for partition, batch in consumer.poll(timeout_ms=POLL_MS).items():
                found[partition.partition].extend(batch)
        return found
    finally:
        consumer.close()


def read_values(bootstrap: str, topic: str) -> list[bytes]:
    """The values of a one-partition topic."""
    return [record.value for record in read_topic(bootstrap, topic)[0]]
