"""confluent-kafka: librdkafka from Python."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.clients import CODECS, DEADLINE_S, Topics, read_values, unique_name
from tests.support.server import Broker, wait_until


class Deliveries:
    """What the producer was told about each message, in the order it was told."""

    def __init__(self) -> None:
        self.offsets: list[tuple[int, int]] = []
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.offsets.append((message.partition(), message.offset()))


def send_all(broker: Broker, topic: str, values: list[bytes], **options: Any) -> Deliveries:
    told = Deliveries()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 5, **options})
    for value in values:
        producer.produce(topic, value=value, partition=0, on_delivery=told)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    return told


@contextmanager
def consuming(broker: Broker, group: str, topic: str, **options: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 300,
            **options,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: Consumer, count: int) -> list[Any]:
    messages: list[Any] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"only {len(messages)} of {count} messages"
        message = consumer.poll(0.5)
        if message is None:
            continue
        failure = message.error()
        assert failure is None, str(failure)
        messages.append(message)
    return messages


def test_an_idempotent_producer_and_a_consumer_agree(broker: Broker, topics: Topics) -> None:
    topic = topics.create("rd-round-trip")
    stamp_ms = int(time.time() * 1000) - 60_000
    told = Deliveries()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(1_000):
        producer.produce(
            topic,
            key=f"key-{number}".encode(),
            value=None if number == 13 else f"value-{number}".encode(),
            headers=[("number", str(number).encode()), ("nothing", None)],
            timestamp=stamp_ms + number,
            on_delivery=told,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert told.errors == []
    assert told.offsets == [(0, number) for number in range(1_000)]
    with consuming(broker, unique_name("rd-round-trip"), topic) as consumer:
        messages = take(consumer, 1_000)
    for number, message in enumerate(messages):
        assert message.offset() == number
        assert message.key() == f"key-{number}".encode()
        assert message.value() == (None if number == 13 else f"value-{number}".encode())
        assert message.headers() == [("number", str(number).encode()), ("nothing", None)]
        assert message.timestamp()[1] == stamp_ms + number


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches_come_back_whole(broker: Broker, topics: Topics, codec: str) -> None:
    topic = topics.create(f"rd-{codec}")
    values = [bytes([number % 251]) * 400 for number in range(300)]
    assert send_all(broker, topic, values, **{"compression.type": codec}).errors == []
    with consuming(broker, unique_name(f"rd-{codec}"), topic) as consumer:
        assert [message.value() for message in take(consumer, len(values))] == values
    assert read_values(broker.bootstrap, topic) == values


def test_a_group_commits_and_resumes(broker: Broker, topics: Topics) -> None:
    topic = topics.create("rd-group")
    group = unique_name("rd-group")
    send_all(broker, topic, [str(number).encode() for number in range(20)])
    with consuming(broker, group, topic) as consumer:
        read = take(consumer, 8)
        consumer.commit(message=read[-1], asynchronous=False)
        (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)
        assert committed.offset == 8
    with consuming(broker, group, topic) as consumer:
        assert [message.offset() for message in take(consumer, 12)] == list(range(8, 20))
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S) == (0, 20)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_two_members_share_the_partitions(broker: Broker, topics: Topics, strategy: str) -> None:
    topic = topics.create(f"rd-share-{strategy}", partitions=4)
    group = unique_name("rd-share")
    options = {"partition.assignment.strategy": strategy}

    def partitions(consumer: Consumer) -> set[int]:
        return {partition.partition for partition in consumer.assignment()}

    with consuming(broker, group, topic, **options) as first:
        wait_until(
            lambda: first.poll(0.1) or partitions(first) == {0, 1, 2, 3}, "the first member owns every partition"
        )
        with consuming(broker, group, topic, **options) as second:

            def is_shared() -> bool:
                first.poll(0.1)
                second.poll(0.1)
                mine, theirs = partitions(first), partitions(second)
                return len(mine) == len(theirs) == 2 and mine | theirs == {0, 1, 2, 3}

            wait_until(is_shared, "both members own two partitions", DEADLINE_S)


def test_a_static_member_keeps_its_partitions_over_a_restart(broker: Broker, topics: Topics) -> None:
    topic = topics.create("rd-static")
    group = unique_name("rd-static")
    send_all(broker, topic, [b"0", b"1", b"2"])
    with consuming(broker, group, topic, **{"group.instance.id": "one"}) as consumer:
        read = take(consumer, 2)
        consumer.commit(message=read[-1], asynchronous=False)
    with consuming(broker, group, topic, **{"group.instance.id": "one"}) as consumer:
        assert [message.value() for message in take(consumer, 1)] == [b"2"]


def test_list_offsets_and_offsets_for_times(broker: Broker, topics: Topics) -> None:
    topic = topics.create("rd-offsets")
    stamp_ms = int(time.time() * 1000) - 600_000
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(10):
        producer.produce(topic, value=b"x", timestamp=stamp_ms + number * 1_000)
    # The newest timestamp lies in the middle of the log, so that the largest time and the last offset differ.
    producer.produce(topic, value=b"late", timestamp=stamp_ms + 500_000)
    producer.produce(topic, value=b"last", timestamp=stamp_ms + 20_000)
    assert producer.flush(DEADLINE_S) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    partition = TopicPartition(topic, 0)

    def offset_at(spec: OffsetSpec) -> int:
        answer = admin.list_offsets({partition: spec}, request_timeout=DEADLINE_S)
        return int(answer[partition].result(DEADLINE_S).offset)

    assert offset_at(OffsetSpec.earliest()) == 0
    assert offset_at(OffsetSpec.latest()) == 12
    assert offset_at(OffsetSpec.max_timestamp()) == 10
    assert offset_at(OffsetSpec.for_timestamp(stamp_ms + 3_500)) == 4
    assert offset_at(OffsetSpec.for_timestamp(stamp_ms + 600_000)) == -1
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": unique_name("rd-offsets")})
    try:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, stamp_ms + 7_001)], timeout=DEADLINE_S)
        assert found.offset == 8
    finally:
        consumer.close()


def test_admin_creates_describes_grows_and_deletes_a_topic(broker: Broker) -> None:
    name = unique_name("rd-admin")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def partition_count() -> int:
        found = admin.list_topics(name, timeout=DEADLINE_S).topics[name]
        return 0 if found.error is not None else len(found.partitions)

    admin.create_topics([NewTopic(name, 2, 1, config={"cleanup.policy": "compact"})])[name].result(DEADLINE_S)
    wait_until(lambda: partition_count() == 2, "two partitions")
    with pytest.raises(KafkaException) as refusal:
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(DEADLINE_S)
    assert refusal.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as refusal:
        admin.create_topics([NewTopic("no/slash", 1, 1)])["no/slash"].result(DEADLINE_S)
    assert refusal.value.args[0].code() == KafkaError.TOPIC_EXCEPTION

    topic = ConfigResource(ResourceType.TOPIC, name)
    configs = admin.describe_configs([topic])[topic].result(DEADLINE_S)
    assert configs["cleanup.policy"].value == "compact"
    change = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[ConfigEntry("max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)],
    )
    admin.incremental_alter_configs([change])[change].result(DEADLINE_S)
    wait_until(
        lambda: admin.describe_configs([topic])[topic].result(DEADLINE_S)["max.message.bytes"].value == "2000000",
        "the new value is in force",
    )

    admin.create_partitions([NewPartitions(name, 4)])[name].result(DEADLINE_S)
    wait_until(lambda: partition_count() == 4, "four partitions")
    admin.delete_topics([name])[name].result(DEADLINE_S)
    wait_until(lambda: name not in admin.list_topics(timeout=DEADLINE_S).topics, "the topic is gone")


def test_admin_describes_the_cluster(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    cluster = admin.describe_cluster(request_timeout=DEADLINE_S).result(DEADLINE_S)
    assert cluster.cluster_id
    assert [(node.host, node.port) for node in cluster.nodes] == [broker.address]
    assert cluster.controller.id == cluster.nodes[0].id
    metadata = admin.list_topics(timeout=DEADLINE_S)
    assert metadata.cluster_id == cluster.cluster_id
    assert list(metadata.brokers) == [cluster.nodes[0].id]
