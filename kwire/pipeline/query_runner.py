"""Runs the streaming queries of a job, with metrics, console progress, reports to a room, and graceful stop.

    with query_runner(spark, arguments, "lake") as runner:
        runner.start(frame.writeStream.queryName("orders").option("checkpointLocation", …), write_batch)
        runner.wait()

`arguments` contains the arguments that `add_arguments` adds. If `arguments.once` is true, the job is bounded, and a
bar shows its progress. Several queries may be started. If one of them fails, all are stopped, and `wait` raises the
error.
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
from kwire.pipeline.graceful_stop import StoppableBatchWriter, StopRequest, WriteBatch, without_duplicate_failure_logs
from kwire.pipeline.metrics import Metrics, parsed_address, serving
from kwire.pipeline.reports.job_reports import DONE, STOPPED, QueryReports, job_reports
from kwire.pipeline.reports.job_reports import add_arguments as add_report_arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryListener

# The interval at which `wait` checks for ended queries and stop requests.
POLL_INTERVAL_S = 0.25
# Batches that take longer than this after a stop request are aborted. The next start of the job repeats them.
LAST_BATCH_S_MAX = 60.0
# The time that Spark gets to end a query that is not in a batch. A query that waits for an unreachable server takes
# much longer. The job does not wait for such a query, which ends with the process.
STOP_S_MAX = 10
# The maximum wait for Spark's last reports, which arrive some time after the batches are written.
LAST_REPORT_S_MAX = 10.0


def add_arguments(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", type=_address, help="serve the job's Prometheus metrics at this address"
    )
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    add_report_arguments(parser)


def _address(text: str) -> str:
    try:
        parsed_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


@contextlib.contextmanager
def query_runner(
    spark: "SparkSession", arguments: argparse.Namespace, job: str, *, shares_source: bool = False
) -> Iterator["QueryRunner"]:
    """Yield a QueryRunner for the queries of a job. SIGTERM and Ctrl-C stop the queries after their current batch.

    `shares_source` says that all queries read the same events.
    """
    from py4j.protocol import Py4JNetworkError

    stop, metrics = StopRequest(), Metrics(job)
    is_bounded = bool(getattr(arguments, "once", False))
    console = Console(job, sys.stderr, is_bounded=is_bounded, is_shown=not arguments.quiet, shares_source=shares_source)
    spark.conf.set("spark.sql.streaming.stopTimeout", f"{STOP_S_MAX}s")
    with (
        job_reports(arguments, job, shares_source=shares_source) as reports,
        serving(metrics, arguments.metrics),
        without_duplicate_failure_logs(spark),
        stop.on_signals(),
    ):
        events = QueryEvents(metrics, console, reports)
        listener = _listener(events)
        spark.streams.addListener(listener)
        runner = QueryRunner(stop, console, events)
        try:
            yield runner
            reports.end(STOPPED if stop.is_requested else DONE)
        finally:
            # If the Java process has ended, there are no queries to stop, and the caller's code has raised an error.
            with contextlib.suppress(Py4JNetworkError, OSError):
                runner.stop_all()
                spark.streams.removeListener(listener)
            console.close()
    if stop.is_interrupt:
        raise KeyboardInterrupt


class QueryRunner:
    """The queries of one job, from their start until all of them have ended."""

    def __init__(self, stop: StopRequest, console: Console, events: "QueryEvents") -> None:
        self._stop = stop
        self._console = console
        self._events = events
        self._queries: list[RunningQuery] = []

    @property
    def read_events(self) -> int:
        """The number of events that were read so far."""
        return self._console.read_events

    def start(self, writer: "DataStreamWriter", write: WriteBatch) -> "StreamingQuery":
        batches = StoppableBatchWriter(write, self._stop)
        self._console.expect_query()
        query = writer.foreachBatch(batches).start()
        self._queries.append(RunningQuery(query, batches))
        return query

    def wait(self) -> None:
        """Wait until every query has ended. After a stop request or a failure, stop all queries first.

        Raise the error of a failed query.
        """
        failure: Exception | None = None
        while active := [each for each in self._queries if each.is_active]:
            active[0].wait(POLL_INTERVAL_S)
            failure = self._failure()
            if failure or self._stop.is_requested:
                self.stop_all()
                break
        failure = failure or self._failure()
        self._events.wait_for_last({each.run_id for each in self._queries if not each.is_abandoned})
        # What the job prints now must not follow the bar on its line.
        self._console.close()
        if failure:
            raise failure

    def stop_all(self) -> None:
        """Stop each query after its current batch. Wait at most LAST_BATCH_S_MAX, then stop the queries by force."""
        self._stop.request()
        deadline = time.monotonic() + LAST_BATCH_S_MAX
        for each in self._queries:
            while each.is_in_batch and time.monotonic() < deadline:
                each.wait(POLL_INTERVAL_S)
        # The queries are stopped in parallel, because each stop may take up to STOP_S_MAX.
        active = [each for each in self._queries if each.is_active]
        if active:
            with ThreadPoolExecutor(len(active)) as threads:
                list(threads.map(RunningQuery.stop, active))

    def _failure(self) -> Exception | None:
        return next((error for each in self._queries if (error := each.failure())), None)


class RunningQuery:
    """A query and the writer of its batches. Errors that are caused by a stop of the query are not failures."""

    def __init__(self, query: "StreamingQuery", batches: StoppableBatchWriter) -> None:
        self.run_id = str(query.runId)
        # True if Spark did not end the query within STOP_S_MAX. The job does not wait for the query's last report.
        self.is_abandoned = False
        self._query = query
        self._batches = batches
        self._was_stopped = False

    @property
    def is_active(self) -> bool:
        return bool(self._query.isActive)

    @property
    def is_in_batch(self) -> bool:
        # An active trigger does not imply a batch: while a query cannot reach the server, its trigger is always active.
        return self.is_active and self._query.status["isTriggerActive"] and not self._batches.is_idle

    def wait(self, seconds: float) -> None:
        from pyspark.errors import StreamingQueryException

        with contextlib.suppress(StreamingQueryException):  # `failure` returns this error.
            self._query.awaitTermination(seconds)

    def stop(self) -> None:
        from py4j.protocol import Py4JJavaError

        self._was_stopped = True
        try:
            self._query.stop()
        except Py4JJavaError as error:
            if "TimeoutException" not in str(error.java_exception):
                raise
            self.is_abandoned = True

    def failure(self) -> Exception | None:
        if self._was_stopped or self._batches.has_refused or self.is_active:
            return None
        error: Exception | None = self._batches.failure or self._query.exception()
        return error


class QueryEvents:
    """Passes Spark's query events to metrics, console and reports.

    The listener calls the methods in one of Spark's threads.
    """

    def __init__(self, metrics: Metrics, console: Console, reports: QueryReports) -> None:
        self._metrics = metrics
        self._console = console
        self._reports = reports
        self._names: dict[str, str] = {}
        self._ended: set[str] = set()
        self._changed = threading.Condition()

    def started(self, run_id: str, name: str | None) -> None:
        self._names[run_id] = name or UNNAMED

    def batch(self, progress: dict[str, Any]) -> None:
        facts = BatchFacts.of(progress)
        self._metrics.batch(facts)
        self._console.batch(facts)
        self._reports.batch(facts)

    def idle(self, run_id: str) -> None:
        name = self._names.get(run_id, UNNAMED)
        self._metrics.idle(name)
        self._console.idle(name)
        self._reports.idle(name)

    def ended(self, run_id: str, error: str | None) -> None:
        name = self._names.get(run_id, UNNAMED)
        self._console.ended(name)
        self._reports.ended(name, error)
        with self._changed:
            self._ended.add(run_id)
            self._changed.notify_all()

    def wait_for_last(self, run_ids: set[str]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: run_ids <= self._ended, LAST_REPORT_S_MAX)


def _listener(events: QueryEvents) -> "StreamingQueryListener":
    # The class is defined inside the function because its base class is in PySpark, which is imported only when a job
    # runs.
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class Listener(StreamingQueryListener):  # type: ignore[misc]  # PySpark is not read by mypy
        def onQueryStarted(self, event: QueryStartedEvent) -> None:
            events.started(str(event.runId), event.name)

        def onQueryProgress(self, event: QueryProgressEvent) -> None:
            events.batch(json.loads(event.progress.json))

        def onQueryIdle(self, event: QueryIdleEvent) -> None:
            events.idle(str(event.runId))

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
            events.ended(str(event.runId), event.exception)

    return Listener()
