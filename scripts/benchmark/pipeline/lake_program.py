"""Runs kwire's lake job after a warm-up of Spark, and prints its rate or its lag.

It is a separate program (`python -m benchmark.pipeline.lake_program --help`). The lag is computed afterwards: a row is
visible from the commit that added it, and Iceberg stores the time of every commit.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kwire.cli import main as kwire
from kwire.pipeline.columns import table_name
from kwire.pipeline.lake.tables import open_lake
from kwire.pipeline.session import NAMESPACE, SessionOptions, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_COMMIT_SECONDS_MAX = 200.0
POLL_SECONDS = 0.05
# Only rows produced after the first commit are counted. Earlier rows had to wait for the start of Spark.
LAG = """
    WITH commits AS (SELECT snapshot_id, committed_at FROM {table}.snapshots),
    files AS (
        SELECT e.data_file.file_path AS path, c.committed_at FROM {table}.entries e
        JOIN commits c ON e.snapshot_id = c.snapshot_id WHERE e.status < 2
    ),
    lags AS (
        SELECT unix_millis(f.committed_at) - unix_millis(r.kafka_timestamp) AS lag_ms
        FROM (SELECT _file AS path, kafka_timestamp FROM {table}) r JOIN files f ON r.path = f.path
        WHERE r.kafka_timestamp > (SELECT min(committed_at) FROM commits)
    )
    SELECT count(*) AS rows, percentile(lag_ms, 0.5) AS p50_ms, percentile(lag_ms, 0.99) AS p99_ms,
        max(lag_ms) AS max_ms, (SELECT count(*) FROM commits) AS commits, (SELECT count(*) FROM {table}) AS all_rows
    FROM lags
"""


def lake(arguments: argparse.Namespace, topic: str, *more: str) -> None:
    """Run the job once in this process. It uses the existing Spark session."""
    where = ["--bootstrap", arguments.bootstrap, "--http", arguments.http, "--warehouse", arguments.warehouse]
    words = ["pipeline", "lake", *where, "--topic", topic, "--format", arguments.format, "--quiet", *more]
    if code := kwire(words):
        sys.exit(code)


def once(spark: "SparkSession", arguments: argparse.Namespace) -> dict[str, float]:
    began = time.perf_counter()
    lake(arguments, arguments.topic, "--once")
    seconds = time.perf_counter() - began
    table = open_lake(spark, arguments.warehouse, arguments.format).table(table_name(arguments.topic))
    rows = table.read().count()
    return {"rows": rows, "lake_s": seconds, "rows_per_s": rows / seconds}


def stop_after(arguments: argparse.Namespace, is_over: threading.Event) -> None:
    """Stop the job `arguments.seconds` after its first commit, because the time until this commit varies."""
    metadata = Path(arguments.warehouse, NAMESPACE, table_name(arguments.topic), "metadata")
    deadline = time.monotonic() + FIRST_COMMIT_SECONDS_MAX
    while not any(metadata.glob("snap-*")) and time.monotonic() < deadline:
        if is_over.wait(POLL_SECONDS):
            return
    if not is_over.wait(arguments.seconds):
        os.kill(os.getpid(), signal.SIGTERM)


def watched(spark: "SparkSession", arguments: argparse.Namespace) -> dict[str, float]:
    """Run the job continuously, without pauses between batches. Stop it with SIGTERM, and return the lag figures."""
    is_over = threading.Event()
    watching = threading.Thread(target=stop_after, args=(arguments, is_over))
    watching.start()
    try:
        lake(arguments, arguments.topic, "--interval", "0")
    finally:
        is_over.set()
        watching.join()
    table = open_lake(spark, arguments.warehouse, arguments.format).table(table_name(arguments.topic))
    figures: dict[str, float] = spark.sql(LAG.format(table=table.name)).collect()[0].asDict()
    if not figures["rows"]:
        sys.exit(f"no row came and was written within {arguments.seconds:g} s after the first commit")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmark.pipeline.lake_program", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--http", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--warm-up", required=True, help="a topic to write first, as a warm-up")
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--format", required=True)
    parser.add_argument("--seconds", type=float, help="run for this time (default: to the end of the topic)")
    arguments = parser.parse_args()
    spark = spark_session(SessionOptions(arguments.warehouse, application="kwire bench lake"))
    lake(arguments, arguments.warm_up, "--once")
    figures = once(spark, arguments) if arguments.seconds is None else watched(spark, arguments)
    spark.stop()
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
