"""kwire serve: run a node in the foreground until SIGTERM or SIGINT."""

import argparse
from typing import TYPE_CHECKING

from kwire.cli.framework.parser import CommandParser
from kwire.cli.serve.foreground import add_options, run_configured, run_until_signal
from kwire.config import Config
from kwire.logs.lifecycle import ServerLog

if TYPE_CHECKING:
    from kwire.node import Node


def add(parser: CommandParser) -> None:
    parser.add_argument("--kafka", metavar="HOST:PORT", help="address for Kafka clients (default 127.0.0.1:9092)")
    add_options(parser)
    parser.set_defaults(run=run, shows_traceback=True)


def run(options: argparse.Namespace) -> int:
    return run_configured(options, _serve, options.kafka)


async def _serve(config: Config, server_log: ServerLog) -> int:
    from kwire.node import Node

    node = Node(config)

    async def start() -> str:
        await node.start()
        server_log.ready(node.start_report)
        return _ready_line(node)

    return await run_until_signal(node, start, server_log, tuple(map(str, config.log.data_dirs)))


def _ready_line(node: "Node") -> str:
    """Return the line that is printed when the server is ready.

    It has the actual ports, because with port 0 in the configuration the system chooses the port.
    """
    kafka = ",".join(f"{one.listener.host or '0.0.0.0'}:{one.port}" for one in node.kafka_listeners)
    if node.http is None or node.config.http is None:
        return f"ready kafka={kafka}"
    return f"ready kafka={kafka} http={node.config.http.host or '0.0.0.0'}:{node.http.port}"
