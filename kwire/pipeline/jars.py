"""The jars that jobs need: fetched by their Maven coordinates once, afterwards taken from where they were put.

Spark asks Maven's repository at every start, also for what it has: that takes seconds, a network, and many lines on the
console. So the first session notes what it got, and those after it start without asking.
"""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_VERSION = "4.0.0"
KAFKA_CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}"
ICEBERG_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"
PACKAGES = (KAFKA_CONNECTOR, ICEBERG_RUNTIME)
# Spark ships these jars itself; leaving them out keeps the download to a few jars.
SHIPPED_WITH_SPARK = (
    "com.google.code.findbugs:jsr305",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-client-api",
    "org.lz4:lz4-java",
    "org.xerial.snappy:snappy-java",
    "org.slf4j:slf4j-api",
)

JARS, PACKAGES_KEY = "spark.jars", "spark.jars.packages"


def jar_conf() -> dict[str, str]:
    """How Spark finds them: as files if they are there, else by their coordinates."""
    known = _noted()
    if known:
        return {JARS: ",".join(known)}
    cache = jar_cache()
    cache.mkdir(parents=True, exist_ok=True)
    return {
        PACKAGES_KEY: ",".join(PACKAGES),
        "spark.jars.excludes": ",".join(SHIPPED_WITH_SPARK),
        "spark.jars.ivy": str(cache),
    }


def note_jars(session: "SparkSession") -> None:
    """Remember what a session got that had to ask for these packages and no others."""
    conf = session.sparkContext.getConf()
    if _noted() or conf.get(PACKAGES_KEY) != ",".join(PACKAGES):
        return
    told = (conf.get(JARS) or "").split(",")
    paths = ["/" + one.removeprefix("file:").lstrip("/") for one in told if one]
    jars = [path for path in paths if Path(path).is_relative_to(jar_cache())]
    if len(jars) >= len(PACKAGES):
        fresh = _note().with_suffix(f".{os.getpid()}")
        fresh.write_text("\n".join(jars))
        fresh.replace(_note())


def jar_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kwire" / "ivy"


def _note() -> Path:
    """Of exactly these packages."""
    wanted = hashlib.sha256("\n".join((*PACKAGES, *SHIPPED_WITH_SPARK)).encode()).hexdigest()
    return jar_cache() / f"resolved-{wanted[:16]}.txt"


def _noted() -> list[str]:
    """The files, if all of them are still there."""
    if not _note().exists():
        return []
    jars = _note().read_text().splitlines()
    return jars if all(Path(jar).is_file() for jar in jars) else []
