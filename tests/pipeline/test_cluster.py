"""The same jobs on a Spark standalone cluster of two workers, started by scripts/cluster on this machine."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kwire.pipeline.columns import table_name
from kwire.pipeline.jobs import DONE
from tests.support.clients import Topics, produce_values
from tests.support.jobs import run_job
from tests.support.server import KwireProcess, wait_until
from tests.support.spark import own_spark, warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.needs_spark,
    pytest.mark.timeout(600),
    # PySpark leaves the sockets over which it collects rows to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cluster"
WORKERS = 2
PARTITIONS = 2
ROWS = 50
START_TIMEOUT_S = 180.0
# Of the master, the workers and their executors, which live for a minute.
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def cluster_command(word: str, directory: Path) -> str:
    done = subprocess.run(
        [str(SCRIPT), word, str(directory)],
        env={**os.environ, "CLUSTER_PORT": "0", "CLUSTER_WORKERS": str(WORKERS), "JAVA_TOOL_OPTIONS": FAST_START},
        stdout=subprocess.PIPE,
        text=True,
        timeout=START_TIMEOUT_S,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of the master, and the directory with the workers' files."""
    directory = tmp_path_factory.mktemp("cluster")
    try:
        yield cluster_command("start", directory).removeprefix("ready ").strip(), directory
    finally:
        cluster_command("stop", directory)
    assert list(directory.glob("*.pid")) == []


@pytest.fixture(scope="module")
def spark(cluster: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    with own_spark(tmp_path_factory.mktemp("spark"), master=cluster[0], spark_executor_memory="512m") as session:
        yield session


def executor_count(spark: "SparkSession") -> int:
    # The driver is listed too.
    return int(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos().__len__()) - 1


@pytest.mark.full("starts a Spark cluster; the other tests of the lake job run it in one process")
def test_the_lake_job_runs_on_both_workers(
    cluster: tuple[str, Path], spark: "SparkSession", kwire: KwireProcess, topics: Topics
) -> None:
    master, directory = cluster
    wait_until(lambda: executor_count(spark) == WORKERS, "an executor on each worker", START_TIMEOUT_S)
    assert all(list(directory.glob(f"work-{number}/app-*/*")) for number in range(1, WORKERS + 1))
    events = topics.create("clustered", partitions=PARTITIONS)
    state = topics.create("clustered-state", partitions=PARTITIONS, configs={"cleanup.policy": "compact"})
    for partition in range(PARTITIONS):
        values = [f"row-{number}".encode() for number in range(ROWS)]
        produce_values(kwire.bootstrap, events, values, partition=partition)
    _set_keys(kwire, state, {f"key-{number}": f"old-{number}" for number in range(ROWS)})
    warehouse = warehouse_of(spark)
    servers = ("--bootstrap", kwire.bootstrap, "--http", kwire.http_url)
    words = ("lake", *servers, "--topic", events, "--topic", state, "--warehouse", warehouse, "--master", master)
    assert run_job(*words, "--once", "--quiet") == DONE
    _set_keys(kwire, state, {f"key-{number}": f"new-{number}" for number in range(0, ROWS, 2)})
    assert run_job(*words, "--once", "--quiet") == DONE

    found = spark.table(f"kwire.{table_name(events)}").select("kafka_partition", "kafka_offset", "value").collect()
    assert sorted((row[0], row[1], row[2]) for row in found) == [
        (partition, number, f"row-{number}") for partition in range(PARTITIONS) for number in range(ROWS)
    ]
    kept = spark.table(f"kwire.{table_name(state)}").selectExpr("CAST(kafka_key AS STRING)", "value").collect()
    assert {row[0]: row[1] for row in kept} == {
        f"key-{number}": f"old-{number}" if number % 2 else f"new-{number}" for number in range(ROWS)
    }
    assert len(kept) == ROWS
    assert run_job("maintain", "--warehouse", warehouse, "--master", master) == DONE
    assert len(spark.table(f"kwire.{table_name(events)}").collect()) == PARTITIONS * ROWS


def _set_keys(kwire: KwireProcess, topic: str, values: dict[str, str]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=kwire.bootstrap)
    for key, value in values.items():
        producer.send(topic, key=key.encode(), value=value.encode())
    producer.close()
