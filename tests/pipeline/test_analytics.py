"""Analytics as a job: from rooms to a room of results and to tables, killed and stopped on the way, each result once.

What is right follows from which micro-batches Spark made, and those are in its checkpoints: the plain twin takes the
same batches and must tell the same.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer

from kwire.client import Client, Event
from kwire.pipeline.analytics.analysis import Analysis
from kwire.pipeline.columns import table_name
from kwire.pipeline.jobs import CANNOT_RUN
from kwire.pipeline.lake.checkpoint import Checkpoint
from kwire.pipeline.lake.tables import BatchMark
from tests.support.activity_twin import TWINS, Happened, StreamTwin, row_of_event, rows_of_frame
from tests.support.clients import DEADLINE_S, unique_name
from tests.support.jobs import run_job
from tests.support.server import KwireProcess, wait_until
from tests.support.spark import SHORT_LIVED_JOB, warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.needs_spark,
    pytest.mark.timeout(480),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

# A job starts a Java process of its own, on a machine that may be busy.
JOB_TIMEOUT_S = 240.0
PHASE_EVENTS = 120
PHASE_MS = 90_000
TOP = 2
ASKED = Analysis(window_ms=20_000, slide_ms=10_000, lateness_ms=15_000, gap_ms=8_000, top=TOP)
SPANS = ("--window", "20s", "--slide", "10s", "--lateness", "15s", "--session-gap", "8s", "--top", str(TOP))


class World:
    """Rooms that things happen in, with all that happened, by room and offset; and the job that counts it."""

    def __init__(self, kwire: KwireProcess, warehouse: str, directory: Path) -> None:
        self._kwire = kwire
        self._warehouse = warehouse
        self._directory = directory
        self._starts = 0
        self._random = random.Random(20_260_517)
        self._began_ms = int(time.time() * 1000) - 3_600_000
        self._phase = 0
        self._job: subprocess.Popen[bytes] | None = None
        stem = unique_name("seen")
        self.rooms = [f"{stem}-{name}" for name in ("lobby", "chat", "game")]
        self.results_room = unique_name("activity")
        self.happened: dict[str, list[Happened]] = {room: [] for room in self.rooms}
        self.command = [
            *("analytics", "--pattern", f"{stem}-.*", *SPANS),
            *("--bootstrap", kwire.bootstrap, "--http", kwire.http_url, "--warehouse", warehouse),
            *("--state-partitions", "2", "--results-room", self.results_room),
            *("--batch-records", "90", "--interval", "0.5"),
            *SHORT_LIVED_JOB,
        ]

    def publish_phase(self) -> None:
        """Time moves on by a phase; most events come a little late, some far too late."""
        producer = KafkaProducer(bootstrap_servers=self._kwire.bootstrap)
        for number in range(PHASE_EVENTS):
            reached = self._began_ms + self._phase * PHASE_MS + PHASE_MS * number // PHASE_EVENTS
            lateness = self._random.choice([0, 0, 0, 4_000, 9_000, 14_000, 40_000, 80_000])
            event = Happened(
                room=self._random.choice(self.rooms),
                event_type=self._random.choice(["message", "joined"]),
                user=self._random.choice(["ann", "bob", "cem", None]),
                time_ms=reached - self._random.randrange(lateness + 1),
            )
            self.happened[event.room].append(event)
            producer.send(
                event.room,
                value=json.dumps({"user": event.user, "number": number}).encode(),
                headers=[("ce_type", event.event_type.encode())],
                timestamp_ms=event.time_ms,
                partition=0,
            )
        producer.close(timeout=DEADLINE_S)
        self._phase += 1

    def start(self, *more: str) -> "subprocess.Popen[bytes]":
        # A log for each: the Java process of a job that was killed may have something to say after the next has begun.
        self._starts += 1
        with self._log_path.open("wb") as log:
            environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
            self._job = subprocess.Popen(
                [sys.executable, "-m", "kwire", "pipeline", *self.command, *more],
                stderr=log,
                stdout=log,
                env=environment,
            )
            return self._job

    def end(self) -> None:
        """Of a job that a failed test has left running."""
        if self._job is not None and self._job.poll() is None:
            self._job.kill()
            self._job.wait()

    @property
    def _log_path(self) -> Path:
        """Of the job that was started last."""
        return self._directory / f"job-{self._starts}.log"

    def log(self) -> str:
        return self._log_path.read_text(errors="replace")

    def told(self) -> list[Event]:
        """All events of the room of results."""
        with Client(self._kwire.http_url) as client:
            return told_in(client, self.results_room)

    def twin_of(self, name: str) -> StreamTwin:
        """Fed with the batches that Spark's checkpoint tells of; the watermarks that stand there must be its own."""
        twin, ends = StreamTwin(name, ASKED), dict.fromkeys(self.rooms, 0)
        (checkpoint,) = Path(self._warehouse, "_checkpoints", "analytics", self.results_room).glob(f"{name}-*")
        done = sorted(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
        assert done == list(range(len(done)))
        for number in done:
            _, batch, offsets = (checkpoint / "offsets" / str(number)).read_text().split("\n")[:3]
            assert json.loads(batch)["batchWatermarkMs"] == twin.watermark_ms
            reached = {room: parts["0"] for room, parts in json.loads(offsets).items()}
            twin.batch([event for room, end in reached.items() for event in self.happened[room][ends[room] : end]])
            ends |= reached
        assert ends == {room: len(events) for room, events in self.happened.items()}
        return twin


def told_in(client: Client, room: str) -> list[Event]:
    """All events of the room."""
    info, found = client.rooms.get(room), list[Event]()
    while (next_offset := found[-1].offset + 1 if found else info.oldest_offset) <= info.newest_offset:
        found += client.stream.history(room, from_offset=next_offset, limit=1000).events
    return found


@pytest.fixture
def world(kwire: KwireProcess, spark: "SparkSession", tmp_path: Path) -> Iterator[World]:
    made = World(kwire, warehouse_of(spark), tmp_path)
    with Client(kwire.http_url) as client:
        for room in made.rooms:
            client.rooms.create(room)
    yield made
    made.end()


def scraped(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=DEADLINE_S) as answer:
        text: str = answer.read().decode()
        return text


def finished(job: "subprocess.Popen[bytes]", world: World) -> int:
    try:
        return job.wait(JOB_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        job.kill()
        job.wait()
        raise AssertionError(f"the job did not end\n{world.log()}") from None


# It waits for jobs, which are processes of their own: the tests that share Spark go on in another worker.
@pytest.mark.xdist_group("spark-processes")
@pytest.mark.full("starts Java three times and waits for several windows to close")
def test_results_are_told_and_kept_once_whatever_ends_the_job(
    world: World, kwire: KwireProcess, spark: "SparkSession", unused_port: int
) -> None:
    address = f"127.0.0.1:{unused_port}"
    world.publish_phase()
    job = world.start()
    with Client(kwire.http_url) as client, client.stream.subscribe(world.results_room, from_offset=0) as page:
        assert page.next_event(JOB_TIMEOUT_S).type.startswith("activity.")
    # Killed while it has much to do: in the middle of batches of several queries.
    world.publish_phase()
    job.kill()
    job.wait()

    world.publish_phase()
    count = len(world.told())
    job = world.start("--metrics", address)
    wait_until(lambda: len(world.told()) > count or job.poll() is not None, "new results", JOB_TIMEOUT_S)
    wait_until(
        lambda: 'kwire_pipeline_lag_events{job="analytics",query="' in scraped(address), "metrics", JOB_TIMEOUT_S
    )
    world.publish_phase()
    job.send_signal(signal.SIGTERM)
    assert finished(job, world) == 0, world.log()
    assert "Traceback" not in world.log()
    assert "ERROR" not in world.log()

    assert run_job(*world.command, "--once", "--quiet") == 0

    told = world.told()
    for name in TWINS:
        twin = world.twin_of(name)
        assert twin.dropped, "the test is about late events"
        expected = Counter(twin.told)
        table = spark.table(f"lake.kwire.{table_name(world.results_room)}_{name}")
        assert Counter(rows_of_frame(table)) == expected, name
        events = [event for event in told if event.type == f"activity.{name}"]
        assert Counter(row_of_event(event.data) for event in events) == expected, name
        assert len({event.event_id for event in events}) == len(events)


class Moments:
    """A room in which something happens at the moments that are named, and the job that counts it to its end."""

    def __init__(self, kwire: KwireProcess, warehouse: str) -> None:
        self.client = Client(kwire.http_url)
        self.room, self.results_room = unique_name("room"), unique_name("activity")
        self._began_ms = int(time.time() * 1000) // 60_000 * 60_000 - 3_600_000
        self._bootstrap = kwire.bootstrap
        self.command = [
            *("analytics", "--bootstrap", kwire.bootstrap, "--http", kwire.http_url, "--warehouse", warehouse),
            *("--results-room", self.results_room, "--state-partitions", "2", "--once", "--quiet"),
            *("--window", "10s", "--slide", "10s", "--lateness", "0s", "--session-gap", "5s", "--format", "parquet"),
        ]

    def publish(self, *seconds: int, room: str | None = None) -> None:
        producer = KafkaProducer(bootstrap_servers=self._bootstrap)
        for second in seconds:
            value = json.dumps({"user": "ann"}).encode()
            producer.send(room or self.room, value, timestamp_ms=self._began_ms + second * 1000, partition=0)
        producer.close(timeout=DEADLINE_S)

    def told(self) -> list[int]:
        """The second at which each result that was told begins."""
        events = told_in(self.client, self.results_room)
        rows = [row_of_event(event.data) for event in events]
        return [(row[0] - self._began_ms) // 1000 for row in rows]


@pytest.fixture
def moments(kwire: KwireProcess, spark: "SparkSession") -> Iterator[Moments]:
    made = Moments(kwire, warehouse_of(spark))
    with made.client:
        made.client.rooms.create(made.room)
        yield made


def test_rooms_may_go_and_come_while_they_are_counted(moments: Moments, spark: "SparkSession") -> None:
    other = unique_name("other")
    moments.client.rooms.create(other)
    counted = [*moments.command, "--topic", moments.room, "--topic", other, "--result", "counts"]
    moments.publish(1, 2, 15, 25)
    moments.publish(3, room=other)
    assert run_job(*counted) == 0
    assert sorted(moments.told()) == [0, 0, 10]
    moments.client.rooms.delete(other)
    moments.client.rooms.delete(moments.results_room)
    moments.client.rooms.create(other)
    moments.publish(31, 45)
    moments.publish(46, room=other)
    assert run_job(*counted) == 0
    assert moments.client.rooms.get(moments.results_room).facts["is_room"]
    assert moments.told() == [20, 30]


def test_a_result_that_is_asked_for_otherwise_is_told_anew(moments: Moments) -> None:
    counted = [*moments.command, "--topic", moments.room, "--to", "room", "--result", "sessions"]
    moments.publish(1, 2, 9, 60)
    assert run_job(*counted) == 0
    assert moments.told() == [1, 9]
    assert run_job(*counted, "--session-gap", "20s") == 0
    assert moments.told() == [1, 9, 1]


class Nowhere:
    """Takes results as a place does that has them already: it does not look at them."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def write(self, rows: "DataFrame", mark: BatchMark) -> None:
        self.batches.append(mark.batch_id)


def test_open_windows_outlive_a_batch_that_no_place_wants(spark: "SparkSession", tmp_path: Path) -> None:
    from kwire.pipeline.analytics.sinks import batch_writer

    source, checkpoint = tmp_path / "events", Checkpoint(spark, f"file://{tmp_path}/checkpoint")
    source.mkdir()
    place = Nowhere()
    write = batch_writer([place], checkpoint)
    rows = spark.readStream.schema("number int").option("maxFilesPerTrigger", 1).json(str(source))
    for _ in range(3):
        # Groups in all partitions of the state, and rows in the first of them.
        (source / f"{len(place.batches)}.json").write_text("".join(f'{{"number":{number}}}\n' for number in range(20)))
        stream = rows.groupBy("number").count().writeStream.outputMode("update").trigger(availableNow=True)
        query = stream.foreachBatch(write).option("checkpointLocation", checkpoint.uri).start()
        assert query.awaitTermination(JOB_TIMEOUT_S)
    assert place.batches == [0, 1, 2]


def test_a_table_of_others_is_left_alone(moments: Moments, capsys: pytest.CaptureFixture[str]) -> None:
    counted = [*moments.command, "--topic", moments.room, "--to", "tables", "--result", "counts"]
    moments.publish(1, 15)
    assert run_job(*counted) == 0
    # Another room, with a name that makes the same name of a table.
    clashing = moments.results_room.replace("-", ".")
    assert clashing != moments.results_room
    assert run_job(*counted, "--results-room", clashing) == CANNOT_RUN
    assert "is not the table of activity.counts of the room" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--topic", "no-such-room"), "topic no-such-room does not exist"),
        (("--pattern", "("), "--pattern '(': Unclosed group"),
    ],
)
def test_what_cannot_be_counted_is_refused_in_a_line(
    moments: Moments, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert run_job(*moments.command, *words) == CANNOT_RUN
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kwire: ")
    assert reason in line
