"""kwire pipeline analytics: analyses events of rooms, and writes the results to a room and to tables."""

import argparse
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kwire.pipeline.analytics.analysis import Analysis, span_ms
from kwire.pipeline.arguments import count, seconds
from kwire.pipeline.columns import table_name
from kwire.pipeline.jobs import DONE
from kwire.pipeline.lake.checkpoint import Checkpoint
from kwire.pipeline.lake.job import CHECKPOINTS
from kwire.pipeline.lake.locks.writer_lock import sole_writer
from kwire.pipeline.lake.tables import FORMATS, open_lake
from kwire.pipeline.query_runner import add_arguments as add_runner_arguments
from kwire.pipeline.query_runner import query_runner
from kwire.pipeline.reports.sender import ROOM as REPORTS_ROOM
from kwire.pipeline.session import add_session_arguments, session_options, spark_session, warehouse_uri
from kwire.pipeline.source import SourceOptions
from kwire.pipeline.topic_facts import READ, WRITE, TopicFactsReader
from kwire.progress import duration_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kwire.pipeline.analytics.sinks import ResultSink, ResultsRoom

RESULT_NAMES = ("counts", "users", "top", "sessions")
ROOM, TABLES = "room", "tables"
RESULTS_ROOM = "activity"
INTERVAL_S = 5.0
BATCH_RECORDS = 200_000
STATE_PARTITIONS = 4
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", metavar="T", dest="topics", action="append", help="a room or topic; repeatable")
    which.add_argument(
        "--pattern", metavar="REGEX", help="all rooms and topics whose full name matches, including new ones"
    )
    add_session_arguments(parser)
    what = parser.add_argument_group("what is analysed")
    what.add_argument(
        "--result",
        dest="results",
        action="append",
        choices=RESULT_NAMES,
        help="a result to compute; repeatable; default: all",
    )
    what.add_argument("--window", type=span_ms, default="1m", metavar="SPAN", help="length of a window (default 1m)")
    what.add_argument(
        "--slide", type=span_ms, default="10s", metavar="SPAN", help="interval between window starts (default 10s)"
    )
    what.add_argument(
        "--lateness",
        type=span_ms,
        default="30s",
        metavar="SPAN",
        help="events up to this much older than the newest one are counted (default 30s)",
    )
    what.add_argument(
        "--session-gap",
        type=span_ms,
        default="5m",
        metavar="SPAN",
        help="a pause longer than this ends a session (default 5m)",
    )
    what.add_argument("--top", type=count, default=10, metavar="N", help="number of top rooms per window (default 10)")
    what.add_argument(
        "--user-field",
        metavar="NAME",
        default="user",
        help="the payload field with the user (default user); a.b for nested fields",
    )
    what.add_argument(
        "--time-field",
        metavar="NAME",
        help="the payload field with the time in ISO 8601 (default: the record's timestamp)",
    )
    where = parser.add_argument_group("where results are written")
    where.add_argument("--to", dest="sinks", action="append", choices=(ROOM, TABLES), help="repeatable; default: both")
    where.add_argument(
        "--results-room", metavar="ROOM", default=RESULTS_ROOM, help="room for results (default %(default)s)"
    )
    where.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="format of tables (default %(default)s)")
    how = parser.add_argument_group("how it runs")
    how.add_argument("--once", action="store_true", help="process the events that exist now, then stop")
    how.add_argument(
        "--interval",
        metavar="SECONDS",
        type=seconds,
        default=INTERVAL_S,
        help="time between the starts of batches (default 5)",
    )
    how.add_argument(
        "--from",
        dest="start",
        choices=("earliest", "latest"),
        default="earliest",
        help="where to begin reading if there is no checkpoint yet (default %(default)s)",
    )
    how.add_argument(
        "--batch-records",
        type=count,
        default=BATCH_RECORDS,
        metavar="N",
        help="maximum number of records in a batch (default %(default)s)",
    )
    how.add_argument(
        "--state-partitions",
        type=count,
        default=STATE_PARTITIONS,
        metavar="N",
        help="partitions of the state of windows and sessions; fixed at the first start (default %(default)s)",
    )
    add_runner_arguments(how)


