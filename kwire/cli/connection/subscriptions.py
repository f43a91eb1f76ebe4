"""Follows the events of a subscription over HTTP and prints them, one JSON object per line."""

import argparse
import json
from typing import Any

from kwire.cli.connection.http_client import HttpClient
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import json_line
from kwire.cli.framework.reader_watch import reader_watched
from kwire.cli.framework.runner import RUNS_UNTIL_INTERRUPT, print_error
from kwire.cli.values.times import parse_time
from kwire.exit_codes import DONE, FAILED

# Control messages that the user should see.
_REPORTED = ("gap", "closed", "lagging")


def add_tail_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of all verbs that follow events. `tail_query` and `follow` read them."""
    parser.add_argument(
        "--from-time", metavar="TIME", help="from the first event of this time, such as 2026-01-31T12:00:00Z or 10m"
    )
    parser.add_argument(
        "--type", metavar="TYPE", action="append", default=[], help="only events of this type; repeatable"
    )
    parser.add_argument(
        "--on-lag",
        choices=("terminate", "catchup", "drop"),
        help="what the server does when this reader is too slow (default: terminate)",
    )
    parser.add_argument("--count", type=positive_count, metavar="N", help="stop after N events")
    parser.add_argument("--until-caught-up", action="store_true", help="stop when all stored events have been printed")
    parser.set_defaults(**{RUNS_UNTIL_INTERRUPT: True})


def tail_query(options: argparse.Namespace) -> dict[str, Any]:
    """Return the query of a subscribe request, without the start at an offset. Raises UsageError."""
    query: dict[str, Any] = {}
    if options.from_time is not None:
        query["from_time"] = _time(options.from_time)
    if options.type:
        query["types"] = ",".join(options.type)
    if options.on_lag is not None:
        query["on_lag"] = options.on_lag
    return query


def follow(client: HttpClient, path: str, options: argparse.Namespace) -> int:
    """Print events until the user, the server or the options end it. Return 1 if the server ended it."""
    with reader_watched():
        return _follow(client, path, options)


def _follow(client: HttpClient, path: str, options: argparse.Namespace) -> int:
    left, kind = options.count, None
    for message in client.lines(path):
        kind = message.get("control")
        if kind is None:
            print(json_line(message), flush=True)
            left = None if left is None else left - 1
        elif kind in _REPORTED:
            print_error(json.dumps(message))
        if left == 0 or (kind == "caught_up" and options.until_caught_up):
            return DONE
    if kind != "closed":
        print_error("the server closed the connection")
    return FAILED


def _time(text: str) -> int:
    try:
        return parse_time(text)
    except ValueError as problem:
        raise UsageError(f"--from-time: {problem}") from None


def positive_count(text: str) -> int:
    """Return a number that is at least 1, as a type for argparse."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return int(text)
