"""The Spark session of a job: on this machine by default, on any cluster with `--master`, always with the same catalog.

Tables are named `kwire.<topic>` in the catalog `lake`, which is the session's default. By default the catalog is the
warehouse directory itself (Iceberg's Hadoop catalog); `--catalog-uri` names an Iceberg REST catalog instead.
"""

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kwire.pipeline.jars import JARS, PACKAGES_KEY, jar_conf, note_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "lake"
NAMESPACE = "kwire"

EMBEDDED_MASTER = "local[*]"
EMBEDDED_DRIVER_MEMORY = "1g"
_EXTENSIONS = "spark.sql.extensions"
_FORGETTING_RULE = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
# Settings with several values: what the user says is added to what jobs need.
_LISTS = (JARS, PACKAGES_KEY, _EXTENSIONS)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """`warehouse` holds tables and checkpoints: a directory, or a URI of any file system that Spark can reach."""

    warehouse: str
    master: str | None = None
    catalog_uri: str | None = None
    application: str = "kwire"
    # Further settings, as `spark-submit --conf` takes them.
    conf: dict[str, str] = field(default_factory=dict)


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """What every job is told about where it runs: --warehouse, --master, --catalog-uri, --conf."""
    parser.add_argument("--warehouse", metavar="DIR", required=True, help="where tables and checkpoints are kept")
    parser.add_argument("--master", metavar="URL", help=f"the Spark cluster (default: {EMBEDDED_MASTER}, this machine)")
    parser.add_argument("--catalog-uri", metavar="URL", help="an Iceberg REST catalog (default: the warehouse itself)")
    parser.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark; repeatable"
    )


def session_options(arguments: argparse.Namespace, application: str) -> SessionOptions:
    """What was said with those arguments; ValueError if it cannot be understood."""
    conf = {}
    for text in arguments.conf:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise ValueError(f"--conf takes spark.KEY=VALUE, not {text!r}")
        conf[key] = value
    return SessionOptions(arguments.warehouse, arguments.master, arguments.catalog_uri, application, conf)


def spark_session(options: SessionOptions) -> "SparkSession":
    """The session; a second call in one process returns the first one's."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(options.application)
    for key, value in spark_conf(options).items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    note_jars(session)
    return session


def warehouse_uri(warehouse: str) -> str:
    """A directory as an absolute file: URI, so that driver and executors mean the same place; a URI as it is.

    As Hadoop takes URIs: nothing in them is escaped.
    """
    return warehouse if "://" in warehouse else f"file://{Path(warehouse.removeprefix('file:')).absolute()}"


def spark_conf(options: SessionOptions) -> dict[str, str]:
    """What Spark is told; what the user says with --conf counts most, but cannot take away what jobs need."""
    own = _own_conf(options)
    both = {key: f"{own[key]},{options.conf[key]}" for key in _LISTS if key in own and key in options.conf}
    return {**own, **options.conf, **both}


def _own_conf(options: SessionOptions) -> dict[str, str]:
    catalog = f"spark.sql.catalog.{CATALOG}"
    conf = {
        _EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest" if options.catalog_uri else "hadoop",
        f"{catalog}.warehouse": warehouse_uri(options.warehouse),
        # Each streaming query has a session of its own; one must see at once what another has committed.
        f"{catalog}.cache-enabled": "false",
        "spark.sql.defaultCatalog": CATALOG,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        # It drops the part of a plan that has turned out empty, and with it what is counted there on the way: whoever
        # waits for such a count would wait for ever.
        "spark.sql.adaptive.optimizer.excludedRules": _FORGETTING_RULE,
    }
    if options.catalog_uri:
        conf[f"{catalog}.uri"] = options.catalog_uri
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has started the JVM: cluster and jars are what it was told.
        return conf
    conf |= jar_conf()
    master = options.master or EMBEDDED_MASTER
    conf["spark.master"] = master
    if not master.startswith("local") or master.startswith("local-cluster"):
        return conf
    return {
        **conf,
        "spark.driver.memory": EMBEDDED_DRIVER_MEMORY,
        # Spark's two hundred are meant for a cluster: here most tasks would have nothing to do but start.
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        # All on this machine: nobody else has to reach the driver.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