def run(arguments: argparse.Namespace) -> int:
    from kwire.pipeline.analytics.events import EventFields, events_of
    from kwire.pipeline.analytics.results import RESULTS
    from kwire.pipeline.analytics.sinks import ResultsRoom, RoomSink, TableSink, batch_writer

    began = time.monotonic()
    analysis = Analysis(arguments.window, arguments.slide, arguments.lateness, arguments.session_gap, arguments.top)
    fields = EventFields(arguments.user_field, arguments.time_field)
    source = _source(arguments)
    sinks = arguments.sinks or [ROOM, TABLES]
    options = session_options(arguments, "kwire analytics")
    room = ResultsRoom(arguments.results_room, arguments.server)
    arguments.server.check()
    _check_topics(room, arguments.topics or [], uses_room=ROOM in sinks)
    spark = spark_session(options)
    if arguments.pattern:
        _check_pattern(spark, arguments.pattern)
    spark.conf.set("spark.sql.shuffle.partitions", str(arguments.state_partitions))
    lake = open_lake(spark, arguments.warehouse, arguments.format)
    with ExitStack() as held, query_runner(spark, arguments, "analytics", shares_source=True) as runner:
        # Each result has its own query, because other results may be selected at the next start.
        for result in [RESULTS[name] for name in dict.fromkeys(arguments.results or RESULT_NAMES)]:
            query = result.query(analysis)
            checkpoint = Checkpoint(spark, f"{_checkpoints(arguments)}/{query}")
            # The name of the lock does not contain the parameters. A result has the same table for all parameters, and
            # a table may have only one writer.
            held.enter_context(sole_writer(spark, f"{_checkpoints(arguments)}/{result.name}"))
            result_sinks: list[ResultSink] = []
            if ROOM in sinks:
                result_sinks.append(RoomSink(result, query, room))
            if TABLES in sinks:
                result_sinks.append(TableSink(result, lake.table(f"{table_name(room.name)}_{result.name}"), room.name))
            events = events_of(spark.readStream.format("kafka").options(**source).load(), fields)
            stream = result.rows(events, analysis).writeStream.outputMode("append").trigger(**_trigger(arguments))
            stream = stream.queryName(result.name).option("checkpointLocation", checkpoint.uri)
            runner.start(stream, batch_writer(result_sinks, checkpoint))
        runner.wait()
        print(f"analytics: {runner.read_events:,} events read, {duration_text(time.monotonic() - began)}", flush=True)
    return DONE


def _check_topics(room: "ResultsRoom", topics: Sequence[str], *, uses_room: bool) -> None:
    """Create the room and check the topics before Spark is started, so that errors are reported early."""
    if uses_room:
        # If the name exists already, the server checks that it is a room.
        with room.server.client() as client:
            client.rooms.create(room.name)
    reader = TopicFactsReader(room.server)
    for topic in topics:
        reader.state(topic, READ)
    if uses_room:
        reader.state(room.name, READ, WRITE)


def _check_pattern(spark: "SparkSession", pattern: str) -> None:
    """Check the pattern with Java, because Java's regular expressions differ from Python's."""
    from pyspark.errors import IllegalArgumentException

    java: Any = spark._jvm
    try:
        java.java.util.regex.Pattern.compile(pattern)
    except IllegalArgumentException as error:
        raise ValueError(f"--pattern {pattern!r}: {str(error).splitlines()[0]}") from None


def _trigger(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"availableNow": True} if arguments.once else {"processingTime": f"{arguments.interval} seconds"}


def _checkpoints(arguments: argparse.Namespace) -> str:
    return f"{warehouse_uri(arguments.warehouse)}/{CHECKPOINTS}/analytics/{arguments.results_room}"


def _source(arguments: argparse.Namespace) -> dict[str, str]:
    room = arguments.results_room
    if not _TOPIC_NAME.fullmatch(room) or room in (".", ".."):
        raise ValueError(
            f"--results-room: only letters, digits, dots, dashes and underscores are allowed, got {room!r}"
        )
    if room in (arguments.topics or ()):
        raise ValueError(f"{room} is the room for results and cannot be analysed: choose another --results-room")
    if REPORTS_ROOM in (room, *(arguments.topics or ())):
        raise ValueError(
            f"{REPORTS_ROOM} is the room for reports of jobs, to which each batch adds: choose another room"
        )
    options = SourceOptions(
        arguments.server,
        starting_offsets=arguments.start,
        # Events that are deleted before they are read are skipped. Rooms delete old events, and the server deletes
        # unused rooms.
        fails_on_data_loss=False,
        records_per_batch_max=arguments.batch_records,
    ).as_spark("")
    del options["subscribe"]
    # A list of topics is also passed as a pattern. A query that subscribes to topics by name fails when one of them is
    # deleted.
    wanted = arguments.pattern or "|".join(map(re.escape, arguments.topics))
    # The pattern excludes the room for results, because results must not be analysed again, and the room for reports,
    # because each batch adds to it.
    excluded = "|".join(map(re.escape, (room, REPORTS_ROOM)))
    return {**options, "subscribePattern": f"(?!(?:{excluded})$)(?:{wanted})"}
