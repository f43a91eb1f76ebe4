"""The jars that jobs need. Spark downloads them once by their Maven coordinates, and later uses them from a cache.

Given Maven coordinates, Spark sends requests to the Maven repository at every start, even if the jars are cached. This
takes seconds, needs a network and prints many lines. So the first session saves the list of the downloaded jars, and
later sessions use this list instead of the coordinates.
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
# Spark contains these jars, so they are excluded from the download.
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
    """Return the Spark settings for the jars: file paths if the jars are cached, otherwise Maven coordinates."""
    saved = _saved_jars()
    if saved:
        return {JARS: ",".join(saved)}
    cache = jar_cache()
    cache.mkdir(parents=True, exist_ok=True)
    return {
        PACKAGES_KEY: ",".join(PACKAGES),
        "spark.jars.excludes": ",".join(SHIPPED_WITH_SPARK),
        "spark.jars.ivy": str(cache),
    }


def save_jar_list(session: "SparkSession") -> None:
    """Save the list of a session's jars, if the session downloaded exactly PACKAGES."""
    conf = session.sparkContext.getConf()
    if _saved_jars() or conf.get(PACKAGES_KEY) != ",".join(PACKAGES):
        return
    listed = (conf.get(JARS) or "").split(",")
    paths = ["/" + one.removeprefix("file:").lstrip("/") for one in listed if one]
    jars = [path for path in paths if Path(path).is_relative_to(jar_cache())]
    if len(jars) >= len(PACKAGES):
        fresh = _jar_list().with_suffix(f".{os.getpid()}")
        fresh.write_text("\n".join(jars))
        fresh.replace(_jar_list())


def jar_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kwire" / "ivy"


def _jar_list() -> Path:
    """Return the path of the file with the list of jars. Its name contains a hash of the packages."""
    wanted = hashlib.sha256("\n".join((*PACKAGES, *SHIPPED_WITH_SPARK)).encode()).hexdigest()
    return jar_cache() / f"resolved-{wanted[:16]}.txt"


def _saved_jars() -> list[str]:
    """Return the paths of the saved jars, or an empty list if there is no list or if one of the jars is missing."""
    if not _jar_list().exists():
        return []
    jars = _jar_list().read_text().splitlines()
    return jars if all(Path(jar).is_file() for jar in jars) else []
