"""kwire pipeline lake: writes the events of topics and rooms to tables, each event once.

The job runs continuously, or with --once until it has written all events that exist at its start.
"""

import argparse
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from kwire.pipeline.arguments import count, seconds
from kwire.pipeline.columns import ddl, table_columns, table_names
from kwire.pipeline.jobs import DONE
from kwire.pipeline.lake import dead_letters
from kwire.pipeline.lake.checkpoint import Checkpoint
from kwire.pipeline.lake.locks.commit_lock import LOCKS
from kwire.pipeline.lake.locks.writer_lock import sole_writer
from kwire.pipeline.lake.tables import FORMATS, TARGET_FILE_BYTES, Partitioning, open_lake
from kwire.pipeline.lake.topic_writer import LakeOptions, TopicWriter
from kwire.pipeline.query_runner import add_arguments as add_runner_arguments
from kwire.pipeline.query_runner import query_runner
from kwire.pipeline.session import add_session_arguments, session_options, spark_session, warehouse_uri
from kwire.pipeline.source import SourceOptions, records
from kwire.pipeline.topic_facts import DESCRIBE_CONFIGS, LAKE_MODE, READ, UPSERT, WRITE, TopicFactsReader, TopicMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINTS = "_checkpoints"
INTERVAL_S = 10.0
TOPICS_MAX = 100
# The maximum number of records in a micro-batch. If the driver is killed, at most one micro-batch is repeated.
BATCH_RECORDS = 1_000_000
_MIB = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic",
        metavar="T",
        action="extend",
        nargs="+",
        default=[],
        help=f"topics or rooms; repeatable (default: all whose {LAKE_MODE} is append or upsert)",
    )
    parser.add_argument("--once", action="store_true", help="stop when all records that exist now are written")
    parser.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], help=f"format of the tables (default: {FORMATS[0]})"
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=seconds,
        default=INTERVAL_S,
        help=f"time between the starts of batches (default: {INTERVAL_S:g})",
    )
    parser.add_argument(
        "--file-mib",
        metavar="N",
        type=count,
        default=TARGET_FILE_BYTES // _MIB,
        help="maximum size of a file in MiB (default: 128)",
    )
    parser.add_argument(
        "--batch-records",
        metavar="N",
        type=count,
        default=BATCH_RECORDS,
        help=f"maximum number of records in a batch (default: {BATCH_RECORDS:,})",
    )
    parser.add_argument(
        "--partition-by",
        metavar="FIELD",
        action="append",
        default=[],
        help="partition the table by this field, after the date; repeatable",
    )
    parser.add_argument("--no-dates", action="store_true", help="do not partition the table by date")
    parser.add_argument(
        "--bad-rows",
        choices=dead_letters.CHOICES,
        default=dead_letters.TO_TABLE,
        help="what to do with records that do not fit the table: write them to the table kwire.<topic>_dead_letters or "
        "to a topic, or stop the job (default: table)",
    )
    parser.add_argument(
        "--dead-letter-topic",
        metavar="T",
        help=f"the topic for such records (default: <topic>{dead_letters.TOPIC_SUFFIX})",
    )
    parser.add_argument(
        "--data-loss",
        choices=("stop", "continue"),
        default="stop",
        help="what to do if records were deleted before they were read (default: stop)",
    )
    parser.add_argument(
        "--checkpoints", metavar="DIR", help=f"directory of the checkpoints (default: WAREHOUSE/{CHECKPOINTS})"
    )
    add_session_arguments(parser)
    add_runner_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    options = session_options(arguments, "kwire lake")
    arguments.server.check()
    reader = TopicFactsReader(arguments.server)
    topics = list(dict.fromkeys(arguments.topic)) or reader.lake_topics()
    if not topics:
        raise ValueError(f"no topics to write: give --topic, or set {LAKE_MODE} of a topic to append or upsert")
    if len(topics) > TOPICS_MAX:
        raise ValueError(
            f"{len(topics)} topics are too many for one job: the maximum is {TOPICS_MAX}, because each is a query"
        )
    if arguments.dead_letter_topic is not None and arguments.bad_rows != dead_letters.TO_TOPIC:
        raise ValueError(f"--dead-letter-topic needs --bad-rows {dead_letters.TO_TOPIC}")
    if arguments.dead_letter_topic in topics:
        raise ValueError(
            f"--dead-letter-topic {arguments.dead_letter_topic} is also read by the job: its dead letters would loop"
        )
    tables = table_names(topics, with_dead_letters=arguments.bad_rows == dead_letters.TO_TABLE)
    _check_topics(topics, reader, arguments)
    spark = spark_session(options)
    with ExitStack() as held, query_runner(spark, arguments, "lake") as runner:
        warehouse = warehouse_uri(arguments.warehouse).rstrip("/")
        trigger = _trigger(arguments)
        writers, streams = [], []
        for topic, table in tables.items():
            held.enter_context(sole_writer(spark, f"{warehouse}/{LOCKS}/{table}.writer"))
            checkpoint = Checkpoint(spark, f"{_checkpoints(arguments)}/{table}")
            writer = _writer(spark, topic, table, reader, checkpoint, arguments)
            stream = records(spark, topic, _source(writer, arguments)).writeStream
            streams.append(stream.queryName(table).option("checkpointLocation", checkpoint.uri).trigger(**trigger))
            writers.append(writer)
        # Tables are created only after all topics have been checked.
        for writer in writers:
            writer.prepare()
        for stream, writer in zip(streams, writers, strict=True):
            runner.start(stream, writer)
        try:
            runner.wait()
        except Exception as error:
            # Spark's error does not show the cause, which is the exception of a writer or a change of the topic.
            causes = (writer.failure_cause() for writer in writers)
            raise next((cause for cause in causes if cause is not None), error) from error
        for writer in writers:
            print(writer.summary(time.monotonic() - began), flush=True)
    return DONE


