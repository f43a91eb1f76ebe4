"""What happens to a topic while a job reads it: records go, it is made again, it grows, its events get more fields."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition

from kwire.pipeline.changes import (
    EARLIEST_OFFSET,
    Gap,
    LogTruncated,
    RecordsLost,
    TopicChangeDetector,
    check_ends,
    gaps,
    next_offsets,
    starting_offsets,
)
from kwire.pipeline.columns import table_name
from kwire.pipeline.jobs import CANNOT_RUN, DONE
from kwire.pipeline.lake.iceberg import NOTE_PREFIX, IcebergLake
from kwire.pipeline.lake.topic_writer import LOST_NOTE, TopicWriter
from kwire.pipeline.topic_facts import LogBounds, TopicState
from tests.support.clients import Topics, produce_values, unique_name
from tests.support.http_json import ask
from tests.support.jobs import run_job
from tests.support.lake import commits
from tests.support.server import KwireProcess, kwire_command, wait_until
from tests.support.spark import SHORT_LIVED_JOB, warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

in_spark = [
    pytest.mark.needs_spark,
    pytest.mark.timeout(300),
    # PySpark leaves the sockets over which it collects rows to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

BATCH = 10
ROWS_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0
places = st.dictionaries(st.integers(0, 5), st.integers(0, 50))


@given(next_ones=places, first=st.integers(0, 50))
def test_what_is_lost_is_what_lies_between(next_ones: dict[int, int], first: int) -> None:
    found = list(gaps(next_ones, {partition: LogBounds(first, 100) for partition in range(6)}))
    # A partition that is new has been read from its beginning; where nothing was read, nothing is missing.
    places = {partition: next_ones.get(partition, 0) for partition in range(6)} if next_ones else {}
    assert found == [Gap(partition, offset, first) for partition, offset in places.items() if offset < first]


def test_a_log_that_does_not_reach_what_was_seen_is_another_one() -> None:
    bounds = {0: LogBounds(2, 5)}
    check_ends("t", {}, bounds)
    check_ends("t", {0: 5}, bounds)
    with pytest.raises(LogTruncated, match="partition 0 ends at offset 5, but records up to 6 were read"):
        check_ends("t", {0: 6}, bounds)
    with pytest.raises(LogTruncated, match="no longer has partition 1"):
        check_ends("t", {0: 1, 1: 1}, bounds)


class Told:
    """A topic as it is said to be."""

    def __init__(self, first: int, end: int) -> None:
        self.now = TopicState("id", {0: LogBounds(first, end)})

    def state(self, _name: str) -> TopicState:
        return self.now


def offsets_of(offset: int) -> str:
    return json.dumps({"t": {"0": offset}})


def test_what_is_lost_over_several_batches_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    told: Any = Told(first=25, end=40)
    watch = TopicChangeDetector(told, "t", "id", offsets_of(10), stops_at_loss=False)
    watch.check()
    assert caplog.records == []
    lost = []
    for end in (20, 30, 40):
        lost += watch.check_batch(offsets_of(0), offsets_of(end))
        watch.has_read(offsets_of(end))
    assert lost == [Gap(0, 10, 20), Gap(0, 20, 25)]
    assert len(caplog.records) == 2


def test_a_table_without_rows_lacks_what_went_after_its_query_began() -> None:
    told: Any = Told(first=3, end=40)
    watch = TopicChangeDetector(told, "t", None, None, stops_at_loss=True)
    watch.check()
    assert watch.check_batch(offsets_of(3), offsets_of(10)) == []
    told.now = TopicState("id", {0: LogBounds(7, 40)})
    watch = TopicChangeDetector(told, "t", None, None, stops_at_loss=True)
    with pytest.raises(RecordsLost, match="offsets 3 to 6"):
        watch.check_batch(offsets_of(3), offsets_of(10))


@given(next_ones=places, partitions=st.integers(1, 8))
def test_a_query_begins_where_the_table_ends_and_new_partitions_at_their_beginning(
    next_ones: dict[int, int], partitions: int
) -> None:
    state = TopicState("id", {partition: LogBounds(7, 100) for partition in range(partitions)})
    told = json.loads(starting_offsets("t", next_ones, state))["t"]
    assert told == {
        str(partition): max(7, next_ones[partition]) if partition in next_ones else EARLIEST_OFFSET
        for partition in range(partitions)
    }
    as_spark = json.dumps({"t": {str(partition): offset for partition, offset in next_ones.items()}})
    assert next_offsets(as_spark, "t") == next_ones


class World:
    """A topic, its table, and the job between them, ten records a batch."""

    def __init__(self, spark: "SparkSession", kwire: KwireProcess, topics: Topics) -> None:
        self.spark = spark
        self.kwire = kwire
        self.topics = topics
        self.warehouse = warehouse_of(spark)

    def words(self, *topics: str) -> list[str]:
        named = [word for topic in topics for word in ("--topic", topic)]
        servers = ["--bootstrap", self.kwire.bootstrap, "--http", self.kwire.http_url]
        return ["lake", *servers, *named, "--warehouse", self.warehouse, "--quiet"]

    def lake(self, topic: str, *more: str) -> int:
        return run_job(*self.words(topic), "--once", "--batch-records", str(BATCH), *more)

    def fill(self, topic: str, start: int, stop: int, partition: int = 0) -> None:
        rows = [f"row-{number}".encode() for number in range(start, stop)]
        produce_values(self.kwire.bootstrap, topic, rows, partition=partition)

    def table(self, topic: str) -> Any:
        return IcebergLake(self.spark, 1).table(table_name(topic))

    def lost(self, topic: str) -> list[str]:
        """What the marks of a table say of records that were gone."""
        summaries = self.spark.sql(f"SELECT summary FROM {self.table(topic).name}.snapshots ORDER BY committed_at")
        notes = [row["summary"].get(NOTE_PREFIX + LOST_NOTE) for row in summaries.collect()]
        return [note for note in notes if note]

    def rows(self, topic: str, column: str = "value") -> list[tuple[int, int, Any]]:
        """Partition, offset and one column, in order; nothing if there is no table yet."""
        table = self.table(topic)
        if not table.exists():
            return []
        self.spark.catalog.refreshTable(table.name)
        found = table.read().select("kafka_partition", "kafka_offset", column).collect()
        return sorted((row[0], row[1], row[2]) for row in found)


def rows_of(offsets: "range | list[int]", partition: int = 0) -> list[tuple[int, int, str]]:
    """The rows of a topic whose row n has the offset n."""
    return [(partition, offset, f"row-{offset}") for offset in offsets]


@pytest.fixture
def world(spark: "SparkSession", kwire: KwireProcess, topics: Topics) -> World:
    return World(spark, kwire, topics)


@pytest.fixture
def before_batch(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], None]:
    """Have something happen when Spark has planned a batch and nothing of it has been read."""

    def plan(number: int, happening: Callable[[], object]) -> None:
        write = TopicWriter._write

        def write_after(self: TopicWriter, batch: Any, batch_id: int) -> None:
            if batch_id == number:
                happening()
            write(self, batch, batch_id)

        monkeypatch.setattr(TopicWriter, "_write", write_after)

    return plan


class TestInSpark:
    pytestmark = in_spark

    def test_retention_passes_under_a_query(
        self, world: World, before_batch: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        topic = world.topics.create("passed")
        world.fill(topic, 0, 30)
        before_batch(1, lambda: world.topics.admin.delete_records({TopicPartition(topic, 0): 15}))
        assert world.lake(topic) == CANNOT_RUN
        assert "lost records before they were read: partition 0 offsets 10 to 14" in capsys.readouterr().err
        assert world.rows(topic) == rows_of(range(10))
        # The next start says the same, until it is told to go on.
        assert world.lake(topic) == CANNOT_RUN
        assert world.lake(topic, "--data-loss", "continue") == DONE
        assert world.rows(topic) == rows_of([*range(10), *range(15, 30)])
        assert world.lost(topic) == ["[[0, 10, 15]]"]

    def test_retention_passes_under_the_first_batch(
        self, world: World, before_batch: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        topic = world.topics.create("passed-first")
        world.fill(topic, 0, 12)
        before_batch(0, lambda: world.topics.admin.delete_records({TopicPartition(topic, 0): 5}))
        assert world.lake(topic) == CANNOT_RUN
        assert "lost records before they were read: partition 0 offsets 0 to 4" in capsys.readouterr().err
        assert world.lake(topic, "--data-loss", "continue") == DONE
        assert world.rows(topic) == rows_of(range(5, 12))
        assert world.lost(topic) == ["[[0, 0, 5]]"]

    def test_retention_by_age_passes_between_two_runs(
        self, spark: "SparkSession", start_kwire: Callable[..., KwireProcess], capsys: pytest.CaptureFixture[str]
    ) -> None:
        server = start_kwire(settings={"log.retention.check.interval.ms": "100"})
        topics = Topics(server.bootstrap)
        try:
            world = World(spark, server, topics)
            topic = topics.create("aged")
            world.fill(topic, 0, 5)
            assert world.lake(topic) == DONE
            world.fill(topic, 5, 12)
            topics.admin.alter_configs([_setting(topic, "retention.ms", "1")])
            place = TopicPartition(topic, 0)
            wait_until(lambda: _first_offset(topics, place) == 12, "retention to take the records")
            topics.admin.alter_configs([_setting(topic, "retention.ms", "-1")])
            world.fill(topic, 12, 15)
            assert world.lake(topic) == CANNOT_RUN
            assert "partition 0 offsets 5 to 11" in capsys.readouterr().err
            assert world.lake(topic, "--data-loss", "continue") == DONE
            assert world.rows(topic) == rows_of([*range(5), *range(12, 15)])
        finally:
            topics.close()

    def test_a_topic_is_deleted_and_made_again_under_a_query(
        self, world: World, before_batch: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        topic = world.topics.create("again")
        world.fill(topic, 0, 30)

        def make_again() -> None:
            world.topics.admin.delete_topics([topic])
            world.topics.admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
            # As long as the one before: its offsets tell nothing.
            world.fill(topic, 100, 140)

        before_batch(1, make_again)
        assert world.lake(topic) == CANNOT_RUN
        assert f"{topic} was deleted and created again" in capsys.readouterr().err
        assert world.rows(topic) == rows_of(range(10))
        # Losing records may be accepted, another topic's events may not.
        assert world.lake(topic, "--data-loss", "continue") == CANNOT_RUN
        assert world.rows(topic) == rows_of(range(10))

    def test_a_topic_is_deleted_under_a_query(
        self, world: World, before_batch: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        topic = world.topics.create("deleted")
        world.fill(topic, 0, 30)
        before_batch(1, lambda: world.topics.admin.delete_topics([topic]))
        assert world.lake(topic) == CANNOT_RUN
        assert f"topic {topic} does not exist" in capsys.readouterr().err
        assert world.rows(topic) == rows_of(range(10))

    def test_a_lost_checkpoint_is_no_loss_even_with_new_partitions(self, world: World) -> None:
        topic = world.topics.create("no-checkpoint")
        world.fill(topic, 0, 15)
        assert world.lake(topic, "--checkpoints", f"{world.warehouse}/one") == DONE
        world.topics.admin.create_partitions({topic: 2})
        world.fill(topic, 15, 20)
        world.fill(topic, 0, 5, partition=1)
        assert world.lake(topic, "--checkpoints", f"{world.warehouse}/two") == DONE
        assert world.rows(topic) == [*rows_of(range(20)), *rows_of(range(5), partition=1)]

    def test_a_bad_event_in_the_middle_stops_the_job_until_it_may_go_aside(
        self, world: World, capsys: pytest.CaptureFixture[str]
    ) -> None:
        topic = world.topics.create("stops")
        world.fill(topic, 0, 12)
        produce_values(world.kwire.bootstrap, topic, [b"\xff\xfe"])
        world.fill(topic, 13, 25)
        assert world.lake(topic, "--bad-rows", "stop") == CANNOT_RUN
        assert f"bad record {topic} partition 0 offset 12" in capsys.readouterr().err
        assert world.rows(topic) == rows_of(range(10))
        assert world.lake(topic) == DONE
        assert world.rows(topic) == rows_of([*range(12), *range(13, 25)])

    # It waits for a process: the tests that share Spark go on in another worker.
    @pytest.mark.xdist_group("spark-processes")
    @pytest.mark.full("waits half a minute for a job in a process of its own")
    def test_a_running_job_takes_in_new_partitions_and_new_fields(self, world: World, running_lake: Any) -> None:
        topic = world.topics.create("grows")
        events = unique_name("gains")
        schema = {"eventType": "order", "type": "object", "properties": {"id": {"type": "integer"}}}
        made = ask(f"{world.kwire.http_url}/topics", "POST", {"name": events, "schemas": [schema]})
        assert made.status == 201, made
        world.fill(topic, 0, 5)
        _publish(world.kwire, events, {"id": 0})
        running_lake(world.words(topic, events))
        _wait_for_rows(world, topic, 5)
        _wait_for_rows(world, events, 1, "id")

        world.topics.admin.create_partitions({topic: 3})
        world.fill(topic, 0, 7, partition=2)
        schema["properties"] = {"id": {"type": "integer"}, "price": {"type": "number"}}
        grown = ask(f"{world.kwire.http_url}/topics/{events}/schemas", "PUT", {"schemas": [schema]})
        assert grown.status == 200, grown
        _publish(world.kwire, events, {"id": 1, "price": 2.5})
        _wait_for_rows(world, topic, 12)
        _wait_for_rows(world, events, 2, "id")
        assert world.rows(topic) == [*rows_of(range(5)), *rows_of(range(7), partition=2)]
        assert world.rows(events, "price") == [(0, 0, None), (0, 1, 2.5)]
        names = [column.name for column in world.table(events).columns()]
        assert names[:3] == ["id", "price", "event_id"]


@pytest.fixture
def running_lake(tmp_path: Path) -> Iterator[Callable[[list[str]], None]]:
    """The job as a process of its own that runs until the end of the test, and then stops when it is asked to."""
    processes: list[subprocess.Popen[bytes]] = []
    log = tmp_path / "lake.log"

    def start(words: list[str]) -> None:
        with log.open("wb") as output:
            command = [str(kwire_command()), "pipeline", *words, "--interval", "0.2", "--master", "local[1]"]
            command += SHORT_LIVED_JOB
            processes.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT))

    yield start
    for process in processes:
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(STOP_TIMEOUT_S) == 0, log.read_text()
        finally:
            process.kill()
        # It ends with a summary of each table, and nothing of Spark's own words is shown.
        assert "rows added" in log.read_text().splitlines()[-1]
        assert " WARN " not in log.read_text()


def _wait_for_rows(world: World, topic: str, count: int, column: str = "value") -> None:
    """Read the table after each commit, and not more often: the job that commits needs the processor, too."""
    root, read_at = Path(world.warehouse, "kwire", table_name(topic)), -1

    def has_rows() -> bool:
        nonlocal read_at
        commit = commits(root)
        if commit == read_at:
            return False
        read_at = commit
        return len(world.rows(topic, column)) == count

    wait_until(has_rows, f"{count} rows of {topic}", ROWS_TIMEOUT_S)


def _publish(kwire: KwireProcess, topic: str, payload: dict[str, Any]) -> None:
    answer = ask(f"{kwire.http_url}/events", "POST", {"topic": topic, "type": "order", "payload": payload})
    assert answer.status == 201, answer


def _first_offset(topics: Topics, place: TopicPartition) -> int:
    from kafka import OffsetSpec

    return int(topics.admin.list_partition_offsets({place: OffsetSpec.EARLIEST})[place].offset)


def _setting(topic: str, name: str, value: str) -> Any:
    from kafka.admin import ConfigResource, ConfigResourceType

    return ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
