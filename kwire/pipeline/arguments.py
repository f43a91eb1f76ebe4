"""Arguments and argument types for argparse that several jobs share."""

import argparse
import math
import os

from kwire.server_addresses import BOOTSTRAP_DEFAULT, BOOTSTRAP_VARIABLE, HTTP_DEFAULT, HTTP_VARIABLE

COUNT_MAX = 1_000_000_000
SECONDS_MAX = 86_400.0


def add_server_arguments(parser: argparse.ArgumentParser, server: str = "the server") -> None:
    """Declare the addresses of the server. `kwire pipeline` knows profiles, too, which jobs of spark-submit do not."""
    parser.add_argument(
        "--bootstrap-server",
        "--bootstrap",
        dest="bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get(BOOTSTRAP_VARIABLE) or BOOTSTRAP_DEFAULT,
        help=f"the Kafka port of {server} (default: {BOOTSTRAP_VARIABLE}, or {BOOTSTRAP_DEFAULT})",
    )
    parser.add_argument(
        "--http",
        metavar="URL",
        default=os.environ.get(HTTP_VARIABLE) or HTTP_DEFAULT,
        help=f"the HTTP port of {server}, for schemas (default: {HTTP_VARIABLE}, or {HTTP_DEFAULT})",
    )


def count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {COUNT_MAX:,}, got {text!r}")
    return int(text)


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"must be a number of seconds from 0 to {SECONDS_MAX:,.0f}, got {text!r}")
    return number
