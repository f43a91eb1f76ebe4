"""kafka-python: its default producer is idempotent and waits for acks=all."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import InvalidPartitionsError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests.support.clients import (
    CODECS,
    DEADLINE_S,
    POLL_MS,
    Topics,
    poll_records,
    produce_values,
    read_topic,
    read_values,
    unique_name,
)
from tests.support.server import Broker, wait_until

# Brokers refuse timestamps far in the future, and retention removes those far in the past.
MINUTES_AGO_MS = int(time.time() * 1000) - 300_000


@contextmanager
def producing(broker: Broker, **options: Any) -> Iterator[Any]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, **options)
    try:
        yield producer
    finally:
        producer.close(timeout=DEADLINE_S)


@contextmanager
def consuming(broker: Broker, *topics: str, **options: Any) -> Iterator[Any]:
    consumer = KafkaConsumer(
        *topics, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False, **options
    )
    try:
        yield consumer
    finally:
        consumer.close(autocommit=False)


def test_records_come_back_in_order_with_key_headers_and_timestamp(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kp-round-trip")
    with producing(broker) as producer:
        sent = [
            producer.send(
                topic,
                key=f"key-{number}".encode() if number % 2 else None,
                value=f"value-{number}".encode() if number % 4 != 1 else None,
                headers=[("first", b"1"), ("first", b"again"), ("empty", b""), ("number", str(number).encode())],
                timestamp_ms=MINUTES_AGO_MS + number,
                partition=0,
            )
            for number in range(100)
        ]
        offsets = [future.get(timeout=DEADLINE_S).offset for future in sent]
    assert offsets == list(range(100))

    records = read_topic(broker.bootstrap, topic)[0]
    assert [record.offset for record in records] == list(range(100))
    for number, record in enumerate(records):
        assert record.key == (f"key-{number}".encode() if number % 2 else None)
        assert record.value == (f"value-{number}".encode() if number % 4 != 1 else None)
        assert [tuple(header) for header in record.headers] == [
            ("first", b"1"),
            ("first", b"again"),
            ("empty", b""),
            ("number", str(number).encode()),
        ]
        assert record.timestamp == MINUTES_AGO_MS + number
        assert record.timestamp_type == 0


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches_come_back_whole(broker: Broker, topics: Topics, codec: str) -> None:
    topic = topics.create(f"kp-{codec}")
    values = [bytes([number % 251]) * (200 + number) for number in range(500)]
    produce_values(broker.bootstrap, topic, values, compression_type=codec, linger_ms=20, batch_size=64 * 1024)
    assert read_values(broker.bootstrap, topic) == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_level_of_acknowledgement_stores_the_record(broker: Broker, topics: Topics, acks: int | str) -> None:
    topic = topics.create(f"kp-acks-{acks}")
    with producing(broker, acks=acks, enable_idempotence=acks == "all") as producer:
        producer.send(topic, b"once")
        producer.flush(timeout=DEADLINE_S)
    wait_until(lambda: read_values(broker.bootstrap, topic) == [b"once"], "the record is there")


def test_a_record_larger_than_the_default_batch_comes_back_whole(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kp-large")
    value = bytes(range(256)) * 3_500
    produce_values(broker.bootstrap, topic, [b"before", value, b"after"])
    assert read_values(broker.bootstrap, topic) == [b"before", value, b"after"]


def test_keys_keep_their_partition_and_their_order(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kp-partitions", partitions=4)
    with producing(broker) as producer:
        for number in range(400):
            producer.send(topic, key=f"key-{number % 20}".encode(), value=str(number).encode())
        producer.flush(timeout=DEADLINE_S)
    home: dict[bytes, int] = {}
    by_key: dict[bytes, list[int]] = {}
    for partition, records in read_topic(broker.bootstrap, topic).items():
        for record in records:
            assert home.setdefault(record.key, partition) == partition
            by_key.setdefault(record.key, []).append(int(record.value))
    assert len(by_key) == 20
    for key, numbers in by_key.items():
        first = int(key.removeprefix(b"key-"))
        assert numbers == list(range(first, 400, 20))


def test_offsets_for_times_finds_the_first_record_at_or_after(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kp-times")
    with producing(broker) as producer:
        for number in range(50):
            producer.send(topic, value=b"x", timestamp_ms=MINUTES_AGO_MS + number * 1_000, partition=0)
            if number % 10 == 9:
                producer.flush(timeout=DEADLINE_S)
    partition = TopicPartition(topic, 0)
    with consuming(broker) as consumer:

        def at(timestamp_ms: int) -> Any:
            return consumer.offsets_for_times({partition: timestamp_ms})[partition]

        assert (at(0).offset, at(0).timestamp) == (0, MINUTES_AGO_MS)
        assert at(MINUTES_AGO_MS + 17_000).offset == 17
        assert at(MINUTES_AGO_MS + 17_001).offset == 18
        assert at(MINUTES_AGO_MS + 49_000).offset == 49
        assert at(MINUTES_AGO_MS + 49_001) is None
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 50}


def test_a_consumer_seeks_anywhere_in_the_log(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kp-seek")
    produce_values(broker.bootstrap, topic, [str(number).encode() for number in range(300)], linger_ms=10)
    partition = TopicPartition(topic, 0)
    with consuming(broker) as consumer:
        consumer.assign([partition])
        for offset in (250, 0, 137, 299):
            consumer.seek(partition, offset)
            record = poll_records(consumer, 1)[0]
            assert (record.offset, record.value) == (offset, str(offset).encode())


def test_a_consumer_at_the_end_is_woken_by_the_next_record(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kp-tail")
    with consuming(broker, fetch_max_wait_ms=5_000) as consumer, producing(broker) as producer:
        consumer.assign([TopicPartition(topic, 0)])
        for number in range(5):
            producer.send(topic, str(number).encode()).get(timeout=DEADLINE_S)
            assert poll_records(consumer, 1)[0].value == str(number).encode()


def test_a_group_resumes_where_it_committed(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kp-group")
    group = unique_name("kp-group")
    produce_values(broker.bootstrap, topic, [str(number).encode() for number in range(10)])
    with consuming(broker, topic, group_id=group, max_poll_records=4) as consumer:
        assert [record.value for record in poll_records(consumer, 4)] == [b"0", b"1", b"2", b"3"]
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(4, "four read", -1)})
    with consuming(broker, topic, group_id=group) as consumer:
        committed = consumer.committed(TopicPartition(topic, 0), metadata=True)
        assert (committed.offset, committed.metadata) == (4, "four read")
        assert [record.value for record in poll_records(consumer, 6)] == [
            str(number).encode() for number in range(4, 10)
        ]
        consumer.commit()
        assert consumer.committed(TopicPartition(topic, 0)) == 10


def test_a_group_without_a_commit_has_none(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kp-no-commit")
    with consuming(broker, group_id=unique_name("kp-nobody")) as consumer:
        assert consumer.committed(TopicPartition(topic, 0)) is None


def test_two_members_share_the_partitions_and_one_inherits_them(broker: Broker, topics: Topics) -> None:
    topic = topics.create("kp-share", partitions=4)
    group = unique_name("kp-share")
    everything = {TopicPartition(topic, index) for index in range(4)}
    options: dict[str, Any] = {"group_id": group, "heartbeat_interval_ms": 300, "session_timeout_ms": 10_000}
    with consuming(broker, topic, **options) as first:
        wait_until(
            lambda: first.poll(timeout_ms=POLL_MS) or first.assignment() == everything,
            "the first member owns every partition",
        )
        with consuming(broker, topic, **options) as second:

            def is_shared() -> bool:
                first.poll(timeout_ms=POLL_MS)
                second.poll(timeout_ms=POLL_MS)
                return (
                    len(first.assignment()) == 2
                    and len(second.assignment()) == 2
                    and first.assignment() | second.assignment() == everything
                )

            wait_until(is_shared, "both members own two partitions")
            for index in range(4):
                produce_values(broker.bootstrap, topic, [f"for {index}".encode()], partition=index)
            seen: dict[str, set[int]] = {"first": set(), "second": set()}

            def is_delivered() -> bool:
                for name, member in (("first", first), ("second", second)):
                    for records in member.poll(timeout_ms=POLL_MS).values():
                        seen[name].update(record.partition for record in records)
                return seen["first"] | seen["second"] == {0, 1, 2, 3}

            wait_until(is_delivered, "every partition was delivered")
            assert seen["first"] == {partition.partition for partition in first.assignment()}
            assert seen["second"] == {partition.partition for partition in second.assignment()}

        def inherited() -> bool:
            first.poll(timeout_ms=POLL_MS)
            return bool(first.assignment() == everything)

        wait_until(inherited, "the member that stayed owns every partition again")


def test_a_pattern_subscription_finds_its_topics(broker: Broker, topics: Topics) -> None:
    stem = unique_name("kp-pattern")
    names = [topics.create(f"{stem}-{part}") for part in ("a", "b")]
    for name in names:
        produce_values(broker.bootstrap, name, [name.encode()])
    with consuming(broker, group_id=unique_name("kp-pattern")) as consumer:
        consumer.subscribe(pattern=f"^{stem}-.*")
        assert {record.value.decode() for record in poll_records(consumer, 2)} == set(names)


def test_admin_creates_describes_grows_and_deletes_a_topic(broker: Broker) -> None:
    name = unique_name("kp-admin")
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        created = admin.create_topics(
            {name: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "3600000"}}},
            wait_for_metadata=True,
        )
        assert created["topics"][0]["error_code"] == 0
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}})
        assert name in admin.list_topics()
        (described,) = admin.describe_topics([name])
        assert described["error_code"] == 0
        assert sorted(partition["partition_index"] for partition in described["partitions"]) == [0, 1]
        assert len({partition["leader_id"] for partition in described["partitions"]}) == 1

        admin.create_partitions({name: 5})
        wait_until(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 5, "five partitions")
        with pytest.raises(InvalidPartitionsError):
            admin.create_partitions({name: 3})

        admin.delete_topics([name])
        wait_until(lambda: name not in admin.list_topics(), "the topic is gone")
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics([name])
    finally:
        admin.close()


def test_admin_alters_and_resets_the_configuration_of_a_topic(broker: Broker, topics: Topics) -> None:
    name = topics.create("kp-configs", configs={"retention.ms": "3600000"})
    admin = topics.admin

    def config_of(key: str) -> Any:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        return admin.describe_configs([resource], config_filter="all")["topic"][name][key]

    assert config_of("retention.ms")["value"] == "3600000"
    assert config_of("retention.ms")["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert config_of("cleanup.policy")["value"] == "delete"
    changed = admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "7200000", "segment.bytes": "2097152"})]
    )
    assert changed == {"topic": {name: "OK"}}
    wait_until(lambda: config_of("retention.ms")["value"] == "7200000", "the new value is in force")
    assert config_of("segment.bytes")["value"] == "2097152"
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": None})])
    wait_until(lambda: config_of("retention.ms")["value"] == "604800000", "the default is back")
    refused = admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "often"})])
    assert refused["topic"][name] != "OK"


def test_admin_describes_the_cluster(broker: Broker, topics: Topics) -> None:
    cluster = topics.admin.describe_cluster()
    assert cluster["cluster_id"]
    assert [(node["host"], node["port"]) for node in cluster["brokers"]] == [broker.address]
    assert cluster["controller_id"] == cluster["brokers"][0]["broker_id"]
