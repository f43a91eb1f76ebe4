"""What a job reports: its start, the progress of its queries, and its end.

    with job_reports(arguments, "lake") as reports:
        reports.batch(facts)
        reports.end(STOPPED)

Every report names its run, so that a reader can begin with any report. An event of the type
`job.report` has the whole state of the job, at its start and at its end. `query.report` has the figures of one query,
and `job.alive` says that the job is running.
"""

import argparse
import os
import platform
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from kwire.client import NewEvent
from kwire.pipeline.batch_facts import BatchFacts
from kwire.pipeline.jobs import error_text
from kwire.pipeline.reports.sender import ReportSender
from kwire.pipeline.server import Server

JOB, QUERY, ALIVE = "job.report", "query.report", "job.alive"
RUNNING, IDLE, DONE, STOPPED, FAILED = "running", "idle", "done", "stopped", "failed"
ERROR_CHARACTERS_MAX = 2_000
TOPICS_MAX = 100
_CREDENTIALS = re.compile(r"//[^/@]*@")


def add_arguments(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--no-reports",
        dest="is_reported",
        action="store_false",
        help="do not report the progress to the room kwire.jobs, which the console shows",
    )


class QueryReports(Protocol):
    """What the listener of Spark's queries reports."""

    def batch(self, facts: BatchFacts) -> None: ...
    def idle(self, query: str) -> None: ...
    def ended(self, query: str, error: str | None) -> None: ...


@dataclass
class QueryState:
    """The figures of a query. Rates, lag and duration are those of the last batch, counts are since the start."""

    query: str
    state: str = RUNNING
    batches: int = 0
    read_events: int = 0
    late_rows: int = 0
    batch_id: int | None = None
    input_rows_per_second: float | None = 0.0
    processed_rows_per_second: float = 0.0
    duration_ms: int | None = None
    lag_events: int | None = None
    state_rows: int = 0
    watermark: str | None = None
    error: str | None = None

    def add(self, facts: BatchFacts) -> None:
        self.state = RUNNING
        self.batches += 1
        self.read_events += facts.read_events
        self.late_rows += facts.late_rows
        self.batch_id = facts.batch_id
        rate = facts.input_rows_per_second
        self.input_rows_per_second = None if rate is None else round(rate, 3)
        self.processed_rows_per_second = round(facts.processed_rows_per_second, 3)
        self.duration_ms = facts.duration_ms
        self.lag_events = facts.lag_events
        self.state_rows = facts.state_rows
        self.watermark = None if facts.watermark is None else facts.watermark.isoformat()

    def stop(self, state: str) -> None:
        self.state = state
        self.input_rows_per_second = self.processed_rows_per_second = 0.0


class JobReports:
    """The state of a job and of its queries, and the sender of the reports."""

    def __init__(self, server: Server, facts: dict[str, Any], *, is_shown: bool) -> None:
        self._facts = facts
        self._run = {"run": facts["run"], "job": facts["job"]}
        self._queries: dict[str, QueryState] = {}
        self._has_ended = False
        self._began = time.monotonic()
        self._sender = ReportSender(server, self._alive, is_shown=is_shown)
        self._sender.start()
        self._put_job(RUNNING)

    def batch(self, facts: BatchFacts) -> None:
        query = self._query(facts.query)
        query.add(facts)
        self._put_query(query)

    def idle(self, query: str) -> None:
        state = self._query(query)
        state.stop(IDLE)
        state.lag_events = 0
        self._put_query(state)

    def ended(self, query: str, error: str | None) -> None:
        state = self._query(query)
        state.stop(DONE if error is None else FAILED)
        state.error = None if error is None else error_text(RuntimeError(error))[:ERROR_CHARACTERS_MAX]
        self._put_query(state)

    def progress(self, name: str, done: int, left: int) -> None:
        """Report the progress of a job without queries: the events that are done, and those that are left."""
        state = self._query(name)
        state.read_events, state.lag_events = done, left
        state.processed_rows_per_second = round(done / max(0.001, time.monotonic() - self._began), 3)
        self._put_query(state)

    def end(self, state: str, error: str | None = None) -> None:
        """Report the end of the job. Only the first call counts."""
        if self._has_ended:
            return
        self._has_ended = True
        for query in self._queries.values():
            # A query that is stopped may refuse its next batch, which Spark calls a failure.
            if state != FAILED and query.state != DONE:
                query.stop(state)
                query.error = None
                self._put_query(query)
        self._put_job(
            state,
            ended_at=_now(),
            error=None if error is None else error[:ERROR_CHARACTERS_MAX],
            batches=sum(query.batches for query in self._queries.values()),
            read_events=self._read_events(),
        )

    def close(self) -> None:
        self._sender.close()

    def _read_events(self) -> int:
        counts = [query.read_events for query in self._queries.values()]
        # Queries that read the same events count each of them once.
        return (max(counts, default=0)) if self._facts["shares_source"] else sum(counts)

    def _query(self, name: str) -> QueryState:
        return self._queries.setdefault(name, QueryState(name))

    def _put_query(self, query: QueryState) -> None:
        self._sender.put(f"query {query.query}", NewEvent(QUERY, {**self._run, **asdict(query)}))

    def _put_job(self, state: str, **more: Any) -> None:
        self._sender.put("job", NewEvent(JOB, {**self._facts, "state": state, **more}))

    def _alive(self) -> NewEvent:
        return NewEvent(ALIVE, self._run)


class NoReports:
    """A job that reports nothing."""

    def batch(self, facts: BatchFacts) -> None: ...
    def idle(self, query: str) -> None: ...
    def ended(self, query: str, error: str | None) -> None: ...
    def progress(self, name: str, done: int, left: int) -> None: ...
    def end(self, state: str, error: str | None = None) -> None: ...


@contextmanager
def job_reports(
    arguments: argparse.Namespace, job: str, *, shares_source: bool = False
) -> Iterator[JobReports | NoReports]:
    """Yield the reports of a job. An exception of the block is reported as the end of the job.

    Without a server or with --no-reports, nothing is reported.
    """
    server: Server | None = getattr(arguments, "server", None)
    if server is None or not getattr(arguments, "is_reported", True):
        yield NoReports()
        return
    facts = job_facts(arguments, job, shares_source=shares_source)
    reports = JobReports(server, facts, is_shown=not arguments.quiet)
    try:
        yield reports
        reports.end(DONE)
    except KeyboardInterrupt:
        reports.end(STOPPED)
        raise
    except BaseException as error:
        reports.end(FAILED, error_text(error) if isinstance(error, Exception) else repr(error))
        raise
    finally:
        reports.close()


def job_facts(arguments: argparse.Namespace, job: str, *, shares_source: bool) -> dict[str, Any]:
    """Return what identifies a run of a job, and what it reads and writes."""
    topics = getattr(arguments, "topics", None) or getattr(arguments, "topic", None) or []
    topics = [topics] if isinstance(topics, str) else topics
    warehouse = getattr(arguments, "warehouse", None)
    return {
        "run": uuid.uuid4().hex,
        "job": job,
        "host": platform.node(),
        "pid": os.getpid(),
        "started_at": _now(),
        "is_bounded": bool(getattr(arguments, "once", False)),
        "shares_source": shares_source,
        "topics": topics[:TOPICS_MAX],
        "pattern": getattr(arguments, "pattern", None),
        # A URI may contain a password.
        "warehouse": None if warehouse is None else _CREDENTIALS.sub("//", str(warehouse)),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
