"""kwire pipeline reconcile: checks that topics and their tables hold the same events, and reports the differences.

Exit codes: 0 if all events are the same, 1 if events differ, 2 if the check could not be run.
"""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from kwire.pipeline.changes import next_offsets
from kwire.pipeline.columns import quoted, table_names
from kwire.pipeline.jobs import DONE
from kwire.pipeline.lake.dead_letters import dead_letter_table
from kwire.pipeline.lake.parquet import check_in_place
from kwire.pipeline.lake.tables import FORMATS, BatchMark, Lake, open_lake
from kwire.pipeline.lake.topic_writer import OFFSETS_NOTE, TOPIC_ID_NOTE, TOPIC_NOTE
from kwire.pipeline.ordered_rows import rows_in_order
from kwire.pipeline.reconcile.comparison import BEHIND, MISSING, ROW_KEY, Comparison, Difference, Hour
from kwire.pipeline.reconcile.report import Report
from kwire.pipeline.reconcile.topic_rows import Bounds, TopicRows, topic_rows, within
from kwire.pipeline.reports.job_reports import FAILED, job_reports
from kwire.pipeline.reports.job_reports import add_arguments as add_report_arguments
from kwire.pipeline.session import add_session_arguments, check_warehouse, session_options, spark_session
from kwire.pipeline.source import PROBLEM, SourceOptions
from kwire.pipeline.topic_facts import DESCRIBE_CONFIGS, READ, UPSERT, LogBounds, TopicFactsReader

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

