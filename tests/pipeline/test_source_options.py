"""Every option of Spark's Kafka source and sink that a job may use, against a real server."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer, TopicPartition

from tests.support.clients import DEADLINE_S, Topics, produce_values, read_topic, unique_name
from tests.support.server import KwireProcess, wait_until
from tests.support.spark_streams import STREAM_TIMEOUT_S, Stream, source, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.needs_spark,
    # The first run downloads the connector.
    pytest.mark.timeout(300),
    # PySpark leaves the sockets over which it collects rows to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

PARTITIONS = 3
ROWS = 60
STEP_MS = 1_000
Place = tuple[str, int, int]


@dataclass(frozen=True)
class Filled:
    """Two topics of three partitions with the same rows: row n lies in partition n % 3 and is stamped `stamp(n)`."""

    first: str
    second: str
    start_ms: int

    def stamp(self, number: int) -> int:
        return self.start_ms + number * STEP_MS

    def places(self, *topics: str, numbers: range = range(ROWS)) -> list[Place]:
        return sorted((topic, number % PARTITIONS, number // PARTITIONS) for topic in topics for number in numbers)

    def every_partition(self, value: int) -> str:
        return json.dumps({self.first: {str(partition): value for partition in range(PARTITIONS)}})


@pytest.fixture(scope="module")
def filled(kwire: KwireProcess, topics: Topics) -> Filled:
    stem = unique_name("options")
    filled = Filled(
        topics.create(f"{stem}.first", partitions=PARTITIONS),
        topics.create(f"{stem}.second", partitions=PARTITIONS),
        int(time.time() * 1000) - 3_600_000,
    )
    producer = KafkaProducer(bootstrap_servers=kwire.bootstrap)
    for topic in (filled.first, filled.second):
        for number in range(ROWS):
            producer.send(
                topic,
                key=f"key-{number}".encode(),
                value=f"row-{number}".encode(),
                headers=[("number", str(number).encode())],
                partition=number % PARTITIONS,
                timestamp_ms=filled.stamp(number),
            )
    producer.close(timeout=DEADLINE_S)
    return filled


@pytest.fixture
def query_log() -> Iterator[list[Any]]:
    """Queries that a test starts and that must not outlive it."""
    started: list[Any] = []
    yield started
    for query in started:
        query.stop()


def places(frame: "DataFrame") -> list[Place]:
    rows = frame.select("topic", "partition", "offset").collect()
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


def failure_of(stream: Stream) -> str:
    """What a stream ends with that cannot go on."""
    query = stream.start(availableNow=True)
    try:
        query.awaitTermination(STREAM_TIMEOUT_S)
    except Exception as failure:
        return str(failure)
    finally:
        query.stop()
    raise AssertionError("the stream ended without a failure")


# Which topics


def test_subscribe_reads_the_topics_it_names(spark: "SparkSession", kwire: KwireProcess, filled: Filled) -> None:
    assert places(source(spark, kwire.bootstrap, subscribe=filled.second)) == filled.places(filled.second)
    both = source(spark, kwire.bootstrap, subscribe=f"{filled.first},{filled.second}")
    assert places(both) == filled.places(filled.first, filled.second)


def test_subscribe_pattern_reads_every_topic_that_matches(
    spark: "SparkSession", kwire: KwireProcess, filled: Filled
) -> None:
    stem = filled.first.partition(".")[0]
    found = source(spark, kwire.bootstrap, subscribePattern=rf"{stem}\.(first|second)-.*")
    assert places(found) == filled.places(filled.first, filled.second)
    assert places(source(spark, kwire.bootstrap, subscribePattern=rf"{stem}\.first-.*")) == filled.places(filled.first)


def test_assign_reads_the_partitions_it_names(spark: "SparkSession", kwire: KwireProcess, filled: Filled) -> None:
    chosen = {filled.first: [0, 2], filled.second: [1]}
    wanted = sorted(
        place for place in filled.places(filled.first, filled.second) if place[1] in chosen.get(place[0], [])
    )
    assert places(source(spark, kwire.bootstrap, assign=json.dumps(chosen))) == wanted


def test_a_stream_of_a_pattern_finds_a_topic_made_while_it_runs(
    spark: "SparkSession", kwire: KwireProcess, topics: Topics, tmp_path: Path, query_log: list[Any]
) -> None:
    stem = unique_name("found-later")
    produce_values(kwire.bootstrap, topics.create(f"{stem}-a"), [b"early"])
    stream = Stream(
        spark,
        kwire.bootstrap,
        tmp_path,
        subscribePattern=f"{stem}-.*",
        startingOffsets="earliest",
        **{"kafka.metadata.max.age.ms": "200"},
    )
    query = stream.start()
    query_log.append(query)
    query.processAllAvailable()
    produce_values(kwire.bootstrap, topics.create(f"{stem}-b"), [b"late"])
    wait_until(lambda: len(stream.rows()) == 2, "the row of the new topic", STREAM_TIMEOUT_S)
    assert sorted(stream.rows()) == [b"early", b"late"]


# From where to where


@pytest.mark.parametrize(
    ("starting", "ending", "numbers"),
    [
        ("earliest", "latest", range(ROWS)),
        (6, "latest", range(18, ROWS)),
        ("earliest", 4, range(12)),
        (6, 9, range(18, 27)),
        (-2, -1, range(ROWS)),
        # A range that holds nothing is no error.
        (6, 6, range(0)),
    ],
)
def test_offsets_by_number(
    spark: "SparkSession",
    kwire: KwireProcess,
    filled: Filled,
    starting: str | int,
    ending: str | int,
    numbers: range,
) -> None:
    options = {
        name: bound if isinstance(bound, str) else filled.every_partition(bound)
        for name, bound in (("startingOffsets", starting), ("endingOffsets", ending))
    }
    found = places(source(spark, kwire.bootstrap, subscribe=filled.first, **options))
    assert found == filled.places(filled.first, numbers=numbers)


def test_offsets_by_timestamp(spark: "SparkSession", kwire: KwireProcess, filled: Filled) -> None:
    def numbers(**options: str) -> list[int]:
        found = source(spark, kwire.bootstrap, subscribe=filled.first, **options)
        return sorted(int(value.removeprefix(b"row-")) for value in values(found))

    # One time for every partition: the first row at or after it, from there or up to there.
    assert numbers(startingTimestamp=str(filled.stamp(30))) == list(range(30, ROWS))
    assert numbers(startingTimestamp=str(filled.stamp(30) - 1)) == list(range(30, ROWS))
    assert numbers(endingTimestamp=str(filled.stamp(30))) == list(range(30))
    assert numbers(startingTimestamp=str(filled.stamp(12)), endingTimestamp=str(filled.stamp(15))) == [12, 13, 14]
    # A time for each partition, and an end past the last row, which means all of them.
    starting = json.dumps({filled.first: {"0": filled.stamp(57), "1": filled.stamp(55), "2": filled.stamp(56)}})
    ending = json.dumps({filled.first: {str(partition): filled.stamp(10 * ROWS) for partition in range(PARTITIONS)}})
    assert numbers(startingOffsetsByTimestamp=starting, endingOffsetsByTimestamp=ending) == [55, 56, 57, 58, 59]


def test_a_time_after_the_last_row_is_an_error_or_the_end(
    spark: "SparkSession", kwire: KwireProcess, filled: Filled
) -> None:
    too_late = {"subscribe": filled.first, "startingTimestamp": str(filled.stamp(10 * ROWS))}
    with pytest.raises(Exception, match="No offset matched"):
        source(spark, kwire.bootstrap, **too_late).count()
    assert source(spark, kwire.bootstrap, **too_late, startingOffsetsByTimestampStrategy="latest").count() == 0


def test_a_stream_starts_where_it_is_told(
    spark: "SparkSession", kwire: KwireProcess, filled: Filled, tmp_path: Path
) -> None:
    starts = {
        "earliest": ({"startingOffsets": "earliest"}, range(ROWS)),
        "latest": ({"startingOffsets": "latest"}, range(0)),
        "number": ({"startingOffsets": filled.every_partition(15)}, range(45, ROWS)),
        "time": ({"startingTimestamp": str(filled.stamp(50))}, range(50, ROWS)),
    }
    for name, (options, numbers) in starts.items():
        stream = Stream(spark, kwire.bootstrap, tmp_path / name, subscribe=filled.first, **options)
        batches = stream.run_once()
        assert sum(batch["numInputRows"] for batch in batches) == len(numbers), name
        if numbers:
            assert places(spark.read.parquet(stream.output)) == filled.places(filled.first, numbers=numbers), name


# How much at a time


def test_max_offsets_per_trigger_bounds_a_batch(
    spark: "SparkSession", kwire: KwireProcess, filled: Filled, tmp_path: Path
) -> None:
    stream = Stream(
        spark,
        kwire.bootstrap,
        tmp_path,
        subscribe=filled.first,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="24",
    )
    batches = [batch["numInputRows"] for batch in stream.run_once() if batch["numInputRows"]]
    assert batches == [24, 24, 12]
    assert places(spark.read.parquet(stream.output)) == filled.places(filled.first)


def test_min_offsets_per_trigger_waits_for_enough(
    spark: "SparkSession", kwire: KwireProcess, topics: Topics, tmp_path: Path, query_log: list[Any]
) -> None:
    topic = topics.create("enough")
    stream = Stream(
        spark,
        kwire.bootstrap,
        tmp_path,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="1h",
    )
    produce_values(kwire.bootstrap, topic, [b"first"])
    query = stream.start()
    query_log.append(query)
    # The first batch goes out as it is; after it a batch has ten rows or more.
    query.processAllAvailable()
    produce_values(kwire.bootstrap, topic, [b"row"] * 9)
    query.processAllAvailable()
    assert len(stream.rows()) == 1
    produce_values(kwire.bootstrap, topic, [b"row"])
    query.processAllAvailable()
    assert len(stream.rows()) == 11


def test_a_read_is_cut_into_tasks(spark: "SparkSession", kwire: KwireProcess, filled: Filled) -> None:
    options = {"subscribe": filled.first, "endingOffsets": "latest"}
    for option, tasks in (
        ({}, PARTITIONS),
        ({"minPartitions": "6"}, 6),
        ({"minPartitions": "30"}, 30),
    ):
        frame = source(spark, kwire.bootstrap, **options, **option)
        assert frame.rdd.getNumPartitions() == tasks
        assert places(frame) == filled.places(filled.first)


def test_max_records_per_partition_cuts_a_stream_into_tasks(
    spark: "SparkSession", kwire: KwireProcess, filled: Filled, tmp_path: Path
) -> None:
    """Spark 4.0 looks at it in streams only."""
    options = {"subscribe": filled.first, "startingOffsets": "earliest", "maxRecordsPerPartition": "5"}
    stream = Stream(spark, kwire.bootstrap, tmp_path, **options)
    stream.run_once()
    # A task writes a file.
    assert len(list(Path(stream.output).glob("part-*.parquet"))) == ROWS // 5
    assert places(spark.read.parquet(stream.output)) == filled.places(filled.first)


# What comes with a row


def test_include_headers_adds_them(spark: "SparkSession", kwire: KwireProcess, filled: Filled) -> None:
    assert "headers" not in source(spark, kwire.bootstrap, subscribe=filled.first).columns
    frame = source(spark, kwire.bootstrap, subscribe=filled.first, includeHeaders="true")
    rows = frame.select("key", "value", "headers").collect()
    assert len(rows) == ROWS
    for row in rows:
        number = bytes(row["value"]).removeprefix(b"row-")
        assert bytes(row["key"]) == b"key-" + number
        assert [(header["key"], bytes(header["value"])) for header in row["headers"]] == [("number", number)]


# Rows that are gone


def cut(topics: Topics, topic: str, before: int) -> None:
    """Delete the rows before an offset, as retention does."""
    topics.admin.delete_records({TopicPartition(topic, 0): before})


def test_fail_on_data_loss_in_a_stream(
    spark: "SparkSession", kwire: KwireProcess, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("lost")
    produce_values(kwire.bootstrap, topic, [b"row"] * 10)
    strict = Stream(spark, kwire.bootstrap, tmp_path, subscribe=topic, startingOffsets="earliest")
    strict.run_once()
    produce_values(kwire.bootstrap, topic, [b"row"] * 20)
    cut(topics, topic, 15)
    assert "failOnDataLoss" in failure_of(strict)
    lenient = Stream(
        spark, kwire.bootstrap, tmp_path, subscribe=topic, startingOffsets="earliest", failOnDataLoss="false"
    )
    lenient.run_once()
    offsets = [place[2] for place in places(spark.read.parquet(lenient.output))]
    assert offsets == [*range(10), *range(15, 30)]


def test_fail_on_data_loss_in_a_batch(spark: "SparkSession", kwire: KwireProcess, topics: Topics) -> None:
    topic = topics.create("lost-batch")
    produce_values(kwire.bootstrap, topic, [b"row"] * 20)
    cut(topics, topic, 8)
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 3}})}
    with pytest.raises(Exception, match="failOnDataLoss"):
        source(spark, kwire.bootstrap, **options, failOnDataLoss="true").collect()
    found = places(source(spark, kwire.bootstrap, **options, failOnDataLoss="false"))
    assert [offset for _, _, offset in found] == list(range(8, 20))


# Which group, which rows of transactions


def joined_groups(topics: Topics, prefix: str) -> list[str]:
    return [group["group_id"] for group in topics.admin.list_groups() if group["group_id"].startswith(prefix)]


@pytest.mark.parametrize("fixed", [False, True])
def test_the_group_has_the_name_it_was_given(
    spark: "SparkSession",
    kwire: KwireProcess,
    filled: Filled,
    topics: Topics,
    tmp_path: Path,
    query_log: list[Any],
    fixed: bool,
) -> None:
    """Spark joins a group only when it asks for offsets the old way; otherwise the name stays with its consumers."""
    name = unique_name("analysts")
    option = {"kafka.group.id": name} if fixed else {"groupIdPrefix": name}
    assert places(source(spark, kwire.bootstrap, subscribe=filled.first, **option)) == filled.places(filled.first)
    setting = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(setting, "true")
    try:
        stream = Stream(spark, kwire.bootstrap, tmp_path, subscribe=filled.first, startingOffsets="earliest", **option)
        query = stream.start()
        query_log.append(query)
        query.processAllAvailable()
    finally:
        spark.conf.unset(setting)
    assert places(spark.read.parquet(stream.output)) == filled.places(filled.first)
    groups = joined_groups(topics, name)
    assert groups == [name] if fixed else [group.startswith(f"{name}-") for group in groups] == [True]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_isolation_level(
    spark: "SparkSession", kwire: KwireProcess, filled: Filled, tmp_path: Path, level: str
) -> None:
    option = {"kafka.isolation.level": level}
    assert places(source(spark, kwire.bootstrap, subscribe=filled.first, **option)) == filled.places(filled.first)
    stream = Stream(spark, kwire.bootstrap, tmp_path, subscribe=filled.first, startingOffsets="earliest", **option)
    stream.run_once()
    assert places(spark.read.parquet(stream.output)) == filled.places(filled.first)


# The sink


def test_the_sink_writes_key_value_headers_and_partition(
    spark: "SparkSession", kwire: KwireProcess, topics: Topics
) -> None:
    topic = topics.create("sink", partitions=2)
    frame = spark.range(100).selectExpr(
        "CAST(CONCAT('key-', id) AS BINARY) AS key",
        "IF(id = 7, NULL, CONCAT('row-', id)) AS value",
        "CAST(id % 2 AS INT) AS partition",
        "ARRAY(NAMED_STRUCT('key', 'id', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", kwire.bootstrap)
    writer.option("topic", topic).option("includeHeaders", "true").save()
    found = {
        record.key: (record.value, partition, [tuple(header) for header in record.headers])
        for partition, records in read_topic(kwire.bootstrap, topic).items()
        for record in records
    }
    assert found == {
        f"key-{number}".encode(): (
            None if number == 7 else f"row-{number}".encode(),
            number % 2,
            [("id", str(number).encode())],
        )
        for number in range(100)
    }


def test_the_sink_takes_the_topic_from_a_column_and_producer_settings(
    spark: "SparkSession", kwire: KwireProcess, topics: Topics
) -> None:
    names = [topics.create("sink-a"), topics.create("sink-b")]
    frame = spark.range(50).selectExpr(
        f"IF(id % 2 = 0, '{names[0]}', '{names[1]}') AS topic", "CONCAT('row-', id) AS value"
    )
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", kwire.bootstrap)
    writer.options(**{"kafka.compression.type": "zstd", "kafka.acks": "all", "kafka.linger.ms": "20"}).save()
    for index, name in enumerate(names):
        found = sorted(record.value for record in read_topic(kwire.bootstrap, name)[0])
        assert found == sorted(f"row-{number}".encode() for number in range(index, 50, 2))


def test_a_streaming_sink_goes_on_from_its_checkpoint(
    spark: "SparkSession", kwire: KwireProcess, topics: Topics, tmp_path: Path
) -> None:
    origin, target = topics.create("stream-from", partitions=2), topics.create("stream-to", partitions=2)
    for start in (0, 20):
        for partition in range(2):
            numbers = [str(number).encode() for number in range(start, start + 20)]
            produce_values(kwire.bootstrap, origin, numbers, partition=partition)
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kwire.bootstrap)
        rows = reader.option("subscribe", origin).option("startingOffsets", "earliest").load()
        writer = rows.select("value", "partition").writeStream.format("kafka").option("topic", target)
        writer = writer.option("kafka.bootstrap.servers", kwire.bootstrap)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(STREAM_TIMEOUT_S), "the query did not end"
        finally:
            query.stop()
    found = read_topic(kwire.bootstrap, target)
    for partition in range(2):
        assert sorted(int(record.value) for record in found[partition]) == list(range(40))