def _check_topics(topics: list[str], reader: TopicFactsReader, arguments: argparse.Namespace) -> None:
    """Check the topics before Spark is started, so that errors are reported early."""
    for topic in topics:
        reader.state(topic, READ, DESCRIBE_CONFIGS)
        facts = reader.topic(topic)
        if arguments.bad_rows == dead_letters.TO_TOPIC:
            # The first bad record creates the topic.
            with suppress(TopicMissing):
                reader.state(arguments.dead_letter_topic or f"{topic}{dead_letters.TOPIC_SUFFIX}", WRITE)
        columns = {column.name: column.type for column in table_columns(facts.schemas)}
        for field in arguments.partition_by:
            if field not in columns:
                raise ValueError(
                    f"--partition-by {field}: the table of topic {topic} has no such column, only {', '.join(columns)}"
                )
            if not isinstance(columns[field], str):
                raise ValueError(f"--partition-by {field}: a table cannot be partitioned by a {ddl(columns[field])}")
        if facts.lake_mode == UPSERT and arguments.format != FORMATS[0]:
            raise ValueError(f"topic {topic} is written by key ({UPSERT}): this needs --format {FORMATS[0]}")
        if facts.lake_mode == UPSERT and arguments.partition_by:
            raise ValueError(f"topic {topic} is written by key ({UPSERT}): its table cannot have --partition-by")


def _writer(
    spark: "SparkSession",
    topic: str,
    table: str,
    reader: TopicFactsReader,
    checkpoint: Checkpoint,
    arguments: argparse.Namespace,
) -> TopicWriter:
    lake = open_lake(spark, arguments.warehouse, arguments.format, arguments.file_mib * _MIB)
    date_column = None if arguments.no_dates else "kafka_timestamp"
    partitioning = Partitioning(date_column, tuple(dict.fromkeys(arguments.partition_by)))
    options = LakeOptions(
        arguments.server,
        partitioning,
        arguments.bad_rows,
        arguments.dead_letter_topic,
        stops_at_loss=arguments.data_loss == "stop",
    )
    return TopicWriter(topic, table, lake, reader, checkpoint, options)


def _source(writer: TopicWriter, arguments: argparse.Namespace) -> SourceOptions:
    return SourceOptions(
        arguments.server,
        starting_offsets=writer.starting_offsets(),
        fails_on_data_loss=arguments.data_loss == "stop",
        records_per_batch_max=arguments.batch_records,
    )


def _checkpoints(arguments: argparse.Namespace) -> str:
    return warehouse_uri(arguments.checkpoints or f"{arguments.warehouse.rstrip('/')}/{CHECKPOINTS}")


def _trigger(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.once:
        return {"availableNow": True}
    return {"processingTime": f"{round(arguments.interval * 1000)} milliseconds"}
