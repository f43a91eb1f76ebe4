"""kwire topic consume: prints records."""

import argparse
import sys
from collections.abc import Callable
from contextlib import closing

from kwire.cli.connection.options import add_kafka_options
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import JSON, TABLE, WIDE, YAML, add_output
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.reader_watch import reader_watched
from kwire.cli.framework.runner import RUNS_UNTIL_INTERRUPT
from kwire.cli.kafka.cluster import Cluster
from kwire.cli.kafka.consumer import Consumer, ConsumerSettings
from kwire.cli.kafka.fetcher import Skipped
from kwire.cli.kafka.positions import BEGIN, END, EXPECTED, Position, parse_position
from kwire.cli.kafka.transport import cluster_of
from kwire.cli.records.format_string import DEFAULT, FormatString
from kwire.cli.records.printing import FormatPrinter, JsonPrinter, Printer, WidePrinter, YamlPrinter
from kwire.cli.topic.last_records import COUNT_MAX, last_records

TAIL_DEFAULT = 10

EPILOG = (
    """positions: """
    + EXPECTED
    + r"""

formats, as in kcat: %s value, %S its length, %R its length as 4 bytes, %k key, %K its length, %h headers,
%T timestamp in ms, %t topic, %p partition, %o offset; \n \r \t \xHH

examples:
  kwire topic consume orders --until end                     everything that is there now
  kwire topic consume orders --from 10m -f '%T %k: %s\n'     the last ten minutes, and what follows
  kwire topic consume orders --tail 5                        the last five records, and what follows
  kwire topic consume orders -o json --count 1               one record with everything about it"""
)


def add(parser: CommandParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("names", metavar="TOPIC", nargs="+")
    which = parser.add_argument_group("which records")
    which.add_argument("--from", dest="start", metavar="POSITION", help="where to begin (earliest)")
    which.add_argument(
        "--until", metavar="POSITION", help="where to end; end is where the log ended at the start (default: never)"
    )
    which.add_argument("-c", "--count", metavar="N", type=int, help="end after this many records")
    which.add_argument(
        "--tail",
        metavar="N",
        type=int,
        nargs="?",
        const=TAIL_DEFAULT,
        help=f"begin with the last N records of all partitions together ({TAIL_DEFAULT})",
    )
    which.add_argument(
        "-p", "--partition", metavar="N", type=int, action="append", help="only this partition; repeatable"
    )
    which.add_argument(
        "-g", "--group", metavar="GROUP", help="read as a member of this group, and commit what was printed"
    )
    which.add_argument(
        "--read-committed", action="store_true", help="leave out records of open and aborted transactions"
    )
    parser.add_argument(
        "-f", "--format", metavar="FORMAT", help=f"how to print a record (default: '{DEFAULT}')".replace("%", "%%")
    )
    parser.add_argument(
        "--null", metavar="TEXT", default="", help="how to print a null key or value (default: nothing)"
    )
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run, **{RUNS_UNTIL_INTERRUPT: True})


def run(options: argparse.Namespace) -> None:
    settings = _settings(options)
    printer = _printer(options)
    with reader_watched(), cluster_of(options) as cluster:
        cluster.load_topics(options.names)
        consumer = Consumer(cluster, options.names, settings)
        starts = None
        if options.tail is not None:
            _print_tail(cluster, consumer, printer, settings, options.tail)
            starts = consumer.bounds.end
        out = sys.stdout.buffer
        with closing(consumer.rounds(starts)) as rounds:
            for batches in rounds:
                for batch in batches:
                    out.write(printer.batch(batch))
                out.flush()
                for skipped in consumer.taken_skips():
                    _warn(skipped)


def _print_tail(cluster: Cluster, consumer: Consumer, printer: Printer, settings: ConsumerSettings, count: int) -> None:
    for last in last_records(cluster, consumer.bounds, count, is_committed=settings.is_committed):
        sys.stdout.buffer.write(printer.records(last.partition, [last.record]))
    sys.stdout.buffer.flush()


def _warn(skipped: Skipped) -> None:
    print(
        f"kwire: {skipped.partition}: offsets {skipped.first} to {skipped.next_offset - 1} were deleted before they "
        "could be read",
        file=sys.stderr,
    )


def _settings(options: argparse.Namespace) -> ConsumerSettings:
    start, until = _position(options.start, "--from"), _position(options.until, "--until")
    if options.count is not None and options.count < 0:
        raise UsageError(f"--count: expected a number of records, got {options.count}")
    if options.tail is not None:
        if not 0 <= options.tail <= COUNT_MAX:
            raise UsageError(f"--tail: expected 0 to {COUNT_MAX} records, got {options.tail}")
        if start is not None or options.group is not None or options.count is not None:
            raise UsageError("--tail cannot be combined with --from, --count or --group")
        if until not in (None, END):
            raise UsageError("--tail ends never, or with --until end")
    if options.group is not None and options.partition:
        raise UsageError("--group assigns the partitions: leave out --partition")
    return ConsumerSettings(
        start or BEGIN, until, options.count, options.partition, options.read_committed, options.group
    )


def _position(text: str | None, option: str) -> Position | None:
    if text is None:
        return None
    try:
        return parse_position(text, option)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _printer(options: argparse.Namespace) -> Printer:
    if options.output != TABLE:
        if options.format is not None:
            raise UsageError("--format cannot be combined with -o")
        printers: dict[str, Callable[[], Printer]] = {JSON: JsonPrinter, YAML: YamlPrinter, WIDE: WidePrinter}
        return printers[options.output]()
    try:
        return FormatPrinter(FormatString(DEFAULT if options.format is None else options.format, options.null.encode()))
    except ValueError as error:
        raise UsageError(str(error)) from None
