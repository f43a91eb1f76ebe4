"""kwire topic produce: writes records from standard input or a file."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kwire.cli.connection.options import add_kafka_options
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser
from kwire.cli.kafka.producer import Producer
from kwire.cli.kafka.transport import cluster_of
from kwire.cli.records.format_string import unescape
from kwire.cli.records.json_lines import decode_lines, timestamp_of
from kwire.cli.records.line_input import read_lines, read_whole
from kwire.cli.records.record import Headers, InvalidInput
from kwire.cli.topic.producer_options import add_producer_options, producer_settings_of
from kwire.cli.topic.written import after_bad_input, print_unfinished, print_written

LINES, JSON_LINES, WHOLE = "lines", "jsonl", "whole"
STDIN, STDIN_DESCRIPTOR = Path("-"), 0
LINGER_MS_DEFAULT = 5
LINGER_MS_MAX = 60_000


def add(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="TOPIC")
    source = parser.add_argument_group("input")
    source.add_argument("--file", metavar="FILE", type=Path, default=STDIN, help="the input (default: standard input)")
    source.add_argument(
        "--format",
        choices=(LINES, JSON_LINES, WHOLE),
        default=LINES,
        help="lines: one value per line (default); jsonl: a JSON object per line with key, value, headers, timestamp "
        "and partition; whole: all input is one value",
    )
    source.add_argument("--delimiter", metavar="TEXT", default="\\n", help="what ends a line (default: \\n)")
    source.add_argument(
        "--key-delimiter", metavar="TEXT", help="lines begin with the key and this text; escapes such as \\t work"
    )
    source.add_argument("--null", metavar="TEXT", help="a value that is this text becomes null (a tombstone)")
    record = parser.add_argument_group("records")
    record.add_argument("-k", "--key", help="the key of all records that have none")
    record.add_argument(
        "-H", "--header", metavar="NAME=VALUE", action="append", default=[], help="a header of all records; repeatable"
    )
    record.add_argument("--timestamp", metavar="TIME", help="of all records, in milliseconds or as ISO 8601 (now)")
    record.add_argument("-p", "--partition", metavar="N", type=int, help="write to this partition")
    add_producer_options(parser)
    parser.add_argument(
        "--linger",
        metavar="MS",
        type=int,
        default=LINGER_MS_DEFAULT,
        help=f"how long to wait for more input before a batch is sent ({LINGER_MS_DEFAULT})",
    )
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    feed = Feed(options)
    settings = producer_settings_of(options)
    with _opened(options.file) as descriptor, cluster_of(options) as cluster:
        cluster.load_topics([options.name], may_create=True)
        if options.partition is not None:
            cluster.check_partition(options.name, options.partition)
        producer = Producer(cluster, options.name, settings)
        try:
            feed.run(descriptor, producer)
            producer.flush()
        except InvalidInput as error:
            raise InvalidInput(f"{error}; {after_bad_input(producer)}") from None
        except BaseException:
            print_unfinished(producer)
            raise
    print_written(producer, options)


class Feed:
    """Reads the input and gives its records to a producer. Raises UsageError if options contradict each other."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._format = options.format
        self._delimiter = _unescaped("--delimiter", options.delimiter)
        self._key_delimiter = (
            None if options.key_delimiter is None else _unescaped("--key-delimiter", options.key_delimiter)
        )
        self._null = None if options.null is None else options.null.encode()
        self._key = None if options.key is None else options.key.encode()
        self._headers: Headers = tuple(_header(text) for text in options.header)
        self._timestamp_ms = None if options.timestamp is None else _timestamp(options.timestamp)
        self._partition = options.partition
        if not 0 <= options.linger <= LINGER_MS_MAX:
            raise UsageError(f"--linger: expected 0 to {LINGER_MS_MAX} ms, got {options.linger}")
        self._linger_seconds = options.linger / 1000
        if self._key_delimiter is not None and self._format != LINES:
            raise UsageError(f"--key-delimiter is for --format {LINES}")
        self._has_only_values = not self._headers and all(
            option is None for option in (self._key_delimiter, self._key, self._null, self._timestamp_ms)
        )

    def run(self, descriptor: int, producer: Producer) -> None:
        """Read all input. When input is late, everything so far is sent and awaited."""
        if self._format == WHOLE:
            self._add(producer, self._key, read_whole(descriptor))
            return
        number = 1
        for lines in read_lines(descriptor, self._delimiter, self._linger_seconds):
            if not lines:
                producer.flush()
            elif self._format == JSON_LINES:
                self._add_json(producer, lines, number)
            elif self._has_only_values:
                producer.add_values(lines, self._partition)
            else:
                self._add_lines(producer, lines, number)
            number += len(lines)

    def _add_lines(self, producer: Producer, lines: list[bytes], first_number: int) -> None:
        delimiter, key = self._key_delimiter, self._key
        if delimiter is None:
            for line in lines:
                self._add(producer, key, line)
            return
        for number, line in enumerate(lines, first_number):
            key, found, value = line.partition(delimiter)
            if not found:
                raise InvalidInput(
                    f"line {number} has no key: the delimiter {delimiter.decode(errors='replace')!r} is missing"
                )
            self._add(producer, key, value)

    def _add(self, producer: Producer, key: bytes | None, value: bytes) -> None:
        content = None if value == self._null else value
        producer.add(key, content, self._headers, self._timestamp_ms, self._partition)

    def _add_json(self, producer: Producer, lines: list[bytes], first_number: int) -> None:
        for record in decode_lines(lines, first_number):
            producer.add(
                self._key if record.key is None else record.key,
                record.value,
                (*record.headers, *self._headers),
                self._timestamp_ms if record.timestamp_ms is None else record.timestamp_ms,
                record.partition if self._partition is None else self._partition,
            )


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    if path == STDIN:
        yield STDIN_DESCRIPTOR
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _unescaped(option: str, text: str) -> bytes:
    delimiter = unescape(text)
    if not delimiter:
        raise UsageError(f"{option} must not be empty")
    return delimiter


def _header(text: str) -> tuple[bytes, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--header takes NAME=VALUE, not {text!r}")
    return name.encode(), value.encode()


def _timestamp(text: str) -> int:
    try:
        return timestamp_of(text)
    except InvalidInput as error:
        raise UsageError(f"--{error}") from None
