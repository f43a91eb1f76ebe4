"""kwire serve: run a node in the foreground until SIGTERM or SIGINT."""

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.runner import print_error
from kwire.cli.serve.foreground import add_process_options, prepare_process, run_until_signal
from kwire.config import Config, InvalidConfig, load
from kwire.exit_codes import CANNOT_RUN
from kwire.logs.lifecycle import ServerLog

if TYPE_CHECKING:
    from kwire.node import Node


def add(parser: CommandParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a server.properties file, or a .yaml file with rooms, streams and groups; repeatable, later files win",
    )
    parser.add_argument("--kafka", metavar="HOST:PORT", help="address for Kafka clients (default 127.0.0.1:9092)")
    parser.add_argument("--http", metavar="HOST:PORT", help="address for HTTP clients (default 127.0.0.1:8082)")
    parser.add_argument("--data-dir", metavar="DIR", help="the data directory (default ./kwire-data)")
    add_process_options(parser)
    parser.set_defaults(run=run, shows_traceback=True)


def run(options: argparse.Namespace) -> int:
    server_log = ServerLog(options.log_level, options.log_format, print_error)
    try:
        config = load(
            files=options.config,
            environment=os.environ,
            kafka=options.kafka,
            http=options.http,
            data_dir=options.data_dir,
            settings=options.set,
        )
    except InvalidConfig as error:
        server_log.failed(str(error))
        return CANNOT_RUN
    for warning in config.warnings:
        logging.getLogger("kwire.config").warning("%s", warning)
    prepare_process(config)
    import uvloop

    return uvloop.run(_serve(config, server_log))


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
