"""What stock admin clients do to logs: delete records, ask for producers, page through partitions, check epochs."""

import time
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as RdError
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition as Place
from kafka.errors import OffsetOutOfRangeError, PolicyViolationError

from tests.support.clients import DEADLINE_S, Topics, produce_values, read_topic, read_values, unique_name
from tests.support.server import Broker, KwireProcess


def test_deleted_records_are_gone_for_kafka_python(broker: Broker, topics: Topics) -> None:
    topic = topics.create("lg-delete", partitions=2)
    produce_values(broker.bootstrap, topic, [str(number).encode() for number in range(10)])
    told = topics.admin.delete_records({Place(topic, 0): 4, Place(topic, 1): 0})
    assert told[Place(topic, 0)]["low_watermark"] == 4
    assert told[Place(topic, 1)]["low_watermark"] == 0
    assert [record.offset for record in read_topic(broker.bootstrap, topic)[0]] == list(range(4, 10))
    with pytest.raises(OffsetOutOfRangeError):
        topics.admin.delete_records({Place(topic, 0): 11})
    compacted = topics.create("lg-compacted", configs={"cleanup.policy": "compact"})
    with pytest.raises(PolicyViolationError):
        topics.admin.delete_records({Place(compacted, 0): 0})


def test_deleted_records_are_gone_for_librdkafka(broker: Broker, topics: Topics) -> None:
    topic = topics.create("lg-delete-rd")
    produce_values(broker.bootstrap, topic, [str(number).encode() for number in range(10)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for asked, expected in ((7, 7), (3, 7), (-1, 10)):
        place = TopicPartition(topic, 0, asked)
        deleted = admin.delete_records([place], request_timeout=DEADLINE_S)[place].result(DEADLINE_S)
        assert deleted.low_watermark == expected
    place = TopicPartition(topic, 0, 11)
    with pytest.raises(KafkaException) as refusal:
        admin.delete_records([place], request_timeout=DEADLINE_S)[place].result(DEADLINE_S)
    assert refusal.value.args[0].code() == RdError.OFFSET_OUT_OF_RANGE
    assert read_values(broker.bootstrap, topic) == []


def test_deleted_records_do_not_come_back_after_a_kill(killable: KwireProcess) -> None:
    process = killable
    topics = Topics(process.bootstrap)
    topic = topics.create("lg-kill")
    produce_values(process.bootstrap, topic, [str(number).encode() for number in range(10)])
    topics.admin.delete_records({Place(topic, 0): 6})
    topics.close()
    process.kill()
    process.restart()
    assert [record.offset for record in read_topic(process.bootstrap, topic)[0]] == [6, 7, 8, 9]


def test_producers_are_described(broker: Broker, topics: Topics) -> None:
    topic = topics.create("lg-producers")
    before_ms = int(time.time() * 1000)
    produce_values(broker.bootstrap, topic, [b"one", b"two", b"three"])
    (told,) = topics.admin.describe_producers([Place(topic, 0)]).values()
    (state,) = told.active_producers
    assert state.producer_id >= 0
    assert (state.producer_epoch, state.last_sequence, state.coordinator_epoch) == (0, 2, -1)
    assert before_ms <= state.last_timestamp <= int(time.time() * 1000)


def test_partitions_are_paged(broker: Broker, topics: Topics) -> None:
    counts = {topics.create("lg-pages", partitions=count): count for count in (3, 1, 4)}
    names = sorted(counts)
    read: list[tuple[str, int]] = []
    cursor: dict[str, Any] | None = None
    for _ in range(10):
        page = topics.admin.describe_topic_partitions(names, response_partition_limit=3, cursor=cursor)
        read += [(topic["name"], one["partition_index"]) for topic in page["topics"] for one in topic["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert read == [(name, index) for name in names for index in range(counts[name])]


def test_a_consumer_goes_on_where_it_was_when_the_leader_epoch_has_risen(killable: KwireProcess) -> None:
    """librdkafka asks where its epoch ended, and would report a truncation if that were below its position."""
    process = killable
    topics = Topics(process.bootstrap)
    topic = topics.create("lg-epochs")
    topics.close()
    produce_values(process.bootstrap, topic, [b"0", b"1", b"2"])
    consumer = Consumer(
        {
            "bootstrap.servers": process.bootstrap,
            "group.id": unique_name("lg-epochs"),
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 200,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert _values(consumer, 3) == [b"0", b"1", b"2"]
        for value in (b"3", b"4"):
            process.kill()
            process.restart()
            produce_values(process.bootstrap, topic, [value])
            assert _values(consumer, 1) == [value]
            assert _request_count(process, "OffsetForLeaderEpoch") > 0
    finally:
        consumer.close()


def _request_count(process: KwireProcess, api: str) -> float:
    """How often an API was asked for since the process began."""
    with urlopen(f"{process.http_url}/metrics", timeout=DEADLINE_S) as answer:
        lines = answer.read().decode().splitlines()
    counts = [line.split()[-1] for line in lines if line.startswith(f'kwire_server_requests_total{{api="{api}"}}')]
    return sum(map(float, counts))


def _values(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(values) < count:
        assert time.monotonic() < deadline, f"only {len(values)} of {count} messages"
        message = consumer.poll(0.5)
        if message is None:
            continue
        failure = message.error()
        if failure is not None:
            # The connection goes with each kill; anything else would be about the log.
            assert failure.code() in (RdError._TRANSPORT, RdError._ALL_BROKERS_DOWN), str(failure)
            continue
        value = message.value()
        assert value is None or isinstance(value, bytes)
        values.append(value)
    return values
