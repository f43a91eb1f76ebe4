"""Reads a complete topic with Spark's Kafka source, and prints the elapsed time and the CPU time.

It is a separate program (`python -m benchmark.pipeline.read_program --help`).
"""

import argparse
import json
import os
import tempfile
import time
from typing import TYPE_CHECKING

from benchmark import procfs
from benchmark.options import GIGABYTE
from benchmark.samples import MEGABYTE
from kwire.pipeline.session import SessionOptions, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_whole(spark: "SparkSession", bootstrap: str, topic: str) -> tuple[int, int]:
    """Read the topic. Return the number of rows, and the total size of their values."""
    from pyspark.sql import functions as F

    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.read.format("kafka").options(**options).load()
    count, size = rows.agg(F.count("*"), F.sum(F.length("value"))).collect()[0]
    return count, size or 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmark.pipeline.read_program", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--warm-up", required=True, help="a topic to read first")
    parser.add_argument("--server-pid", type=int, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as warehouse:
        spark = spark_session(SessionOptions(warehouse, application="kwire bench read"))
        read_whole(spark, arguments.bootstrap, arguments.warm_up)
        server_before, own_before = procfs.cpu_seconds(arguments.server_pid), procfs.cpu_seconds(os.getpid())
        began = time.perf_counter()
        rows, size = read_whole(spark, arguments.bootstrap, arguments.topic)
        seconds = time.perf_counter() - began
        server_cpu = procfs.cpu_seconds(arguments.server_pid) - server_before
        own_cpu = procfs.cpu_seconds(os.getpid()) - own_before
        spark.stop()
    figures = {
        "rows": rows,
        "bytes": size,
        "read_s": seconds,
        "rows_per_s": rows / seconds,
        "mb_per_s": size / seconds / MEGABYTE,
        "server_cpu_s_per_gb": server_cpu / size * GIGABYTE,
        "spark_cores": own_cpu / seconds,
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
