"""How a streaming job is doing, while it runs: for Prometheus, for the console, and until it is asked to stop.

    with running(spark, arguments, "lake") as run:
        run.start(frame.writeStream.queryName("orders").option("checkpointLocation", …), write_batch)
        run.wait()

`arguments` holds what `add_arguments` added, and `once` if the job is bounded: a bar tells how far it has come. Several
queries may be started; the first to fail ends all of them and its error is raised by `wait`.
"""

import argparse
import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kwire.pipeline.batch_facts import UNNAMED, BatchFacts
from kwire.pipeline.console import Console
from kwire.pipeline.metrics import Metrics, parsed_address, serving
from kwire.pipeline.stopping import CleanStop, WholeBatches, WriteBatch, failures_told_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryListener

# How soon a signal or the end of a query is seen.
LOOK_EVERY_S = 0.25
# Batches that take longer than this to end after a signal are cut off; the next start does them again.
LAST_BATCH_S_MAX = 60.0
# What Spark may take to end queries that are at no batch. One that waits for a server that is gone takes much longer:
# it is left alone then, and ends with the process.
STOP_S_MAX = 10
# Spark tells of a batch some time after it is done; for the last one we wait so long.
LAST_REPORT_S_MAX = 10.0


def add_arguments(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", type=_address, help="serve the job's own figures to Prometheus here"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _address(text: str) -> str:
    try:
        parsed_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


@contextlib.contextmanager
def running(spark: "SparkSession", arguments: argparse.Namespace, job: str) -> Iterator["Run"]:
    """Watch the queries that are started in this block; SIGTERM and Ctrl-C stop them between two batches."""
    from py4j.protocol import Py4JNetworkError

    stop, metrics = CleanStop(), Metrics(job)
    is_bounded = bool(getattr(arguments, "once", False))
    console = Console(job, sys.stderr, is_bounded=is_bounded, is_shown=not arguments.quiet)
    reports = Reports(metrics, console)
    listener = _listener(reports)
    spark.conf.set("spark.sql.streaming.stopTimeout", f"{STOP_S_MAX}s")
    with serving(metrics, arguments.metrics), failures_told_once(spark), stop.on_signals():
        spark.streams.addListener(listener)
        run = Run(stop, console, reports)
        try:
            yield run
        finally:
            # Where the Java process is gone there is nothing to stop, and what ended the block says so.
            with contextlib.suppress(Py4JNetworkError, OSError):
                run.stop_all()
                spark.streams.removeListener(listener)
            console.close()
    if stop.is_interrupt:
        raise KeyboardInterrupt


class Run:
    """The queries of one job, from their start until all of them have ended."""

    def __init__(self, stop: CleanStop, console: Console, reports: "Reports") -> None:
        self._stop = stop
        self._console = console
        self._reports = reports
        self._queries: list[RunningQuery] = []

    def start(self, writer: "DataStreamWriter", write: WriteBatch) -> "StreamingQuery":
        batches = WholeBatches(write, self._stop)
        self._console.expect_query()
        query = writer.foreachBatch(batches).start()
        self._queries.append(RunningQuery(query, batches))
        return query

    def wait(self) -> None:
        """Until every query has ended, by itself or because it was asked to; raises what one of them failed of."""
        failure: Exception | None = None
        while active := [each for each in self._queries if each.is_active]:
            active[0].wait(LOOK_EVERY_S)
            failure = self._failure()
            if failure or self._stop.is_asked:
                self.stop_all()
                break
        failure = failure or self._failure()
        self._reports.wait_for_last({each.run_id for each in self._queries if not each.is_left})
        if failure:
            raise failure

    def stop_all(self) -> None:
        """Each after the batch it is at; in bounded time, whatever they are at. Does nothing when all have ended."""
        self._stop.ask()
        deadline = time.monotonic() + LAST_BATCH_S_MAX
        for each in self._queries:
            while each.is_at_batch and time.monotonic() < deadline:
                each.wait(LOOK_EVERY_S)
        # All at once: each may take its time, and there may be many.
        active = [each for each in self._queries if each.is_active]
        if active:
            with ThreadPoolExecutor(len(active)) as threads:
                list(threads.map(RunningQuery.stop, active))

    def _failure(self) -> Exception | None:
        return next((error for each in self._queries if (error := each.failure())), None)


class RunningQuery:
    """A query and what writes its batches. What comes of ending it by force is no failure."""

    def __init__(self, query: "StreamingQuery", batches: WholeBatches) -> None:
        self.run_id = str(query.runId)
        # Whether Spark could not end it; it counts as ended nevertheless.
        self.is_left = False
        self._query = query
        self._batches = batches
        self._was_stopped = False

    @property
    def is_active(self) -> bool:
        return bool(self._query.isActive)

    @property
    def is_at_batch(self) -> bool:
        # A query that cannot reach the server is always at something, and never at a batch.
        return self.is_active and self._query.status["isTriggerActive"] and not self._batches.is_at_rest

    def wait(self, seconds: float) -> None:
        from pyspark.errors import StreamingQueryException

        with contextlib.suppress(StreamingQueryException):  # told by `failure`
            self._query.awaitTermination(seconds)

    def stop(self) -> None:
        from py4j.protocol import Py4JJavaError

        self._was_stopped = True
        try:
            self._query.stop()
        except Py4JJavaError as error:
            if "TimeoutException" not in str(error.java_exception):
                raise
            self.is_left = True

    def failure(self) -> Exception | None:
        if self._was_stopped or self._batches.has_refused or self.is_active:
            return None
        error: Exception | None = self._batches.failure or self._query.exception()
        return error


class Reports:
    """Takes what Spark tells, in a thread of Spark's, and hands it on."""

    def __init__(self, metrics: Metrics, console: Console) -> None:
        self._metrics = metrics
        self._console = console
        self._names: dict[str, str] = {}
        self._ended: set[str] = set()
        self._changed = threading.Condition()

    def started(self, run_id: str, name: str | None) -> None:
        self._names[run_id] = name or UNNAMED

    def batch(self, progress: dict[str, Any]) -> None:
        facts = BatchFacts.of(progress)
        self._metrics.batch(facts)
        self._console.batch(facts)

    def idle(self, run_id: str) -> None:
        name = self._names.get(run_id, UNNAMED)
        self._metrics.idle(name)
        self._console.idle(name)

    def ended(self, run_id: str) -> None:
        self._console.ended(self._names.get(run_id, UNNAMED))
        with self._changed:
            self._ended.add(run_id)
            self._changed.notify_all()

    def wait_for_last(self, run_ids: set[str]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: run_ids <= self._ended, LAST_REPORT_S_MAX)


def _listener(reports: Reports) -> "StreamingQueryListener":
    # Spark's class is needed to make ours, and Spark is imported only when a job runs.
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class Listener(StreamingQueryListener):  # type: ignore[misc]  # PySpark is not read by mypy
        def onQueryStarted(self, event: QueryStartedEvent) -> None:
            reports.started(str(event.runId), event.name)

        def onQueryProgress(self, event: QueryProgressEvent) -> None:
            reports.batch(json.loads(event.progress.json))

        def onQueryIdle(self, event: QueryIdleEvent) -> None:
            reports.idle(str(event.runId))

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
            reports.ended(str(event.runId))

    return Listener()