DIFFERENT_EVENTS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", metavar="T", action="append", required=True, help="a topic; repeatable")
    parser.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], help=f"format of the tables (default: {FORMATS[0]})"
    )
    parser.add_argument(
        "--may-be-behind",
        action="store_true",
        help="do not count events that the table has not reached yet as differences",
    )
    parser.add_argument(
        "--bad-elsewhere", action="store_true", help="do not check that bad records are in the table of dead letters"
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        type=Path,
        help="write every hour and every difference to this file, as lines of JSON",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON per topic")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    add_report_arguments(parser)
    add_session_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    tables = table_names(arguments.topic)
    options = session_options(arguments, "kwire reconcile")
    check_warehouse(options)
    arguments.server.check()
    reader = TopicFactsReader(arguments.server)
    for topic in tables:
        # What is missing, a topic or a right, is reported before Spark is started.
        reader.state(topic, READ, DESCRIBE_CONFIGS)
    if sys.stderr.isatty() and not arguments.quiet:
        # Show Spark's own progress bar, with one bar per step, because the total amount of work is unknown.
        options.conf.setdefault("spark.ui.showConsoleProgress", "true")
    spark = spark_session(options)
    lake = open_lake(spark, arguments.warehouse, arguments.format)
    is_same = True
    with _opened(arguments.report) as everything, job_reports(arguments, "reconcile") as reports:
        for topic, name in tables.items():
            report = Report(topic, lake.table(name).name, sys.stdout, everything, is_json=arguments.json)
            reconciliation = Reconciliation(spark, topic, reader, lake, name, SourceOptions(arguments.server))
            reconciliation.write_report(report, is_bad_elsewhere=arguments.bad_elsewhere)
            is_same &= report.is_same(may_be_behind=arguments.may_be_behind)
        if not is_same:
            reports.end(FAILED, "topics and tables differ: the output of the job has the differences")
    return DONE if is_same else DIFFERENT_EVENTS


class Reconciliation:
    """A comparison of a topic and its table, for the offsets that the topic has at the start of the comparison.

    A writer may be running. So the order of reads is important: first the writer's position, then the end of the table,
    last the end of the topic. This ensures that all rows up to the end of the table are also in the topic.
    """

    def __init__(
        self,
        spark: "SparkSession",
        topic: str,
        reader: TopicFactsReader,
        lake: Lake,
        name: str,
        source: SourceOptions,
    ) -> None:
        from pyspark.sql import functions as F

        table = lake.table(name)
        if not table.exists():
            raise ValueError(f"table {table.name} of topic {topic} does not exist")
        mark = table.last_mark()
        if mark is not None and mark.notes.get(TOPIC_NOTE, topic) != topic:
            raise ValueError(f"{table.name} is the table of {mark.notes[TOPIC_NOTE]}, not of topic {topic}")
        self._spark = spark
        self._name = table.name
        self._columns = table.columns()
        self._source = source
        self._rows = table.read()
        check_in_place(table)
        ends = self._rows.groupBy("kafka_partition").agg(F.max("kafka_offset") + 1).collect()
        self._table_ends: dict[int, int] = dict(map(tuple, ends))
        self._facts = reader.topic(topic)
        state = reader.state(topic)
        self._bounds = state.bounds
        self._next_offsets = _writer_position(mark, topic, state.topic_id) or self._table_ends
        self._dead_letters = dead_letter_table(lake, name)

    def write_report(self, report: Report, *, is_bad_elsewhere: bool) -> None:
        everything = self._topic_rows(self._bounds)
        hours = self._comparison(everything).hours()
        for hour in hours:
            report.hour(hour)
        differing = [hour for hour in hours if not hour.is_same]
        if differing:
            for difference in self._comparison(self._topic_rows(self._bounds_of(differing))).differences(differing):
                report.difference(difference)
            if not report.counts:
                raise ValueError(
                    f"{self._name} was changed while it was compared with topic {self._facts.name}: run the check again"
                )
        dead_letters = 0
        if everything.bad_count and not is_bad_elsewhere:
            dead_letters = everything.bad_count - self._report_missing_dead_letters(report, everything)
        report.close(dead_letters=dead_letters, older_rows=self._older_row_count())

    def _topic_rows(self, bounds: Bounds) -> TopicRows:
        return topic_rows(self._spark, self._facts, self._columns, bounds, self._source)

    def _comparison(self, topic: TopicRows) -> Comparison:
        names = [quoted(column.name) for column in self._columns]
        table = self._rows.where(self._is_compared()).select(*names)
        return Comparison(topic.good.select(*names), table, self._next_offsets)

    def _bounds_of(self, hours: Sequence[Hour]) -> Bounds:
        """Return the offsets of the topic that must be read again for these hours.

        Spark needs a range for every partition, so partitions without such hours get an empty range.
        """
        if self._facts.lake_mode == UPSERT:
            # All records are needed, because the last record of a key may have any offset.
            return self._bounds
        parts: dict[int, list[Hour]] = {}
        for hour in hours:
            parts.setdefault(hour.partition, []).append(hour)
        return {
            number: within(one, min(hour.first for hour in parts[number]), max(hour.last for hour in parts[number]))
            if number in parts
            else LogBounds(one.end, one.end)
            for number, one in self._bounds.items()
        }

    def _is_compared(self) -> "Column":
        """Return the condition that selects the rows of the table that are compared.

        These are the rows from the topic's first offset to the end that the table had at the start of the comparison.
        """
        from pyspark.sql import functions as F

        compared = F.lit(False)
        for number, end in self._table_ends.items():
            first = self._bounds[number].first if number in self._bounds else 0
            is_between = F.col("kafka_offset").between(first, end - 1)
            compared = compared | ((F.col("kafka_partition") == number) & is_between)
        return compared

    def _older_row_count(self) -> int:
        from pyspark.sql import functions as F

        if not any(one.first for one in self._bounds.values()):
            return 0
        older = F.lit(False)
        for number, one in self._bounds.items():
            older = older | ((F.col("kafka_partition") == number) & (F.col("kafka_offset") < one.first))
        return int(self._rows.where(older).count())

    def _report_missing_dead_letters(self, report: Report, topic: TopicRows) -> int:
        """Report the bad records that are not in the table of dead letters. Return their number."""
        lost = topic.bad
        if self._dead_letters.exists():
            lost = lost.join(self._dead_letters.read().select(*ROW_KEY).distinct(), list(ROW_KEY), "left_anti")
        count = 0
        for row in rows_in_order(lost, ROW_KEY, topic.bad_count):
            count += 1
            partition, offset = row["kafka_partition"], row["kafka_offset"]
            kind = BEHIND if offset >= self._next_offsets.get(partition, 0) else MISSING
            report.difference(Difference(kind, partition, offset, f"bad record without a dead letter: {row[PROBLEM]}"))
        return count


def _writer_position(mark: BatchMark | None, topic: str, topic_id: str) -> dict[int, int]:
    """Return the next offset of the table's writer by partition, from the batch mark.

    The result is empty if the mark belongs to another topic. The position cannot be computed from the rows, because the
    last record that was read may have no row, or its row may be lost.
    """
    if mark is None or mark.notes.get(TOPIC_ID_NOTE) != topic_id:
        return {}
    return next_offsets(mark.notes.get(OFFSETS_NOTE), topic)


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    with path.open("w") as file:
        yield file
