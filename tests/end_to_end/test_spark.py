"""Spark's stock Kafka connector: batch, streaming with a checkpoint, offsets by time, headers, codecs and the sink."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer

from tests.support.clients import CODECS, DEADLINE_S, Topics, produce_values, read_topic, read_values, unique_name
from tests.support.http_json import ask
from tests.support.server import Broker, KwireProcess
from tests.support.spark_streams import STREAM_TIMEOUT_S, Stream, source, values
from tests.support.transactional_clients.with_confluent import ConfluentClients

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [
    pytest.mark.needs_spark,
    # With the tests of the pipeline: one worker process runs all tests that share Spark.
    pytest.mark.xdist_group("spark"),
    # The first run downloads the connector.
    pytest.mark.timeout(300),
    # PySpark leaves the sockets over which it collects rows to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def numbered(start: int, stop: int) -> list[bytes]:
    return [f"row-{number}".encode() for number in range(start, stop)]


def test_a_batch_reads_exact_rows_from_earliest_to_latest(
    spark: "SparkSession", broker: Broker, topics: Topics
) -> None:
    topic = topics.create("spark-batch", partitions=2)
    stamp_ms = int(time.time() * 1000) - 60_000
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    expected = []
    for number in range(100):
        partition, offset = number % 2, number // 2
        key = f"key-{number}".encode() if number % 5 else None
        producer.send(
            topic, key=key, value=f"row-{number}".encode(), partition=partition, timestamp_ms=stamp_ms + number
        )
        expected.append((key, f"row-{number}".encode(), topic, partition, offset, stamp_ms + number, 0))
    producer.close(timeout=DEADLINE_S)

    frame = source(spark, broker.bootstrap, subscribe=topic, startingOffsets="earliest", endingOffsets="latest")
    rows: list[Row] = frame.selectExpr(
        "key", "value", "topic", "partition", "offset", "unix_millis(timestamp) AS stamp_ms", "timestampType"
    ).collect()
    found = [tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row) for row in rows]
    assert sorted(found, key=lambda row: row[5]) == expected

    ranges = {topic: {"0": 10, "1": 20}}, {topic: {"0": 12, "1": -1}}
    part = source(
        spark,
        broker.bootstrap,
        subscribe=topic,
        startingOffsets=json.dumps(ranges[0]),
        endingOffsets=json.dumps(ranges[1]),
    )
    assert sorted((row["partition"], row["offset"]) for row in part.collect()) == [
        (0, 10),
        (0, 11),
        *((1, offset) for offset in range(20, 50)),
    ]


def test_offsets_are_found_by_timestamp(spark: "SparkSession", broker: Broker, topics: Topics) -> None:
    topic = topics.create("spark-times", partitions=2)
    stamp_ms = int(time.time() * 1000) - 600_000
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(40):
        producer.send(topic, value=str(number).encode(), partition=number % 2, timestamp_ms=stamp_ms + number * 1_000)
    producer.close(timeout=DEADLINE_S)

    def numbers(**options: str) -> list[int]:
        return sorted(int(value) for value in values(source(spark, broker.bootstrap, subscribe=topic, **options)))

    assert numbers(startingTimestamp=str(stamp_ms + 29_500)) == list(range(30, 40))
    assert numbers(startingTimestamp=str(stamp_ms + 10_000), endingTimestamp=str(stamp_ms + 14_000)) == [10, 11, 12, 13]
    by_partition = json.dumps({topic: {"0": stamp_ms + 36_000, "1": stamp_ms + 37_000}})
    assert numbers(startingOffsetsByTimestamp=by_partition) == [36, 37, 38, 39]
    too_late = json.dumps({topic: {"0": stamp_ms + 38_000, "1": stamp_ms + 100_000}})
    assert numbers(startingOffsetsByTimestamp=too_late, startingOffsetsByTimestampStrategy="latest") == [38]


def test_headers_are_included(spark: "SparkSession", broker: Broker, topics: Topics) -> None:
    topic = topics.create("spark-headers")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send(topic, value=b"with", headers=[("colour", b"blue"), ("colour", b"green"), ("empty", b"")])
    producer.send(topic, value=b"without")
    producer.close(timeout=DEADLINE_S)
    rows = source(spark, broker.bootstrap, subscribe=topic, includeHeaders="true").orderBy("offset").collect()
    assert [(header["key"], bytes(header["value"])) for header in rows[0]["headers"]] == [
        ("colour", b"blue"),
        ("colour", b"green"),
        ("empty", b""),
    ]
    assert rows[1]["headers"] is None


def test_every_codec_is_read(spark: "SparkSession", broker: Broker, topics: Topics) -> None:
    topic = topics.create("spark-codecs", partitions=len(CODECS))
    rows = {index: [f"{codec}-{number}".encode() * 20 for number in range(200)] for index, codec in enumerate(CODECS)}
    for index, codec in enumerate(CODECS):
        produce_values(broker.bootstrap, topic, rows[index], partition=index, compression_type=codec, linger_ms=20)
    assert values(source(spark, broker.bootstrap, subscribe=topic)) == [
        value for index in range(len(CODECS)) for value in rows[index]
    ]


def test_a_room_is_read_with_its_events(spark: "SparkSession", broker: Broker, kwire: KwireProcess) -> None:
    room = unique_name("spark-room")
    events = [{"event_type": "message", "data": {"number": number}} for number in range(20)]
    assert ask(f"{kwire.http_url}/rooms/{room}/events", "POST", events).status == 201
    produce_values(broker.bootstrap, room, [b'{"number":20}'])
    shown = ask(f"{kwire.http_url}/rooms/{room}/events?limit=100").body["events"]
    rows = source(spark, broker.bootstrap, subscribe=room, includeHeaders="true").orderBy("offset").collect()
    assert [(row["partition"], row["offset"], json.loads(row["value"])) for row in rows] == [
        (0, one["offset"], one["data"]) for one in shown
    ]
    assert [one["data"]["number"] for one in shown] == list(range(21))
    headers = {header["key"]: bytes(header["value"]).decode() for header in rows[0]["headers"]}
    assert (headers["ce_type"], headers["ce_id"]) == ("message", shown[0]["event_id"])
    assert rows[20]["headers"] is None


def test_a_pattern_reads_every_topic_that_matches(spark: "SparkSession", broker: Broker, topics: Topics) -> None:
    stem = unique_name("spark-pattern")
    names = [topics.create(f"{stem}-{part}") for part in ("a", "b")]
    for name in names:
        produce_values(broker.bootstrap, name, [name.encode()])
    found = source(spark, broker.bootstrap, subscribePattern=f"{stem}-.*").collect()
    assert {(row["topic"], bytes(row["value"]).decode()) for row in found} == {(name, name) for name in names}


def test_a_stream_resumes_from_its_checkpoint(
    spark: "SparkSession", broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("spark-stream")
    stream = Stream(spark, broker.bootstrap, tmp_path, subscribe=topic, startingOffsets="earliest")
    produce_values(broker.bootstrap, topic, numbered(0, 30))
    assert sum(batch["numInputRows"] for batch in stream.run_once()) == 30
    assert stream.rows() == numbered(0, 30)

    produce_values(broker.bootstrap, topic, numbered(30, 45))
    assert sum(batch["numInputRows"] for batch in stream.run_once()) == 15
    assert stream.rows() == numbered(0, 45)

    # Then a query that keeps running, is stopped while its topic grows, and starts again from the same checkpoint.
    query = stream.start()
    try:
        produce_values(broker.bootstrap, topic, numbered(45, 60))
        query.processAllAvailable()
    finally:
        query.stop()
    produce_values(broker.bootstrap, topic, numbered(60, 75))
    query = stream.start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert stream.rows() == numbered(0, 75)


def test_a_stream_takes_no_more_than_it_was_told_per_batch(
    spark: "SparkSession", broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("spark-limit")
    produce_values(broker.bootstrap, topic, numbered(0, 50))
    stream = Stream(
        spark, broker.bootstrap, tmp_path, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20"
    )
    batches = [batch["numInputRows"] for batch in stream.run_once() if batch["numInputRows"]]
    assert batches == [20, 20, 10]
    assert stream.rows() == numbered(0, 50)


def test_the_sink_writes_rows_that_kafka_python_reads(spark: "SparkSession", broker: Broker, topics: Topics) -> None:
    topic = topics.create("spark-sink", partitions=2)
    frame = spark.range(200).selectExpr(
        "CAST(CONCAT('key-', id) AS BINARY) AS key",
        "IF(id = 7, NULL, CAST(CONCAT('row-', id) AS BINARY)) AS value",
        "CAST(id % 2 AS INT) AS partition",
        "ARRAY(NAMED_STRUCT('key', 'id', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic)
    writer.option("includeHeaders", "true").save()
    found = {
        record.key: (record.value, partition, [tuple(header) for header in record.headers])
        for partition, records in read_topic(broker.bootstrap, topic).items()
        for record in records
    }
    assert found == {
        f"key-{number}".encode(): (
            None if number == 7 else f"row-{number}".encode(),
            number % 2,
            [("id", str(number).encode())],
        )
        for number in range(200)
    }


def test_a_stream_flows_from_topic_to_topic(
    spark: "SparkSession", broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    origin, target = topics.create("spark-from"), topics.create("spark-to")
    for start in (0, 25):
        produce_values(broker.bootstrap, origin, numbered(start, start + 25))
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        rows = reader.option("subscribe", origin).option("startingOffsets", "earliest").load().select("value")
        writer = (
            rows.writeStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", target)
        )
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(STREAM_TIMEOUT_S), "the query did not end"
        finally:
            query.stop()
    assert read_values(broker.bootstrap, target) == numbered(0, 50)


def test_only_committed_rows_are_read_where_spark_asks_for_them(
    spark: "SparkSession", broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("spark-committed", partitions=2)
    committed = {"kafka.isolation.level": "read_committed"}
    stream = Stream(spark, broker.bootstrap, tmp_path, subscribe=topic, startingOffsets="earliest", **committed)
    clients = ConfluentClients(broker.bootstrap)
    producer, slow = clients.producer(unique_name("spark")), clients.producer(unique_name("spark"))

    def batch() -> list[bytes]:
        return values(source(spark, broker.bootstrap, subscribe=topic, **committed))

    kept: dict[int, list[bytes]] = {0: [], 1: []}
    # Both partitions end with what was aborted.
    for number, end in enumerate((producer.commit, producer.abort, producer.commit, producer.abort, producer.abort)):
        rows = numbered(20 * number, 20 * number + 20)
        producer.begin()
        for index, row in enumerate(rows):
            producer.send(topic, row.decode(), index % 2)
        producer.flush()
        end()
        if end == producer.commit:
            for partition in kept:
                kept[partition] += rows[partition::2]
    assert batch() == kept[0] + kept[1]
    stream.run_once()
    assert stream.rows() == kept[0] + kept[1]

    # One that is open hides what comes after it, and is no reason to wait.
    slow.begin()
    slow.send(topic, "slow", 1)
    slow.flush()
    producer.begin()
    for partition in kept:
        producer.send(topic, "after", partition)
    producer.commit()
    kept[0].append(b"after")
    assert batch() == kept[0] + kept[1]
    slow.abort()
    kept[1].append(b"after")
    assert batch() == kept[0] + kept[1]
    stream.run_once()
    assert stream.rows() == kept[0] + kept[1]
    everything = values(source(spark, broker.bootstrap, subscribe=topic))
    assert len(everything) == 5 * 20 + 3
    clients.close()
