"""The Spark session of a job. It runs on this machine, or with `--master` on a cluster.

Tables are named `kwire.<topic>` in the catalog `lake`, which is the session's default catalog. By default this catalog
is the warehouse directory (Iceberg's Hadoop catalog). `--catalog-uri` selects an Iceberg REST catalog instead.
"""

import argparse
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kwire.pipeline.jars import JARS, PACKAGES_KEY, jar_conf, save_jar_list
from kwire.pipeline.java.output import JavaOutput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "lake"
NAMESPACE = "kwire"

EMBEDDED_MASTER = "local[*]"
EMBEDDED_DRIVER_MEMORY = "1g"
_EXTENSIONS = "spark.sql.extensions"
_EMPTY_RELATION_RULE = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
# Settings whose value is a list. The user's values are appended to those that jobs need.
_LISTS = (JARS, PACKAGES_KEY, _EXTENSIONS)
# Spark hides the values of matching keys in its user interface, event log and plans. It is Spark's default, and the
# login and the client certificate of its Kafka connector.
_REDACTION = "spark.redaction.regex"
REDACTED = r"(?i)secret|password|token|access[.]?key|sasl[.]jaas[.]config|ssl[.]keystore"
# Loggers of errors that end a job. The job itself reports them, in one line.
_REPORTED_BY_JOBS = (
    "org.apache.kafka.clients.Metadata",
    "org.apache.kafka.clients.NetworkClient",
    "org.apache.kafka.clients.producer.internals.Sender",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)


# Set if spark-submit has started the Java process.
_IS_SUBMITTED = "PYSPARK_GATEWAY_PORT"
# The maximum wait for the last lines of a Java process that has ended.
LAST_LINES_S_MAX = 5.0


class SparkNotStarted(ValueError):
    """Spark could not be started. The message has the last lines that it printed."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a session. `warehouse` is the directory, or a URI that Spark can access, of tables and checkpoints."""

    warehouse: str
    master: str | None = None
    catalog_uri: str | None = None
    application: str = "kwire"
    # Further Spark settings, as for `spark-submit --conf`.
    conf: dict[str, str] = field(default_factory=dict)
    # Whether everything that Spark and Ivy print is shown, not only errors.
    is_verbose: bool = False


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that every job has: --warehouse, --master, --catalog-uri, --conf, --verbose."""
    parser.add_argument(
        "--warehouse", metavar="DIR", required=True, help="directory or URI of the tables and checkpoints"
    )
    parser.add_argument("--master", metavar="URL", help=f"the Spark cluster (default: {EMBEDDED_MASTER}, this machine)")
    parser.add_argument("--catalog-uri", metavar="URL", help="an Iceberg REST catalog (default: the warehouse itself)")
    parser.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark; repeatable"
    )
    parser.add_argument("--verbose", action="store_true", help="show what Spark and Ivy print, also warnings")


def session_options(arguments: argparse.Namespace, application: str) -> SessionOptions:
    """Return the session options from these arguments. Raises ValueError if an argument is invalid."""
    conf = {}
    for text in arguments.conf:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise ValueError(f"--conf: expected spark.KEY=VALUE, got {text!r}")
        conf[key] = value
    return SessionOptions(
        arguments.warehouse, arguments.master, arguments.catalog_uri, application, conf, arguments.verbose
    )


def spark_session(options: SessionOptions) -> "SparkSession":
    """Create the session. Further calls in the same process return the same session. Raises SparkNotStarted."""
    from pyspark.sql import SparkSession

    conf = spark_conf(options)
    if PACKAGES_KEY in conf:
        print("kwire: downloading the jars of Spark's connectors; later starts use them again", file=sys.stderr)
    if not options.is_verbose:
        _start_quietly(options.application, conf)
    builder = SparkSession.builder.appName(options.application)
    for key, value in conf.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN" if options.is_verbose else "ERROR")
    if not options.is_verbose:
        log4j: Any = session._jvm.org.apache.logging.log4j
        for name in _REPORTED_BY_JOBS:
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    save_jar_list(session)
    return session


def _start_quietly(application: str, settings: dict[str, str]) -> None:
    """Start Spark's Java process without showing what it prints until it runs. Do nothing if there is one already."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    if SparkContext._active_spark_context is not None or _IS_SUBMITTED in os.environ:
        return
    conf = SparkConf().setAppName(application).setAll(list(settings.items()))
    output = JavaOutput()
    try:
        try:
            gateway = launch_gateway(conf, {"stderr": output.descriptor})
        finally:
            output.started()
        SparkContext(conf=conf, gateway=gateway)
    except PySparkException:
        output.wait(LAST_LINES_S_MAX)
        raise SparkNotStarted("\n".join(["Spark could not be started:", *output.last_lines()])) from None
    output.show()


def warehouse_uri(warehouse: str) -> str:
    """Convert a directory to an absolute file: URI, so that driver and executors use the same path.

    Special characters are not escaped, because Hadoop expects them unescaped. URIs are returned unchanged.
    """
    return warehouse if "://" in warehouse else f"file://{Path(warehouse.removeprefix('file:')).absolute()}"


def check_warehouse(options: SessionOptions) -> None:
    """Raise FileNotFoundError if the tables are to be read from a directory of this machine that does not exist."""
    path = warehouse_uri(options.warehouse).removeprefix("file://")
    if options.catalog_uri is None and "://" not in path and not os.path.isdir(path):
        raise FileNotFoundError(f"the warehouse {options.warehouse} does not exist")


def spark_conf(options: SessionOptions) -> dict[str, str]:
    """Return all Spark settings. Those of --conf override kwire's settings, except lists and the redaction, which are
    joined."""
    own = _own_conf(options)
    both = {key: f"{own[key]},{options.conf[key]}" for key in _LISTS if key in own and key in options.conf}
    if _REDACTION in options.conf:
        both[_REDACTION] = f"{own[_REDACTION]}|{options.conf[_REDACTION]}"
    return {**own, **options.conf, **both}


def _own_conf(options: SessionOptions) -> dict[str, str]:
    catalog = f"spark.sql.catalog.{CATALOG}"
    conf = {
        _EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest" if options.catalog_uri else "hadoop",
        f"{catalog}.warehouse": warehouse_uri(options.warehouse),
        # Each streaming query has its own session, and must see the commits of other queries immediately.
        f"{catalog}.cache-enabled": "false",
        "spark.sql.defaultCatalog": CATALOG,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        _REDACTION: REDACTED,
        # This rule removes empty parts of a plan, together with their observed metrics. A caller that waits for such a
        # metric would wait for ever.
        "spark.sql.adaptive.optimizer.excludedRules": _EMPTY_RELATION_RULE,
    }
    if options.catalog_uri:
        conf[f"{catalog}.uri"] = options.catalog_uri
    if _IS_SUBMITTED in os.environ:
        # spark-submit has started the JVM and has set the cluster and the jars.
        return conf
    conf |= jar_conf()
    master = options.master or EMBEDDED_MASTER
    conf["spark.master"] = master
    if not master.startswith("local") or master.startswith("local-cluster"):
        return conf
    return {
        **conf,
        "spark.driver.memory": EMBEDDED_DRIVER_MEMORY,
        # Spark's default of 200 is for clusters. On one machine most of these tasks would have no rows.
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        # The driver must be reachable only from this machine.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
