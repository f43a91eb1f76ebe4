"""Declares subcommands that send requests to the Kafka port of a running server."""

import argparse
import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError as ClientError

from kwire.access.users.saslprep import prepare
from kwire.cli.client_settings import ClientSettings, add_client_options, client_settings_of
from kwire.cli.kafka_connection import KafkaConnection, Unreachable
from kwire.cli.subcommands import add_json, add_subcommand, reports_failures

REQUEST_TIMEOUT_MS = 30_000

Act = Callable[[KafkaAdminClient, argparse.Namespace], None]


def add_admin_subcommand(subcommands: Any, name: str, purpose: str, act: Act) -> argparse.ArgumentParser:
    """Declare a subcommand that calls `act` with a connected admin client and the options.

    `act` raises ValueError to report a failure. Errors of the client and of the connection are reported, too.
    `options.client_settings` has the settings of the connection.
    """

    @reports_failures(ClientError, OSError, ValueError)
    def run(options: argparse.Namespace) -> None:
        options.client_settings = client_settings_of(options)
        with closing(_connected(options.client_settings)) as admin:
            act(admin, options)

    parser = add_subcommand(subcommands, name, purpose, run)
    add_client_options(parser)
    add_json(parser)
    return parser


def _connected(settings: ClientSettings) -> KafkaAdminClient:
    # kafka-python tries again until its timeout if it cannot connect or log in, and then does not report the reason.
    with KafkaConnection(settings) as connection:
        connection.check()
    # It logs a warning about every login without TLS. Its errors are reported by this program.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    try:
        return KafkaAdminClient(
            bootstrap_servers=settings.bootstrap_server,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            **_security_options(settings),
        )
    except (ClientError, OSError) as error:
        raise Unreachable(f"no answer from {settings.bootstrap_server}: {error}") from error


def _security_options(settings: ClientSettings) -> dict[str, Any]:
    options: dict[str, Any] = {"security_protocol": settings.protocol, "ssl_context": settings.tls}
    if settings.login is not None:
        options |= {
            "sasl_mechanism": settings.mechanism,
            "sasl_plain_username": settings.login.user,
            # kafka-python does not bring the password into its normal form, as SCRAM requires.
            "sasl_plain_password": prepare(settings.login.password),
        }
    return options
