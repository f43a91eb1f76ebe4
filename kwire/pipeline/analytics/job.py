"""kwire pipeline analytics: what happens in rooms, told in a room and kept in tables."""

import argparse
import re
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kwire.client import Client
from kwire.pipeline.analytics.analysis import Analysis, span_ms
from kwire.pipeline.arguments import count, seconds
from kwire.pipeline.columns import table_name
from kwire.pipeline.jobs import DONE
from kwire.pipeline.lake.checkpoint import Checkpoint
from kwire.pipeline.lake.job import CHECKPOINTS
from kwire.pipeline.lake.tables import FORMATS, open_lake
from kwire.pipeline.lake.writer_lock import sole_writer
from kwire.pipeline.progress import add_arguments as add_progress_arguments
from kwire.pipeline.progress import running
from kwire.pipeline.session import add_session_arguments, session_options, spark_session, warehouse_uri
from kwire.pipeline.source import SourceOptions
from kwire.pipeline.topic_facts import TopicFactsReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kwire.pipeline.analytics.telling import Place, ResultsRoom

RESULT_NAMES = ("counts", "users", "top", "sessions")
ROOM, TABLES = "room", "tables"
RESULTS_ROOM = "activity"
HTTP_DEFAULT = "http://127.0.0.1:8082"
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
INTERVAL_S = 5.0
BATCH_RECORDS = 200_000
STATE_PARTITIONS = 4
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", default=BOOTSTRAP_DEFAULT, help="the Kafka port (default %(default)s)"
    )
    parser.add_argument("--http", metavar="URL", default=HTTP_DEFAULT, help="the HTTP port (default %(default)s)")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", metavar="T", dest="topics", action="append", help="a room or topic; repeatable")
    which.add_argument("--pattern", metavar="REGEX", help="all rooms and topics whose whole name matches, new ones too")
    add_session_arguments(parser)
    what = parser.add_argument_group("what is counted")
    what.add_argument(
        "--result", dest="results", action="append", choices=RESULT_NAMES, help="repeatable; default: all"
    )
    what.add_argument("--window", type=span_ms, default="1m", metavar="SPAN", help="how long a window is (default 1m)")
    what.add_argument("--slide", type=span_ms, default="10s", metavar="SPAN", help="how often one begins (default 10s)")
    what.add_argument(
        "--lateness",
        type=span_ms,
        default="30s",
        metavar="SPAN",
        help="how far behind the newest event others still count (default 30s)",
    )
    what.add_argument(
        "--session-gap", type=span_ms, default="5m", metavar="SPAN", help="a longer pause ends a session (default 5m)"
    )
    what.add_argument("--top", type=count, default=10, metavar="N", help="rooms in the top of a window (default 10)")
    what.add_argument(
        "--user-field",
        metavar="NAME",
        default="user",
        help="the payload's field that says who (default user); a.b works",
    )
    what.add_argument(
        "--time-field",
        metavar="NAME",
        help="the payload's field that says when, as ISO 8601 (default: the record's time)",
    )
    where = parser.add_argument_group("where results go")
    where.add_argument(
        "--to", dest="places", action="append", choices=(ROOM, TABLES), help="repeatable; default: both of them"
    )
    where.add_argument("--results-room", metavar="ROOM", default=RESULTS_ROOM, help="(default %(default)s)")
    where.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="of tables (default %(default)s)")
    how = parser.add_argument_group("how it runs")
    how.add_argument("--once", action="store_true", help="take what is there and end")
    how.add_argument(
        "--interval", metavar="SECONDS", type=seconds, default=INTERVAL_S, help="from batch to batch (default 5)"
    )
    how.add_argument(
        "--from", dest="start", choices=("earliest", "latest"), default="earliest", help="at the very first start"
    )
    how.add_argument(
        "--batch-records", type=count, default=BATCH_RECORDS, metavar="N", help="at most (default %(default)s)"
    )
    how.add_argument(
        "--state-partitions",
        type=count,
        default=STATE_PARTITIONS,
        metavar="N",
        help="tasks that share windows and sessions; fixed by the first start (default %(default)s)",
    )
    add_progress_arguments(how)


