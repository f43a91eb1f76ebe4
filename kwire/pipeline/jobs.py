"""The list of jobs, and the function that runs a job. `kwire pipeline JOB …` parses the arguments."""

import argparse
import importlib
import os
import re
import sys
from typing import NamedTuple

from kwire.pipeline.java.installation import check_java

DONE, CANNOT_RUN = 0, 2

# The useful part of a Spark error message ends where the first of these texts begins.
_DETAILS = ("\nJVM stacktrace:", "\n=== Streaming Query ===", "\n\tat ")
_QUERY_NAME = re.compile(r"^Identifier: (\S+) \[id = ", re.MULTILINE)
# The errors of Java's Kafka client about rights and logins, which Spark wraps in several others.
_REFUSALS = {
    "TopicAuthorization": "the user has no right to read or write a topic",
    "ClusterAuthorization": "the user has no right to write",
    "SaslAuthentication": "the server refused the login",
    "SslAuthentication": "TLS failed",
}
_REFUSAL = re.compile(
    rf"org\.apache\.kafka\.common\.errors\.(?P<kind>{'|'.join(_REFUSALS)})Exception: (?P<message>[^\n]*)"
)
_PY4J_PREFIX = re.compile(r"\AAn error occurred while calling \S+\.\n: ")


class Job(NamedTuple):
    """A job. Its `module` has `add_arguments(parser)` and `run(arguments)`. `run` returns the exit code.

    If the job uses a server, `arguments.server` is that `Server`.
    """

    module: str
    purpose: str
    uses_server: bool = True


JOBS = {
    "lake": Job("kwire.pipeline.lake.job", "write topics and rooms to tables, each event exactly once"),
    "maintain": Job(
        "kwire.pipeline.lake.maintenance",
        "maintain tables: compact small files, delete old rows and snapshots",
        uses_server=False,
    ),
    "analytics": Job(
        "kwire.pipeline.analytics.job", "analyse events of rooms: counts, active users, top rooms, sessions"
    ),
    "replay": Job("kwire.pipeline.replay", "send events of tables or event files to topics again"),
    "reconcile": Job("kwire.pipeline.reconcile", "check that topics and tables hold the same events"),
}


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
    if refusal := _REFUSAL.search(text):
        text = f"{_REFUSALS[refusal['kind']]}: {refusal['message'].strip()}"
    for details in _DETAILS:
        text = text.split(details)[0]
    # Py4J adds the name of the called object as a prefix.
    text = _PY4J_PREFIX.sub("", text).strip() or type(error).__name__
    return f"{query[1]}: {text}" if query else text


def _fail(reason: str) -> int:
    print(f"kwire: {reason}", file=sys.stderr)
    return CANNOT_RUN
