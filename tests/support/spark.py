"""Spark in tests: one Java process with one SparkContext for a test process, and a new session for each test.

A session has its own SQL settings, temporary views, streaming queries and warehouse. PySpark allows one SparkContext
in a Python process: a test that needs another one, such as the driver of a cluster, takes `own_spark`, which ends the
shared Java process; the next session starts it again.
"""

import fcntl
import gc
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from kwire.pipeline.jars import PACKAGES_KEY, jar_cache, jar_conf
from kwire.pipeline.session import SessionOptions, spark_session, warehouse_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_STOP_TIMEOUT_S = 20.0
FETCH_TIMEOUT_S = 280.0
# A Java process of a test lives for minutes at most. Optimising compilation, parallel garbage collection, a heap that
# grows in steps and checks of Spark's own classes cost half of the processor time until the first query has run.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms512m -Xmn256m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
SHORT_LIVED_JAVA = {"spark.driver.extraJavaOptions": JAVA_OPTIONS}
# The same for a job that is a process of its own.
SHORT_LIVED_JOB = tuple(word for key, value in SHORT_LIVED_JAVA.items() for word in ("--conf", f"{key}={value}"))
# A setting that no job changes.
_WAREHOUSE = "spark.kwire.tests.warehouse"
_CATALOG_WAREHOUSE = "spark.sql.catalog.lake.warehouse"
_START_ONLY = "import sys; from kwire.pipeline.session import *; spark_session(SessionOptions(sys.argv[1]))"


class SharedSpark:
    """The Java process that all tests of this test process share; the first session starts it."""

    # The session that started the Java process. No test uses it.
    _first: ClassVar["SparkSession | None"] = None

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def session(self, directory: Path) -> Iterator["SparkSession"]:
        """A new session with its warehouse below `directory`. Jobs that run in this process use it, too."""
        first = self._started()
        session: SparkSession = first.newSession()
        _set_warehouse(session, directory / "warehouse")
        _make_default(session)
        try:
            yield session
        finally:
            if _is_running(session):
                for query in session.streams.active:
                    query.stop()
                # The sessions of a SparkContext share the cache of tables.
                session.catalog.clearCache()
                _make_default(first)
            _close_sockets()

    def _started(self) -> "SparkSession":
        first = SharedSpark._first
        if first is None or not _is_running(first):
            end_java()
            first = SharedSpark._first = _first_session(self._directory, "local[2]")
        return first


@contextmanager
def own_spark(directory: Path, *, master: str, **conf: str) -> Iterator["SparkSession"]:
    """A session in a Java process that ends with it. Keys of `conf` have `_` for `.`."""
    end_java()
    session = _first_session(directory, master, **{key.replace("_", "."): value for key, value in conf.items()})
    _set_warehouse(session, directory / "warehouse")
    try:
        yield session
    finally:
        end_java()


@contextmanager
def settings_restored(session: "SparkSession") -> Iterator[None]:
    """Undo what the block changes in the SQL settings of a session, which other tests use as well."""
    before = _sql_settings(session)
    try:
        yield
    finally:
        after = _sql_settings(session)
        for key in after.keys() - before.keys():
            session.conf.unset(key)
        for key, value in before.items():
            if after.get(key) != value:
                session.conf.set(key, value)


def warehouse_of(session: "SparkSession") -> str:
    """The directory of the session's catalog. A job with another warehouse changes the setting, not the catalog."""
    return str(session.conf.get(_WAREHOUSE))


@contextmanager
def jars_fetched_once() -> Iterator[None]:
    """A block that starts Spark. If Spark has to fetch its jars, other test processes wait and then find them.

    Two processes that fetch at the same time write to the same files.
    """
    if PACKAGES_KEY not in jar_conf():
        yield
        return
    with (jar_cache() / "tests.lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def fetch_jars(directory: Path) -> None:
    """Fetch Spark's jars if they are not there yet, for a test that starts Spark only in other processes."""
    with jars_fetched_once():
        if PACKAGES_KEY in jar_conf():
            subprocess.run([sys.executable, "-c", _START_ONLY, str(directory)], check=True, timeout=FETCH_TIMEOUT_S)


def end_java() -> None:
    """End the Java process of this test process, if there is one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if session is not None:
        session.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(JAVA_STOP_TIMEOUT_S)
    _close_sockets()


def _first_session(directory: Path, master: str, **conf: str) -> "SparkSession":
    """The session of a new Java process, as jobs make it."""
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
            **conf,
        },
    )
    with jars_fetched_once():
        return spark_session(options)


def _sql_settings(session: "SparkSession") -> dict[str, str]:
    """The settings that a session may change. Others, which a job sets as well, are of the SparkContext."""
    settings: dict[str, str] = session.conf.getAll
    return {key: value for key, value in settings.items() if key.startswith("spark.sql.")}


def _is_running(session: "SparkSession") -> bool:
    """Whether the SparkContext of the session has not been stopped."""
    return session.sparkContext._jsc is not None


def _make_default(session: "SparkSession") -> None:
    """Make this the session that jobs get from `SparkSession.builder.getOrCreate()`, and the default in Java."""
    from pyspark.sql import SparkSession

    SparkSession._instantiatedSession = SparkSession._activeSession = session
    java_class = SparkSession._get_j_spark_session_class(session._jvm)
    java_class.setDefaultSession(session._jsparkSession)
    java_class.setActiveSession(session._jsparkSession)


def _close_sockets() -> None:
    """Collect the sockets that PySpark leaves to the garbage collector now, where nobody minds, not in a later test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _set_warehouse(session: "SparkSession", directory: Path) -> None:
    session.conf.set(_CATALOG_WAREHOUSE, warehouse_uri(str(directory)))
    session.conf.set(_WAREHOUSE, str(directory))
