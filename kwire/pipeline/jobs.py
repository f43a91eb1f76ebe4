"""The list of jobs, and the functions by which `kwire pipeline JOB …` and spark-submit start a job."""

import argparse
import importlib
import os
import re
import sys
from typing import Any, NamedTuple

from kwire.pipeline.java.installation import check_java

DONE, CANNOT_RUN = 0, 2

# The useful part of a Spark error message ends where the first of these texts begins.
_DETAILS = ("\nJVM stacktrace:", "\n=== Streaming Query ===", "\n\tat ")
_QUERY_NAME = re.compile(r"^Identifier: (\S+) \[id = ", re.MULTILINE)
_PY4J_PREFIX = re.compile(r"\AAn error occurred while calling \S+\.\n: ")


class Job(NamedTuple):
    """A job. Its `module` has `add_arguments(parser)` and `run(arguments)`. `run` returns the exit code."""

    module: str
    purpose: str


JOBS = {
    "lake": Job("kwire.pipeline.lake.job", "write topics and rooms to tables, each event exactly once"),
    "maintain": Job(
        "kwire.pipeline.lake.maintenance", "maintain tables: compact small files, delete old rows and snapshots"
    ),
    "analytics": Job(
        "kwire.pipeline.analytics.job", "analyse events of rooms: counts, active users, top rooms, sessions"
    ),
    "replay": Job("kwire.pipeline.replay", "send events of tables or event files to topics again"),
    "reconcile": Job("kwire.pipeline.reconcile", "check that topics and tables hold the same events"),
}


def add(parser: argparse.ArgumentParser) -> None:
    names = parser.add_subparsers(dest="job", required=True, metavar="job", parser_class=_JobParser)
    for name, job in JOBS.items():
        purpose = job.purpose[0].upper() + job.purpose[1:] + "."
        names.add_parser(name, help=job.purpose, description=purpose).module = job.module


class _JobParser(argparse.ArgumentParser):
    """The parser of a job's arguments. It imports the job's module when it parses, so other jobs are not imported."""

    module = ""

    def parse_known_args(self, *given: Any, **named: Any) -> Any:
        module, self.module = self.module, ""
        if module:
            importlib.import_module(module).add_arguments(self)
        return super().parse_known_args(*given, **named)


def run(arguments: argparse.Namespace) -> int:
    """Run the job and return its exit code. For expected errors, print a message without the Java stack trace."""
    try:
        import pyspark.errors
        from py4j.protocol import Py4JJavaError, Py4JNetworkError
    except ImportError:
        return _fail("jobs need Spark: install kwire with the extra `spark`, for example with `scripts/install spark`")
    from kwire.client import ClientError

    job = importlib.import_module(JOBS[arguments.job].module)
    try:
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            check_java()
        code: int = job.run(arguments)
    except Py4JNetworkError:
        return _fail("the Java process of Spark has ended: run the same command again to continue")
    except (ClientError, ValueError, OSError, pyspark.errors.PySparkException, Py4JJavaError) as error:
        return _fail(error_text(error))
    return code


def error_text(error: Exception) -> str:
    """Return the message of a Spark error with the name of the query, without the Java stack trace and query plan."""
    text = str(error).strip()
    query = _QUERY_NAME.search(text)
    for details in _DETAILS:
        text = text.split(details)[0]
    # Py4J adds the name of the called object as a prefix.
    text = _PY4J_PREFIX.sub("", text).strip() or type(error).__name__
    return f"{query[1]}: {text}" if query else text


def _fail(reason: str) -> int:
    print(f"kwire: {reason}", file=sys.stderr)
    return CANNOT_RUN
