"""Reconcile: what is the same is told so, and every planted difference is found, by its kind and its place."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer

from kwire.pipeline.columns import table_name
from kwire.pipeline.reconcile.comparison import Comparison, Difference
from tests.support.clients import DEADLINE_S, Topics, unique_name
from tests.support.http_json import ask
from tests.support.jobs import run_job
from tests.support.server import KwireProcess
from tests.support.spark import SharedSpark, settings_restored, warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.needs_spark,
    pytest.mark.timeout(300),
    # PySpark leaves the sockets over which it collects rows to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

EVENTS = 60
HOUR_MS = 3_600_000


class World:
    """A topic with its table in the lake, and what reconcile says about them."""

    def __init__(self, spark: "SparkSession", kwire: KwireProcess, topic: str, directory: Path) -> None:
        self.spark = spark
        self.kwire = kwire
        self.topic = topic
        self.table = f"lake.kwire.{table_name(topic)}"
        self.warehouse = warehouse_of(spark)
        self._report = directory / "report.jsonl"

    @property
    def _server(self) -> list[str]:
        return ["--bootstrap", self.kwire.bootstrap, "--http", self.kwire.http_url, "--topic", self.topic]

    def lake(self, *more: str) -> None:
        assert run_job("lake", *self._server, "--warehouse", self.warehouse, "--once", "--quiet", *more) == 0

    def reconcile(self, *more: str) -> int:
        report = ["--report", str(self._report)]
        return run_job("reconcile", *self._server, "--warehouse", self.warehouse, *report, *more)

    def found(self) -> list[tuple[str, int, int]]:
        """Kind, partition and offset of each difference that the last run reported."""
        return [(one["kind"], one["partition"], one["offset"]) for one in self.lines() if "kind" in one]

    def hours(self) -> list[dict[str, Any]]:
        return [one for one in self.lines() if "hour" in one]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._report.read_text().splitlines()]

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(table=self.table))


@pytest.fixture(scope="module")
def module_spark(shared_spark: SharedSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    with shared_spark.session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def spark(module_spark: "SparkSession") -> Iterator["SparkSession"]:
    """One session for the tests of this module, because they share the table of `filled`."""
    with settings_restored(module_spark):
        yield module_spark


@pytest.fixture(scope="module")
def filled_once(
    module_spark: "SparkSession", kwire: KwireProcess, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> World:
    return fill(module_spark, kwire, topics, tmp_path_factory.mktemp("filled"))


@pytest.fixture
def filled(filled_once: World, spark: "SparkSession") -> World:
    return filled_once


@pytest.fixture
def world(filled: World) -> Iterator[World]:
    """A topic that a test leaves as it is, and a table to which anything may be done."""
    (snapshot,) = filled.spark.sql(f"SELECT snapshot_id FROM {filled.table}.snapshots").collect()[0]
    yield filled
    filled.sql(f"CALL lake.system.rollback_to_snapshot('{{table}}', {snapshot})")


@pytest.fixture
def own_world(spark: "SparkSession", kwire: KwireProcess, topics: Topics, tmp_path: Path) -> World:
    return fill(spark, kwire, topics, tmp_path)


def fill(spark: "SparkSession", kwire: KwireProcess, topics: Topics, directory: Path) -> World:
    """Three partitions, two hours, keys and headers; everything is in the lake."""
    topic = topics.create("reconciled", partitions=3)
    began_ms = (int(time.time() * 1000) // HOUR_MS - 2) * HOUR_MS
    producer = KafkaProducer(bootstrap_servers=kwire.bootstrap)
    for number in range(EVENTS):
        producer.send(
            topic,
            key=f"key-{number}".encode() if number % 4 else None,
            value=f"text {number}".encode(),
            headers=[("n", str(number).encode())] if number % 3 else [],
            partition=number % 3,
            timestamp_ms=began_ms + number * 100_000,
        )
    producer.close(timeout=DEADLINE_S)
    made = World(spark, kwire, topic, directory)
    made.lake()
    return made


def test_what_is_the_same_is_told_so_with_its_counts_by_partition_and_hour(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    assert world.reconcile() == 0
    assert world.found() == []
    hours = world.hours()
    assert len(hours) == 6
    assert sum(hour["topic_rows"] for hour in hours) == EVENTS
    assert all(hour["same"] and hour["topic_checksum"] == hour["table_checksum"] != 0 for hour in hours)
    assert "60 and 60 rows in 6 partition hours: no difference" in capfd.readouterr().out


def test_every_planted_difference_is_found_and_nothing_else(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    place = "(kafka_partition = {} AND kafka_offset = {})"
    # Gone from the middle, and gone from the end.
    world.sql(f"DELETE FROM {{table}} WHERE {place.format(0, 3)} OR {place.format(2, 19)}")
    # One that is twice, as a batch that was written again would leave it, and one that nobody has sent.
    world.sql(
        f"INSERT INTO {{table}} SELECT * FROM {{table}} WHERE {place.format(1, 5)} UNION ALL "
        "SELECT 'never sent', event_id, event_type, kafka_partition, 900L, kafka_timestamp, kafka_key, kafka_headers "
        f"FROM {{table}} WHERE {place.format(1, 6)}"
    )
    changed = {
        (0, 7): ("value", "'another text'"),
        (0, 8): ("value", "NULL"),
        (1, 9): ("kafka_key", "CAST('another key' AS BINARY)"),
        (1, 10): ("kafka_timestamp", "kafka_timestamp + INTERVAL 1 MILLISECOND"),
        (1, 11): ("kafka_timestamp", "kafka_timestamp + INTERVAL 5 HOURS"),
        (2, 12): ("kafka_headers", "array(named_struct('key', 'n', 'value', CAST('0' AS BINARY)))"),
        (2, 13): ("event_type", "'other'"),
        (2, 14): ("event_id", "NULL"),
    }
    cases: dict[str, str] = {}
    for where, (column, value) in changed.items():
        cases[column] = cases.get(column, "") + f" WHEN {place.format(*where)} THEN {value}"
    cells = ", ".join(f"{column} = CASE{when} ELSE {column} END" for column, when in cases.items())
    world.sql(f"UPDATE {{table}} SET {cells} WHERE kafka_offset BETWEEN 7 AND 14")

    assert world.reconcile() == 1
    expected = {("different", *where) for where in changed}
    expected |= {("missing", 0, 3), ("missing", 2, 19), ("extra", 1, 5), ("extra", 1, 900)}
    found = world.found()
    assert set(found) == expected
    assert len(found) == len(expected)
    details = {(one["partition"], one["offset"]): one["detail"] for one in world.lines() if "kind" in one}
    assert details[1, 5] == "2 times"
    assert {where: details[where] for where in changed} == {where: column for where, (column, _) in changed.items()}
    assert "2 missing, 2 extra, 8 different" in capfd.readouterr().out


COLUMNS = "value string, kafka_partition int, kafka_offset bigint, kafka_timestamp timestamp"
SENT = [(f"text {offset}", 0, offset, datetime(2026, 11, 16, tzinfo=UTC)) for offset in range(6)]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param(SENT, [], id="all"),
        # Counts stay the same, and so would a sum over the values alone.
        pytest.param(
            [*SENT[:2], ("text 3", *SENT[2][1:]), ("text 2", *SENT[3][1:]), *SENT[4:]],
            [Difference("different", 0, 2, "value"), Difference("different", 0, 3, "value")],
            id="two that changed places",
        ),
        pytest.param(
            [*SENT[:2], SENT[3], *SENT[3:]],
            [Difference("missing", 0, 2), Difference("extra", 0, 3, "2 times")],
            id="one lost and another twice",
        ),
        pytest.param(
            [*SENT[:2], ("other", *SENT[2][1:]), *SENT[2:]],
            [Difference("different", 0, 2, "value"), Difference("extra", 0, 2, "2 times")],
            id="twice and not the same",
        ),
        pytest.param(
            SENT[:3], [Difference("missing", 0, 3), *(Difference("behind", 0, n) for n in (4, 5))], id="not there yet"
        ),
    ],
)
def test_rows_do_not_make_up_for_each_other(
    spark: "SparkSession", written: list[tuple[object, ...]], expected: list[Difference]
) -> None:
    topic, table = (spark.createDataFrame(rows, COLUMNS) for rows in (SENT, written))
    comparison = Comparison(topic, table, next_offsets={0: 4})
    hours = [hour for hour in comparison.hours() if not hour.is_same]
    assert bool(hours) == bool(expected)
    assert list(comparison.differences(hours)) == expected


@pytest.mark.full("four comparisons in Spark; the planted differences of the first test include this one")
def test_what_came_since_is_behind_and_may_be_allowed(own_world: World, capfd: pytest.CaptureFixture[str]) -> None:
    producer = KafkaProducer(bootstrap_servers=own_world.kwire.bootstrap)
    producer.send(own_world.topic, value=b"later", partition=1)
    producer.close(timeout=DEADLINE_S)
    assert own_world.reconcile() == 1
    assert own_world.found() == [("behind", 1, 20)]
    assert own_world.reconcile("--may-be-behind") == 0
    capfd.readouterr()
    assert own_world.reconcile("--may-be-behind", "--json") == 0
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (told["topic_rows"], told["table_rows"], told["behind"], told["missing"]) == (61, 60, 1, 0)


def test_what_retention_took_from_the_topic_is_no_difference(
    own_world: World, topics: Topics, capfd: pytest.CaptureFixture[str]
) -> None:
    from kafka import TopicPartition

    topics.admin.delete_records({TopicPartition(own_world.topic, 0): 6})
    assert own_world.reconcile() == 0
    assert "6 rows are older than the first record of the topic" in capfd.readouterr().out
    # What the topic still has is compared all the same.
    own_world.sql("DELETE FROM {table} WHERE kafka_partition = 0 AND kafka_offset = 6")
    assert own_world.reconcile() == 1
    assert own_world.found() == [("missing", 0, 6)]


@pytest.mark.full("another table and two comparisons in Spark, through the same code as for Iceberg")
def test_plain_files_are_compared_too(filled: World, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    world = World(filled.spark, filled.kwire, filled.topic, tmp_path)
    # Formats do not share a directory.
    world.warehouse = str(tmp_path / "plain")
    world.lake("--format", "parquet")
    assert world.reconcile("--format", "parquet") == 0
    folder = Path(world.warehouse, "kwire", table_name(world.topic))
    files = sorted(folder.glob("kafka_date=*/*.parquet"))
    # As a writer leaves it that is killed while it puts files in their places.
    staged = folder / "_staging" / files[0].relative_to(folder)
    staged.parent.mkdir(parents=True, exist_ok=True)
    files[0].rename(staged)
    assert world.reconcile("--format", "parquet") == 2
    assert "a batch is incomplete, because it is being written or the lake job was killed" in capfd.readouterr().err
    staged.unlink()
    assert world.reconcile("--format", "parquet") == 1
    lost = sum(hour["topic_rows"] - hour["table_rows"] for hour in world.hours())
    assert len(world.found()) == lost > 0
    assert {kind for kind, _, _ in world.found()} == {"missing"}


SCHEMA = {
    "eventType": "order.placed",
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
        "total": {"type": "number"},
    },
    "required": ["id"],
}


def test_events_with_schemas_are_compared_by_their_columns(
    spark: "SparkSession", kwire: KwireProcess, tmp_path: Path
) -> None:
    topic = unique_name("orders")
    assert ask(f"{kwire.http_url}/topics", "POST", {"name": topic, "schemas": [SCHEMA]}).status == 201
    events = [
        {
            "topic": topic,
            "type": "order.placed",
            "payload": {"id": str(number), "lines": [{"sku": f"s-{number}"}], "total": number / 2},
            "metadata": {"trace": str(number)},
        }
        for number in range(10)
    ]
    assert ask(f"{kwire.http_url}/events", "POST", events).status == 201
    world = World(spark, kwire, topic, tmp_path)
    world.lake()
    assert world.reconcile() == 0
    world.sql("UPDATE {table} SET total = total + 0.25 WHERE kafka_offset = 4")
    world.sql("UPDATE {table} SET lines = array(named_struct('sku', 'other')) WHERE kafka_offset = 5")
    assert world.reconcile() == 1
    details = {one["offset"]: one["detail"] for one in world.lines() if "kind" in one}
    assert details == {4: "total", 5: "lines"}


def test_bad_records_have_to_be_dead_letters(
    spark: "SparkSession", kwire: KwireProcess, topics: Topics, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create("bad")
    producer = KafkaProducer(bootstrap_servers=kwire.bootstrap)
    for value in (b"good", b"\xff\xfe", b"good too"):
        producer.send(topic, value=value)
    producer.close(timeout=DEADLINE_S)
    world = World(spark, kwire, topic, tmp_path)
    world.lake()
    assert world.reconcile() == 0
    assert "1 bad records are in the table of dead letters" in capfd.readouterr().out
    world.spark.sql(f"DELETE FROM {world.table}_dead_letters")
    assert world.reconcile() == 1
    assert world.found() == [("missing", 0, 1)]
    assert world.reconcile("--bad-elsewhere") == 0


def test_a_compacted_topic_is_compared_by_what_is_left_of_each_key(
    spark: "SparkSession", kwire: KwireProcess, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("compacted", configs={"cleanup.policy": "compact"})
    producer = KafkaProducer(bootstrap_servers=kwire.bootstrap)
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), (b"b", None)):
        producer.send(topic, key=key, value=value)
    producer.close(timeout=DEADLINE_S)
    world = World(spark, kwire, topic, tmp_path)
    world.lake()
    assert world.reconcile() == 0
    assert sum(hour["topic_rows"] for hour in world.hours()) == 2
    world.sql("UPDATE {table} SET value = 'wrong' WHERE kafka_offset = 2")
    assert world.reconcile() == 1
    assert world.found() == [("different", 0, 2)]


def test_what_cannot_be_compared_is_said_in_a_line(
    filled: World, topics: Topics, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert World(filled.spark, filled.kwire, "not-there", tmp_path).reconcile() == 2
    assert "kwire: topic not-there does not exist" in capfd.readouterr().err
    topic = topics.create("never-written")
    assert World(filled.spark, filled.kwire, topic, tmp_path).reconcile() == 2
    assert f"table lake.kwire.`{table_name(topic)}` of topic {topic} does not exist" in capfd.readouterr().err
    # Another topic whose table has the same name.
    twin = filled.topic.replace("-", "_")
    topics.admin.create_topics({twin: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    assert World(filled.spark, filled.kwire, twin, tmp_path).reconcile() == 2
    assert f"is the table of {filled.topic}, not of topic {twin}" in capfd.readouterr().err
