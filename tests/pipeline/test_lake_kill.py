"""The driver of the lake job is killed at random moments while a producer goes on: the table still equals the log.

Goal: exactly once, whatever moment a driver dies at. Method: a real job in a process of its own, in batches as small
and as fast as they go, so that most of its time is spent around commits; it is killed with SIGKILL, sometimes Python
alone (Java goes on for a moment), sometimes both; the next one starts from what is there.
KWIRE_TEST_SEED repeats a run.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer

from tests.support.clients import DEADLINE_S, Topics
from tests.support.effort import repetitions
from tests.support.lake import LakeUnderTest, commits, lake_arguments, log_of
from tests.support.server import KwireProcess, wait_until
from tests.support.spark import SHORT_LIVED_JOB, warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = repetitions(quick=1, full=1)
SEED = os.environ.get("KWIRE_TEST_SEED") or str(random.randrange(1 << 32))
# A start takes Spark ten seconds on a machine that has nothing else to do.
START_TIMEOUT_S = 280.0
JOB_TIMEOUT_S = 300.0
# How long a job works, at most, between its first commit and its end.
LIFE_S_MAX = 4.0
PARTITIONS = 3

pytestmark = [
    pytest.mark.needs_spark,
    pytest.mark.timeout(300 + 300 * KILLS),
    # It waits for drivers, which are processes of their own: the tests that share Spark go on in another worker.
    pytest.mark.xdist_group("spark-processes"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Driver:
    """The job as a user runs it, in a session of its own, so that Java can be killed with it."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        command = [sys.executable, "-m", "kwire", "pipeline", "lake", *arguments, *SHORT_LIVED_JOB]
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def kill(self, *, with_java: bool) -> None:
        if with_java:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait(JOB_TIMEOUT_S)

    def is_running(self) -> bool:
        assert self.process.poll() is None, f"the job ended by itself\n{self.output()}"
        return True

    def output(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


@contextmanager
def steady_producer(bootstrap: str, topic: str) -> Iterator[None]:
    """About two hundred records a second, in all partitions, until the block ends."""
    stop = threading.Event()
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)

    def produce() -> None:
        number = 0
        while not stop.wait(0.05):
            for _ in range(10):
                # One in fifty is no text: it belongs to the dead letters, once.
                value = b"\xff%d" % number if number % 50 == 7 else b"row-%d" % number
                producer.send(topic, key=b"%d" % number, value=value, partition=number % PARTITIONS)
                number += 1

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(DEADLINE_S)
        producer.close(timeout=DEADLINE_S)


def has_committed(driver: Driver, root: Path, table_format: str, before: int) -> bool:
    return driver.is_running() and commits(root, table_format) > before


@pytest.mark.parametrize(
    "table_format",
    ["iceberg", pytest.param("parquet", marks=pytest.mark.full("the same kills; iceberg runs at every effort"))],
)
def test_a_killed_driver_leaves_a_table_that_equals_the_log(
    spark: "SparkSession", kwire: KwireProcess, topics: Topics, tmp_path: Path, table_format: str
) -> None:
    print(f"KWIRE_TEST_SEED={SEED}")
    chance = random.Random(f"{SEED} {table_format}")
    topic = topics.create("killed", partitions=PARTITIONS)
    table = topic.replace("-", "_")
    warehouse = warehouse_of(spark)
    log = tmp_path / "drivers.log"
    arguments = lake_arguments(kwire, warehouse, table_format, topic)
    root = Path(warehouse) / "kwire" / table
    with steady_producer(kwire.bootstrap, topic):
        for _ in range(KILLS):
            driver = Driver([*arguments, "--interval", "0", "--batch-records", "100"], log)
            try:
                before = commits(root, table_format)
                wait_until(
                    partial(has_committed, driver, root, table_format, before), "the job commits", START_TIMEOUT_S
                )
                # The moment is random, so nothing is waited for but time.
                threading.Event().wait(chance.uniform(0, LIFE_S_MAX))
                assert driver.is_running()
            finally:
                driver.kill(with_java=chance.random() < 0.5)
    lake = LakeUnderTest(spark, kwire, warehouse, table_format)
    lake.run_once(topic)
    expected = log_of(kwire.bootstrap, topic)
    print(f"{len(expected)} records, {KILLS} kills, {commits(root, table_format)} is the last commit")
    assert lake.log_rows(table) == [row for row in expected if not (row.value or b"").startswith(b"\xff")]
    letters = lake.rows(f"{table}_dead_letters")
    assert [(row["kafka_partition"], row["kafka_offset"], bytes(row["kafka_value"])) for row in letters] == [
        (row.partition, row.offset, row.value) for row in expected if (row.value or b"").startswith(b"\xff")
    ]
