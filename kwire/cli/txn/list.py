"""kwire txn list: the transactional ids that the servers coordinate."""

import argparse

from kwire.cli.connection.options import add_kafka_options, kafka_client_of
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.txn.coordinated import listed_transactions
from kwire.cli.values.times import parse_duration

COLUMNS = ("id", "state", "producer_id", "coordinator")


def add(parser: CommandParser) -> None:
    parser.add_argument(
        "--state",
        metavar="STATE",
        action="append",
        default=[],
        help="only ids in this state, such as Ongoing; repeatable",
    )
    parser.add_argument(
        "--producer-id", metavar="N", type=int, action="append", default=[], help="only this producer; repeatable"
    )
    parser.add_argument("--longer-than", metavar="DURATION", help="only transactions that run for longer, such as 10m")
    parser.add_argument("--pattern", metavar="REGEX", help="only ids that match this regular expression")
    add_kafka_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    longer_than_ms = None if options.longer_than is None else duration_of(options.longer_than)
    with kafka_client_of(options) as client:
        rows = listed_transactions(
            client,
            states=options.state,
            producer_ids=options.producer_id,
            longer_than_ms=longer_than_ms,
            pattern=options.pattern,
        )
    print_rows(rows, COLUMNS, options)


def duration_of(text: str) -> int:
    """Return the duration of --longer-than in milliseconds. Raises UsageError."""
    try:
        return parse_duration(text)
    except ValueError as problem:
        raise UsageError(f"--longer-than: {problem}") from None
