"""Arguments and argument types for argparse that several jobs share."""

import argparse
import math
import os
import socket
from urllib.parse import urlsplit

from kwire.server_addresses import BOOTSTRAP_DEFAULT, BOOTSTRAP_VARIABLE, HTTP_DEFAULT, HTTP_VARIABLE, nothing_listens

COUNT_MAX = 1_000_000_000
SECONDS_MAX = 86_400.0
# How long a job waits for a connection to the server at its start.
CONNECT_SECONDS_MAX = 1.5


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


def check_server(arguments: argparse.Namespace, *, uses_http: bool = True) -> None:
    """Connect to the server once, so that a wrong address is reported in two seconds, before Spark is started.

    Raises OSError with a message that names the address, or ValueError if the address is not valid.
    """
    if uses_http:
        parts = urlsplit(arguments.http)
        _check_address(arguments.http, parts.hostname, parts.port or 80, "--http")
    servers = [server.strip() for server in arguments.bootstrap.split(",")]
    for number, server in enumerate(servers, start=1):
        host, _, port = server.rpartition(":")
        try:
            _check_address(server, host.strip("[]"), int(port) if port.isdecimal() else 0, "--bootstrap-server")
        except OSError:
            if number == len(servers):
                raise
        else:
            return


def _check_address(address: str, host: str | None, port: int, option: str) -> None:
    if not host or not 0 < port < 65536:
        raise ValueError(f"{option}: not the address of a server: {address!r}")
    try:
        socket.create_connection((host, port), CONNECT_SECONDS_MAX).close()
    except ConnectionRefusedError:
        raise ConnectionRefusedError(nothing_listens(address, option)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConnectionError(f"no answer from {address}: {reason}; check it, or name another with {option}") from None


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
