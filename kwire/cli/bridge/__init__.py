"""kwire bridge: serve rooms over a Kafka cluster, in the foreground until SIGTERM or SIGINT.

The exit code is 2 if the arguments are wrong or the cluster cannot be reached, and 1 if it refuses the login, is too
old, or if the data directory cannot be used.
"""

import argparse
import logging
import os
from functools import partial
from pathlib import Path

from kwire.cli.connection.settings import Source, kafka_settings, source_of
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.parser import CommandParser
from kwire.cli.serve.foreground import (
    START_ERRORS,
    StartErrors,
    add_options,
    run_configured,
    run_until_signal,
)
from kwire.config import Config
from kwire.errors import KafkaError
from kwire.exit_codes import CANNOT_RUN, FAILED
from kwire.kafka_client.errors import Unreachable
from kwire.kafka_client.settings import ClientSettings, addresses_of
from kwire.logs.lifecycle import ServerLog

CONNECT_TIMEOUT_SETTING = "socket.connection.setup.timeout.ms"
BRIDGE_START_ERRORS: StartErrors = ((Unreachable, CANNOT_RUN), (KafkaError, FAILED), *START_ERRORS)

log = logging.getLogger("kwire.server")


def add(parser: CommandParser) -> None:
    parser.add_argument(
        "--upstream", metavar="HOST:PORT[,…]", required=True, help="servers of the cluster, as in bootstrap.servers"
    )
    parser.add_argument(
        "--upstream-config",
        metavar="FILE",
        type=Path,
        help="a properties file with Kafka's client settings: security.protocol, sasl.*, ssl.*",
    )
    add_options(parser)
    parser.set_defaults(run=run, shows_traceback=True)


def run(options: argparse.Namespace) -> int:
    return run_configured(options, partial(_serve, _upstream(options)))


def _upstream(options: argparse.Namespace) -> ClientSettings:
    """Return how to connect to the cluster. Raises UsageError."""
    source = Source({}, "", False)
    if options.upstream_config is not None:
        source = source_of(options.upstream_config, None, os.environ)
    given = kafka_settings(source, os.environ, bootstrap_server=options.upstream)
    try:
        addresses = addresses_of(options.upstream)
    except ValueError as error:
        raise UsageError(f"--upstream: {error}") from None
    settings = ClientSettings(addresses, given.tls, given.mechanism, given.login)
    if CONNECT_TIMEOUT_SETTING in source.given:
        # The default of the command line is short, because people wait for it.
        settings = settings._replace(connect_seconds=given.timeouts.connect_seconds)
    return settings._replace(request_seconds=given.timeouts.request_seconds)


async def _serve(upstream: ClientSettings, config: Config, server_log: ServerLog) -> int:
    from kwire.bridge.process import Bridge

    bridge = Bridge(config, upstream)

    async def start() -> str:
        await bridge.start()
        log.info("the bridge is ready: %s", ", ".join(bridge.addresses()))
        return " ".join(("ready", *bridge.addresses()))

    return await run_until_signal(bridge, start, server_log, (str(config.log.data_dir),), BRIDGE_START_ERRORS)
