"""The jobs there are, and how one is started: by `kwire pipeline JOB …` or by spark-submit of this package."""

import argparse
import importlib
import re
import sys
from typing import Any, NamedTuple

DONE, CANNOT_RUN = 0, 2

# Where an error of Spark's goes on with what nobody reads.
_MORE = ("\nJVM stacktrace:", "\n=== Streaming Query ===", "\n\tat ")
_QUERY = re.compile(r"^Identifier: (\S+) \[id = ", re.MULTILINE)
_CALLED = re.compile(r"\AAn error occurred while calling \S+\.\n: ")


class Job(NamedTuple):
    """`module` offers `add_arguments(parser)` and `run(arguments)`, which returns the exit code."""

    module: str
    purpose: str


JOBS = {
    "lake": Job("kwire.pipeline.lake.job", "topics and rooms to tables, each event once"),
    "maintain": Job("kwire.pipeline.lake.maintenance", "compact small files of tables, drop what is old"),
    "analytics": Job(
        "kwire.pipeline.analytics.job", "what happens in rooms: counts, active users, top rooms, sessions"
    ),
    "replay": Job("kwire.pipeline.replay", "tables or event files back to topics"),
    "reconcile": Job("kwire.pipeline.reconcile", "prove that topics and tables hold the same events"),
}


def add(parser: argparse.ArgumentParser) -> None:
    names = parser.add_subparsers(dest="job", required=True, metavar="job", parser_class=_JobParser)
    for name, job in JOBS.items():
        purpose = job.purpose[0].upper() + job.purpose[1:] + "."
        names.add_parser(name, help=job.purpose, description=purpose).module = job.module


class _JobParser(argparse.ArgumentParser):
    """Asks the job's module for its arguments when they are needed, so that the other jobs are not imported."""

    module = ""

    def parse_known_args(self, *given: Any, **named: Any) -> Any:
        module, self.module = self.module, ""
        if module:
            importlib.import_module(module).add_arguments(self)
        return super().parse_known_args(*given, **named)


def run(arguments: argparse.Namespace) -> int:
    """The exit code. What cannot be done is told in a line, not in a Java stack."""
    try:
        import pyspark.errors
        from py4j.protocol import Py4JJavaError, Py4JNetworkError
    except ImportError:
        return _cannot("jobs need Spark: install kwire with the extra `spark`, such as `scripts/install spark`")
    from kwire.client import ClientError

    job = importlib.import_module(JOBS[arguments.job].module)
    try:
        code: int = job.run(arguments)
    except Py4JNetworkError:
        return _cannot("the Java process of Spark has ended; the same command goes on where it was")
    except (ClientError, ValueError, OSError, pyspark.errors.PySparkException, Py4JJavaError) as error:
        return _cannot(told(error))
    return code


def told(error: Exception) -> str:
    """What Spark says first, and of which query; behind that it puts the whole Java stack and the query's plan."""
    text = str(error).strip()
    query = _QUERY.search(text)
    for more in _MORE:
        text = text.split(more)[0]
    # Py4j says which object of its own was called, and only then what happened.
    text = _CALLED.sub("", text).strip() or type(error).__name__
    return f"{query[1]}: {text}" if query else text


def _cannot(reason: str) -> int:
    print(f"kwire: {reason}", file=sys.stderr)
    return CANNOT_RUN
