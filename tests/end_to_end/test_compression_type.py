"""`compression.type` as clients see it: whatever a producer sent, readers of every family find it in the topic's codec.

None of this is about kwire alone, so it holds for Apache Kafka as well (KWIRE_TEST_BOOTSTRAP).
"""

import random
import struct
import time
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.support.clients import CODECS, DEADLINE_S, Topics, produce_values, read_topic, read_values, unique_name
from tests.support.clients_raw import (
    INVALID_RECORD,
    NONE,
    RawConnection,
    fetch_request,
    fetched,
    produce_request,
    produced,
)
from tests.support.java import JavaTools
from tests.support.server import Broker

NUMBERS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
MESSAGE_TOO_LARGE = 10
VALUES = [f"{number} ".encode() * (number % 90 + 1) for number in range(300)]


def batch(*values: bytes, codec: str = "uncompressed", offset_deltas: Sequence[int] = ()) -> bytearray:
    """A batch as a producer sends it, or one that numbers its records in a way of its own."""
    builder = DefaultRecordBatchBuilder(2, NUMBERS[codec], False, -1, -1, -1, 1 << 30)
    for offset, value in zip(offset_deltas or range(len(values)), values, strict=True):
        builder.append(offset, int(time.time() * 1000), None, value, [])
    return bytearray(builder.build())


def stored_codecs(broker: Broker, topic: str) -> set[int]:
    """The codecs of the batches of a one-partition topic, in their own words."""
    found = set()
    with RawConnection(broker.address) as connection:
        answer = fetched(connection.call(fetch_request(topic, 0), 11))
    assert answer.error_code == NONE
    records = bytes(answer.records)
    position = 0
    while position < len(records):
        (length,) = struct.unpack_from(">i", records, position + 8)
        (attributes,) = struct.unpack_from(">h", records, position + 21)
        found.add(attributes & 7)
        position += 12 + length
    return found


def send(broker: Broker, topic: str, records: bytes | bytearray) -> Any:
    with RawConnection(broker.address) as connection:
        return produced(connection.call(produce_request(topic, records), 9))


def read_by_librdkafka(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "check.crcs": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, DEADLINE_S)
        assert [message.error() for message in messages] == [None] * count
        return [message.value() for message in messages]
    finally:
        consumer.close()


@pytest.mark.parametrize("target", NUMBERS)
def test_every_codec_becomes_that_of_the_topic(broker: Broker, topics: Topics, target: str) -> None:
    topic = topics.create(f"codec-{target}", configs={"compression.type": target})
    for codec in (None, *CODECS):
        produce_values(broker.bootstrap, topic, VALUES, compression_type=codec, linger_ms=20)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "snappy", "linger.ms": 20})
    for value in VALUES:
        producer.produce(topic, value=value, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    assert stored_codecs(broker, topic) == {NUMBERS[target]}
    expected = VALUES * 6
    assert read_values(broker.bootstrap, topic) == expected
    assert read_by_librdkafka(broker, topic, len(expected)) == expected


def test_without_a_codec_of_its_own_a_topic_keeps_those_of_its_producers(broker: Broker, topics: Topics) -> None:
    topic = topics.create("codec-producer", configs={"compression.type": "producer"})
    for codec in (None, *CODECS):
        produce_values(broker.bootstrap, topic, VALUES[:50], compression_type=codec, linger_ms=20)
    assert stored_codecs(broker, topic) == {0, 1, 2, 3, 4}


@pytest.mark.needs_java
@pytest.mark.needs_mvn
@pytest.mark.xdist_group("kafka-tools")
@pytest.mark.timeout(600)
def test_java_reads_every_codec(broker: Broker, topics: Topics, java: JavaTools) -> None:
    stem = unique_name("java-codec")
    levels = {"gzip": "9", "lz4": "12", "zstd": "19"}
    for target in NUMBERS:
        for level in {levels.get(target), None}:
            configs = {"compression.type": target} | ({f"compression.{target}.level": level} if level else {})
            topic = topics.create(f"{stem}-{target}-{level}", configs=configs)
            source = "gzip" if target != "gzip" else "zstd"
            values = [f"{target} {level} {number} {'x' * (number % 50)}".encode() for number in range(200)]
            produce_values(broker.bootstrap, topic, values, compression_type=source, linger_ms=20)
            assert stored_codecs(broker, topic) == {NUMBERS[target]}
    read = java.run(
        "consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap, "--include", f"{stem}.*",
        "--from-beginning", "--max-messages", "1600", "--timeout-ms", "30000",
    )  # fmt: skip
    assert sorted(read.splitlines()) == sorted(
        f"{target} {level} {number} {'x' * (number % 50)}"
        for target in NUMBERS
        for level in {levels.get(target), None}
        for number in range(200)
    )


def test_what_is_stored_must_fit_too(broker: Broker, topics: Topics) -> None:
    configs = {"compression.type": "uncompressed", "max.message.bytes": "5000"}
    topic = topics.create("codec-large", configs=configs)
    assert send(broker, topic, batch(bytes(6000), codec="gzip")).error_code == MESSAGE_TOO_LARGE
    assert send(broker, topic, batch(bytes(4000), codec="gzip")).error_code == NONE
    noise = random.Random(1).randbytes(4900)
    packed = topics.create("codec-noise", configs={"compression.type": "gzip", "max.message.bytes": "4990"})
    assert len(batch(noise)) <= 4990
    assert send(broker, packed, batch(noise)).error_code == MESSAGE_TOO_LARGE
    assert [len(value) for value in read_values(broker.bootstrap, topic)] == [4000]


def test_records_are_numbered_anew(broker: Broker, topics: Topics) -> None:
    topic = topics.create("codec-numbers", configs={"compression.type": "zstd"})
    wrong = batch(b"one", b"two", b"three", offset_deltas=(0, 7, 2))
    assert send(broker, topic, wrong).error_code == NONE
    assert [(one.offset, one.value) for one in read_topic(broker.bootstrap, topic)[0]] == [
        (0, b"one"),
        (1, b"two"),
        (2, b"three"),
    ]


def test_what_is_no_record_is_refused(broker: Broker, topics: Topics) -> None:
    topic = topics.create("codec-broken", configs={"compression.type": "lz4"})
    broken = batch(b"value")
    broken[61 + 5] = 0x7E  # the length of the value
    broken[17:21] = crc32c(broken[21:]).to_bytes(4, "big")
    assert send(broker, topic, broken).error_code == INVALID_RECORD


def test_more_copies_than_there_are_need_not_be_in_sync(broker: Broker, topics: Topics) -> None:
    topic = topics.create("min-isr", configs={"min.insync.replicas": "3"})
    produce_values(broker.bootstrap, topic, [b"stored"], acks="all")
    assert read_values(broker.bootstrap, topic) == [b"stored"]
