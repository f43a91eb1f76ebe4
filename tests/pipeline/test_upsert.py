"""Upsert tables: what compaction keeps is what they hold, whatever the micro-batches were, and once for each mark."""

import random
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaProducer

from kwire.pipeline.columns import METADATA_COLUMNS, Column, table_name
from kwire.pipeline.jobs import CANNOT_RUN, DONE
from kwire.pipeline.lake.iceberg import IcebergLake, IcebergTable
from kwire.pipeline.lake.tables import BatchMark
from kwire.pipeline.lake.upsert import PARTITIONING, TABLE_PROPERTIES, merge_statement, upsert
from tests.support.clients import DEADLINE_S, Topics, produce_values
from tests.support.jobs import run_job
from tests.support.server import KwireProcess
from tests.support.spark import warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES = 16 * 1024 * 1024
NAME = Column("name", "string")
ROWS_SCHEMA = (
    "row struct<name:string,event_id:string,event_type:string,kafka_partition:int,kafka_offset:bigint,"
    "kafka_timestamp:timestamp,kafka_key:binary,kafka_headers:array<struct<key:string,value:binary>>>, "
    "is_tombstone boolean"
)


class Record(NamedTuple):
    partition: int
    offset: int
    key: str
    name: str | None


def kept(records: list[Record]) -> set[Record]:
    """What a log holds of these records once it is compacted and its tombstones are gone."""
    last = {(record.partition, record.key): record for record in records}
    return {record for record in last.values() if record.name is not None}


@given(names=st.lists(st.text(min_size=1), unique=True, max_size=5))
def test_the_statement_sets_every_column_of_the_table(names: list[str]) -> None:
    columns = [*names, "kafka_partition", "kafka_key", "kafka_offset"]
    statement = merge_statement("lake.kwire.`t`", columns, [*names[1:], "kafka_partition", "kafka_key", "kafka_offset"])
    for name in names:
        assert f"old.`{name.replace('`', '``')}` = " in statement
    assert ("= NULL" in statement) == bool(names)