def run(arguments: argparse.Namespace) -> int:
    from kwire.pipeline.analytics.events import EventFields, events_of
    from kwire.pipeline.analytics.results import RESULTS
    from kwire.pipeline.analytics.telling import ResultsRoom, RoomPlace, TablePlace, teller

    asked = Analysis(arguments.window, arguments.slide, arguments.lateness, arguments.session_gap, arguments.top)
    fields = EventFields(arguments.user_field, arguments.time_field)
    source = _source(arguments)
    places = arguments.places or [ROOM, TABLES]
    options = session_options(arguments, "kwire analytics")
    room = ResultsRoom(arguments.results_room, arguments.bootstrap, arguments.http)
    _check_server(room, arguments.topics or [], is_told=ROOM in places)
    spark = spark_session(options)
    if arguments.pattern:
        _check_pattern(spark, arguments.pattern)
    spark.conf.set("spark.sql.shuffle.partitions", str(arguments.state_partitions))
    lake = open_lake(spark, arguments.warehouse, arguments.format)
    with ExitStack() as held, running(spark, arguments, "analytics") as run:
        # Each result is a query of its own: it may be asked for today and left out tomorrow.
        for result in [RESULTS[name] for name in dict.fromkeys(arguments.results or RESULT_NAMES)]:
            query = result.query(asked)
            checkpoint = Checkpoint(spark, f"{_checkpoints(arguments)}/{query}")
            # However it is asked for, a result has one table, and a table one writer.
            held.enter_context(sole_writer(spark, f"{_checkpoints(arguments)}/{result.name}"))
            to: list[Place] = []
            if ROOM in places:
                to.append(RoomPlace(result, query, room))
            if TABLES in places:
                to.append(TablePlace(result, lake.table(f"{table_name(room.name)}_{result.name}"), room.name))
            events = events_of(spark.readStream.format("kafka").options(**source).load(), fields)
            stream = result.rows(events, asked).writeStream.outputMode("append").trigger(**_trigger(arguments))
            stream = stream.queryName(result.name).option("checkpointLocation", checkpoint.uri)
            run.start(stream, teller(to, checkpoint))
        run.wait()
    return DONE


def _check_server(room: "ResultsRoom", topics: Sequence[str], *, is_told: bool) -> None:
    """What can be refused before Spark is started."""
    if is_told:
        # Also if it is there: who asks for a room learns whether it can be one.
        with Client(room.http) as client:
            client.rooms.create(room.name)
    reader = TopicFactsReader(room.http, room.bootstrap)
    for topic in [*topics, *([room.name] if is_told else [])]:
        reader.state(topic)


def _check_pattern(spark: "SparkSession", pattern: str) -> None:
    """Java's patterns are not quite Python's, so Java has to say."""
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
        raise ValueError(f"--results-room takes letters, digits, dots, dashes and underscores, not {room!r}")
    if room in (arguments.topics or ()):
        raise ValueError(f"{room} is where results go; it cannot be counted as well")
    options = SourceOptions(
        arguments.bootstrap,
        starting_offsets=arguments.start,
        # Rooms forget what is old, and go when nobody uses them: what is no longer there is not counted.
        fails_on_data_loss=False,
        records_per_batch_max=arguments.batch_records,
    ).as_spark("")
    del options["subscribe"]
    # Topics too are named by a pattern: a query that subscribes to a topic fails when the topic is deleted.
    wanted = arguments.pattern or "|".join(map(re.escape, arguments.topics))
    # Results are no activity: telling them must not make more of them.
    return {**options, "subscribePattern": f"(?!{re.escape(room)}$)(?:{wanted})"}
