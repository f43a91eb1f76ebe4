"""kwire topic export: writes the records of a topic to a file."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from kwire.cli.connection.options import add_kafka_options
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.progress import progress_bar
from kwire.cli.framework.reader_watch import reader_watched
from kwire.cli.kafka.consumer import Consumer, ConsumerSettings
from kwire.cli.kafka.positions import EXPECTED, Position, parse_position
from kwire.cli.kafka.transport import cluster_of
from kwire.cli.records.files import FORMATS, PARQUET, WRITERS, format_of, new_file
from kwire.cli.topic.written import records_text


def add(parser: CommandParser) -> None:
    parser.epilog = f"positions: {EXPECTED}"
    parser.add_argument("name", metavar="TOPIC")
    parser.add_argument("--file", metavar="FILE", type=Path, help="the file to write (default: standard output)")
    parser.add_argument(
        "--format", choices=FORMATS, help="jsonl, csv or parquet (default: the end of the file name, or jsonl)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    parser.add_argument(
        "--from", dest="start", metavar="POSITION", default="earliest", help="where to begin (earliest)"
    )
    parser.add_argument(
        "--until", metavar="POSITION", default="end", help="where to end (end: where the log ended at the start)"
    )
    parser.add_argument(
        "-p", "--partition", metavar="N", type=int, action="append", help="only this partition; repeatable"
    )
    parser.add_argument(
        "--read-committed", action="store_true", help="leave out records of open and aborted transactions"
    )
    add_kafka_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    settings = ConsumerSettings(
        _position(options.start, "--from"),
        _position(options.until, "--until"),
        partitions=options.partition,
        is_committed=options.read_committed,
    )
    name, count = _format(options), 0
    with reader_watched(), cluster_of(options) as cluster:
        cluster.load_topics([options.name])
        consumer = Consumer(cluster, [options.name], settings)
        bar = progress_bar(f"export {options.name}", consumer.record_count, amount_text=records_text)
        with _opened(options) as file, closing(bar):
            writer = WRITERS[name](file)
            with closing(consumer.rounds()) as rounds:
                for batches in rounds:
                    for batch in batches:
                        records = batch.records()
                        writer.write(options.name, batch.partition.partition, records)
                        count += len(records)
                    bar.show(count)
            writer.close()
            file.flush()
    for skipped in consumer.taken_skips():
        print(
            f"kwire: {skipped.partition}: offsets {skipped.first} to {skipped.next_offset - 1} were deleted before "
            "they could be read",
            file=sys.stderr,
        )
    target = options.file or "standard output"
    print(f"kwire: {records_text(count)} of {options.name} written to {target}", file=sys.stderr)


@contextmanager
def _opened(options: argparse.Namespace) -> Iterator[IO[bytes]]:
    if options.file is None:
        yield sys.stdout.buffer
        return
    with new_file(options.file, may_replace=options.overwrite) as file:
        yield file


def _format(options: argparse.Namespace) -> str:
    try:
        name = format_of(options.format, options.file)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if name == PARQUET and options.file is None and sys.stdout.isatty():
        raise UsageError("Parquet is not text: name a file with --file")
    return name


def _position(text: str, option: str) -> Position:
    try:
        return parse_position(text, option)
    except ValueError as error:
        raise UsageError(str(error)) from None