pytest_spark = [
    pytest.mark.needs_spark,
    pytest.mark.timeout(300),
    # PySpark leaves the sockets over which it collects rows to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class Upserts:
    """A table that is fed batch by batch, under marks of one query."""

    def __init__(self, spark: "SparkSession", name: str) -> None:
        self.spark = spark
        self.name = name
        self.table = self.opened()
        self.table.prepare((NAME, *METADATA_COLUMNS), PARTITIONING, TABLE_PROPERTIES)

    def opened(self) -> IcebergTable:
        """The table as another driver finds it."""
        return IcebergLake(self.spark, FILE_BYTES).table(self.name)

    def frame(self, records: list[Record]) -> "DataFrame":
        rows: list[Any] = [
            (
                (record.name, None, None, record.partition, record.offset, None, record.key.encode(), None),
                record.name is None,
            )
            for record in records
        ]
        return self.spark.createDataFrame(rows, ROWS_SCHEMA)

    def feed(self, batch_id: int, records: list[Record], query_id: str = "query") -> None:
        upsert(self.table, self.frame(records), BatchMark(query_id, batch_id))

    def rows(self) -> set[Record]:
        return records_of(self.spark.table(self.table.name), "name")


def records_of(table: "DataFrame", column: str) -> set[Record]:
    rows = table.select("kafka_partition", "kafka_offset", "kafka_key", column).collect()
    found = [Record(row[0], row[1], bytes(row[2]).decode(), row[3]) for row in rows]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.fixture
def upserts(spark: "SparkSession", request: pytest.FixtureRequest) -> Iterator[Upserts]:
    fed = Upserts(spark, request.node.name)
    yield fed
    spark.sql(f"DROP TABLE {fed.table.name}")


def history(seed: int, size: int) -> list[Record]:
    chance = random.Random(seed)
    ends = {0: count(), 1: count()}
    records = []
    for number in range(size):
        partition = chance.randrange(2)
        name = None if chance.random() < 0.25 else f"name-{number}"
        records.append(Record(partition, next(ends[partition]), f"key-{chance.randrange(12)}", name))
    return records


class TestInSpark:
    pytestmark = pytest_spark

    def test_the_table_holds_what_compaction_keeps(self, upserts: Upserts) -> None:
        records = history(seed=7, size=200)
        for batch_id, start in enumerate(range(0, len(records), 50)):
            upserts.feed(batch_id, records[start : start + 50])
            assert upserts.rows() == kept(records[: start + 50])

    def test_a_batch_counts_once(self, upserts: Upserts) -> None:
        first = [Record(0, 0, "a", "one"), Record(0, 1, "b", "two")]
        upserts.feed(0, first)
        upserts.feed(1, [Record(0, 2, "a", None)])
        # The driver was killed after the commit: another one runs the batch, and the one before it, again.
        upserts.table = upserts.opened()
        upserts.feed(0, first)
        upserts.feed(1, [Record(0, 2, "a", None)])
        assert upserts.rows() == {first[1]}
        assert upserts.opened().last_mark("query") == BatchMark("query", 1)

    def test_a_key_in_another_partition_is_another_row(self, upserts: Upserts) -> None:
        records = [Record(0, 5, "a", "old"), Record(1, 0, "a", "new")]
        upserts.feed(0, records)
        assert upserts.rows() == set(records)
        upserts.feed(1, [Record(0, 6, "a", None)])
        assert upserts.rows() == {records[1]}

    def test_a_batch_that_changes_nothing_is_marked_too(self, upserts: Upserts) -> None:
        for batch_id, records in enumerate(([Record(0, 0, "a", None)], [], [Record(0, 1, "a", "one")], [])):
            upserts.feed(batch_id, records)
            assert upserts.opened().last_mark("query") == BatchMark("query", batch_id)
        assert upserts.rows() == {Record(0, 1, "a", "one")}

    def test_the_job_keeps_by_key_and_has_no_place_for_what_has_none(
        self, spark: "SparkSession", kwire: KwireProcess, topics: Topics, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # A compacted topic takes no record without a key; this one does.
        topic = topics.create("state", partitions=2, configs={"kwire.lake.mode": "upsert"})
        table = f"kwire.{table_name(topic)}"
        records = history(seed=3, size=40)
        send(kwire, topic, records[:20])
        servers = ("--bootstrap", kwire.bootstrap, "--http", kwire.http_url)
        words = ("lake", *servers, "--topic", topic, "--warehouse", warehouse_of(spark), "--once", "--quiet")
        assert run_job(*words) == DONE
        assert records_of(spark.table(table), "value") == kept(records[:20])
        produce_values(kwire.bootstrap, topic, [b"whose?"], partition=0)
        send(kwire, topic, records[20:])
        # What stops it is a record that would have no place in the table.
        assert run_job(*words, "--bad-rows", "stop") == CANNOT_RUN
        assert f"bad record {topic} partition 0 offset {ends(records[:20])[0]}: the record has no key" in (
            capsys.readouterr().err
        )
        assert run_job(*words) == DONE
        assert {row._replace(offset=0) for row in records_of(spark.table(table), "value")} == {
            row._replace(offset=0) for row in kept(records)
        }
        letters = spark.table(f"{table}_dead_letters").collect()
        assert [bytes(letter["kafka_value"]) for letter in letters] == [b"whose?"]


def ends(records: list[Record]) -> list[int]:
    return [sum(record.partition == partition for record in records) for partition in range(2)]


def send(kwire: KwireProcess, topic: str, records: list[Record]) -> None:
    producer = KafkaProducer(bootstrap_servers=kwire.bootstrap)
    for record in records:
        value = None if record.name is None else record.name.encode()
        producer.send(topic, key=record.key.encode(), value=value, partition=record.partition)
    producer.close(timeout=DEADLINE_S)
