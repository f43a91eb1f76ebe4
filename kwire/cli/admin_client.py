"""Declares subcommands that send requests to the Kafka port of a running server."""

import argparse
from collections.abc import Callable
from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError as ClientError

from kwire.cli.subcommands import add_json, add_subcommand, reports_failures

REQUEST_TIMEOUT_MS = 30_000

Act = Callable[[KafkaAdminClient, argparse.Namespace], None]


def add_admin_subcommand(subcommands: Any, name: str, purpose: str, act: Act) -> argparse.ArgumentParser:
    """Declare a subcommand that calls `act` with a connected admin client and the options.

    `act` raises ValueError to report a failure. Errors of the client and of the connection are reported, too.
    """

    @reports_failures(ClientError, OSError, ValueError)
    def run(options: argparse.Namespace) -> None:
        with closing(_connected(options.bootstrap_server)) as admin:
            act(admin, options)

    parser = add_subcommand(subcommands, name, purpose, run)
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT", default="127.0.0.1:9092", help="the Kafka port (default %(default)s)"
    )
    add_json(parser)
    return parser


def _connected(bootstrap_server: str) -> KafkaAdminClient:
    try:
        return KafkaAdminClient(bootstrap_servers=bootstrap_server, request_timeout_ms=REQUEST_TIMEOUT_MS)
    except (ClientError, OSError) as error:
        raise ConnectionError(f"no answer from {bootstrap_server}: {error}") from error
