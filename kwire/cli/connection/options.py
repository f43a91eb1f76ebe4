"""The options by which commands name a server, and the clients that they lead to."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kwire.cli.connection.settings import (
    PASSWORD_VARIABLE,
    USER_VARIABLE,
    ClientSettings,
    Source,
    http_settings,
    kafka_settings,
    source_of,
)
from kwire.server_addresses import BOOTSTRAP_DEFAULT, BOOTSTRAP_VARIABLE, HTTP_DEFAULT, HTTP_VARIABLE

if TYPE_CHECKING:
    from kwire.cli.connection.http_client import HttpClient
    from kwire.cli.connection.kafka_client import KafkaClient


def add_kafka_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that `kafka_client_of` reads."""
    group = parser.add_argument_group("connection")
    _add_bootstrap_server(group)
    _add_login(group)


def add_http_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that `http_client_of` reads."""
    group = parser.add_argument_group("connection")
    _add_http(group)
    _add_login(group)


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of both ports, for verbs that need both."""
    group = parser.add_argument_group("connection")
    _add_bootstrap_server(group)
    _add_http(group)
    _add_login(group)


def client_settings_of(options: argparse.Namespace) -> ClientSettings:
    """Return how to connect to the Kafka port. Raises UsageError."""
    return kafka_settings(
        source_of_options(options), os.environ, bootstrap_server=options.bootstrap_server, user=options.user
    )


def kafka_client_of(options: argparse.Namespace) -> "KafkaClient":
    """Connect to the Kafka port and log in. Raises UsageError, Unreachable or LoginRefused."""
    from kwire.cli.connection.kafka_client import KafkaClient

    return KafkaClient(client_settings_of(options))


def http_client_of(options: argparse.Namespace) -> "HttpClient":
    """Return a client of the HTTP port. It connects with its first request. Raises UsageError."""
    from kwire.cli.connection.http_client import HttpClient

    settings = http_settings(
        source_of_options(options), os.environ, url=options.http, user=options.user, ca_file=options.cacert
    )
    return HttpClient(settings)


def source_of_options(options: argparse.Namespace) -> Source:
    """Return the settings of the profile or the properties file that options name. Raises UsageError."""
    return source_of(options.command_config, options.profile, os.environ)


def _add_bootstrap_server(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--bootstrap-server",
        "--bootstrap",
        metavar="HOST:PORT",
        help=f"the Kafka port (default: {BOOTSTRAP_VARIABLE}, the profile, or {BOOTSTRAP_DEFAULT})",
    )


def _add_http(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--http", metavar="URL", help=f"the HTTP port (default: {HTTP_VARIABLE}, the profile, or {HTTP_DEFAULT})"
    )
    group.add_argument(
        "--cacert",
        metavar="FILE",
        type=Path,
        help="for https: the trusted CA certificates, as PEM (default: the system's)",
    )


def _add_login(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--user",
        metavar="NAME",
        help=f"log in as this user (default: {USER_VARIABLE}); the password is {PASSWORD_VARIABLE}, or asked for",
    )
    add_source_options(group)


def add_source_options(group: argparse._ArgumentGroup) -> None:
    """Declare the options that `source_of_options` reads."""
    group.add_argument("--profile", metavar="NAME", help="a profile of kwire profile (default: the current one)")
    group.add_argument(
        "--command-config",
        metavar="FILE",
        type=Path,
        help="a properties file with Kafka's client settings, instead of a profile",
    )
