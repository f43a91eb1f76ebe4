"""kwire serve: run a node in the foreground until SIGTERM or SIGINT."""

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from kwire import __version__
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.runner import error_text, print_error
from kwire.config import Config, InvalidConfig, load
from kwire.exit_codes import CANNOT_RUN, FAILED
from kwire.logs.lifecycle import ServerLog
from kwire.logs.line_formats import FORMATS, TEXT
from kwire.server.free_memory import bound_heap
from kwire.server.garbage import bound_collections
from kwire.server.service_reports import ServiceReports

if TYPE_CHECKING:
    from kwire.node import Node

STOP_SECONDS_MAX = 120.0
# The time after which a thread that runs Python code must release the GIL to the event loop. Python's default of 5 ms
# is much longer than the latency of most requests.
SWITCH_INTERVAL_SECONDS = 0.0005


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
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="any setting, by its Kafka name; repeatable"
    )
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    parser.add_argument(
        "--log-format", default=TEXT, choices=FORMATS, help=f"lines of text or JSON objects on stderr (default {TEXT})"
    )
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
    _prepare_descriptors(config)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    bound_collections()
    bound_heap()
    import uvloop

    return uvloop.run(_serve(config, server_log))


def _prepare_descriptors(config: Config) -> None:
    """Raise the limit of open files to the hard limit, as the JVM does. Connections and segments need open files."""
    from kwire.descriptors import allocate_table, raise_limit

    limit = raise_limit()
    allocate_table(limit)
    if limit < config.network.connections_max:
        logging.getLogger("kwire.server").warning(
            "the limit of open files is %d, less than max.connections=%d: raise it with ulimit -n",
            limit,
            config.network.connections_max,
        )


async def _serve(config: Config, server_log: ServerLog) -> int:
    from kwire.node import Node
    from storage.errors import StorageError

    loop = asyncio.get_running_loop()
    stop_requested: asyncio.Future[signal.Signals] = loop.create_future()

    def request_stop(number: signal.Signals) -> None:
        if not stop_requested.done():
            stop_requested.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, request_stop, number)
    server_log.starting(__version__, tuple(map(str, config.log.data_dirs)))
    node = Node(config)
    try:
        await node.start()
    except (OSError, StorageError, ValueError) as error:
        server_log.failed(f"cannot start: {error_text(error)}")
        return FAILED
    server_log.ready(node.start_report)
    print(_ready_line(node), flush=True)
    reports = ServiceReports()
    reports.ready(f"Serving: {_ready_line(node).removeprefix('ready ')}")
    reason = await stop_requested
    reports.stopping()
    server_log.stopping(reason.name, node.connection_counts)
    # If the stop takes too long, for example because a disk does not respond, the process exits. The next start then
    # recovers as after a crash.
    guard = threading.Timer(STOP_SECONDS_MAX, os._exit, [1])
    guard.daemon = True
    guard.start()
    server_log.stopped(await node.stop())
    reports.close()
    guard.cancel()
    return 0


def _ready_line(node: "Node") -> str:
    """Return the line that is printed when the server is ready.

    It has the actual ports, because with port 0 in the configuration the system chooses the port.
    """
    kafka = ",".join(f"{one.listener.host or '0.0.0.0'}:{one.port}" for one in node.kafka_listeners)
    if node.http is None or node.config.http is None:
        return f"ready kafka={kafka}"
    return f"ready kafka={kafka} http={node.config.http.host or '0.0.0.0'}:{node.http.port}"
