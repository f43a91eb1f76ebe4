"""A Spark session for tests.

Spark resolves its jars when its Java process starts, and PySpark keeps that process when a session stops: a module that
wants other jars or another cluster than the one before it needs a process of its own.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kwire.pipeline.session import SessionOptions, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_STOP_TIMEOUT_S = 20
# Tests start Java often and run it for seconds: compiling it well, and collecting its garbage by threads, takes longer.
SHORT_LIVED_JAVA = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@contextmanager
def own_spark(directory: Path, *, master: str = "local[2]", **conf: str) -> Iterator["SparkSession"]:
    """A session, as jobs make it, in a Java process that ends with it. Keys of `conf` have `_` for `.`."""
    options = SessionOptions(
        str(directory / "warehouse"),
        master=master,
        application="kwire-tests",
        conf={
            **SHORT_LIVED_JAVA,
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(directory / "local"),
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            **{key.replace("_", "."): value for key, value in conf.items()},
        },
    )
    end_java()
    session = spark_session(options)
    try:
        yield session
    finally:
        session.stop()
        end_java()


def end_java() -> None:
    """End the Java process of an earlier session, if there is one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(JAVA_STOP_TIMEOUT_S)
    gc.collect()
