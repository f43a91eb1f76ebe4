"""Runs a server or a bridge in the foreground until SIGTERM or SIGINT."""

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Final, Protocol

from kwire import __version__
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.runner import error_text, print_error
from kwire.config import Config, InvalidConfig, load
from kwire.exit_codes import CANNOT_RUN, DONE, FAILED
from kwire.logs.lifecycle import ServerLog
from kwire.logs.line_formats import FORMATS, TEXT
from kwire.logs.start_report import ConnectionCounts
from kwire.server.free_memory import bound_heap
from kwire.server.garbage import bound_collections
from kwire.server.service_reports import ServiceReports
from storage.errors import StorageError

STOP_SECONDS_MAX = 120.0
# The time after which a thread that runs Python code must release the GIL to the event loop. Python's default of 5 ms
# is much longer than the latency of most requests.
SWITCH_INTERVAL_SECONDS = 0.0005

# The errors that end a start with one line, and their exit codes. The first that fits is used.
StartErrors = Sequence[tuple[type[Exception], int]]
START_ERRORS: Final[StartErrors] = ((OSError, FAILED), (StorageError, FAILED), (ValueError, FAILED))


# Serves clients until the process gets a signal, and returns its exit code.
Serve = Callable[[Config, ServerLog], Coroutine[None, None, int]]


class Service(Protocol):
    """What runs in the foreground: a node or a bridge. `stop` returns the number of aborted Kafka connections."""

    @property
    def connection_counts(self) -> ConnectionCounts: ...

    async def stop(self) -> int: ...


def add_options(parser: CommandParser) -> None:
    """Declare the options that a server and a bridge share."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a server.properties file, or a .yaml file with rooms, streams and groups; repeatable, later files win",
    )
    parser.add_argument("--http", metavar="HOST:PORT", help="address for HTTP clients (default 127.0.0.1:8082)")
    parser.add_argument("--data-dir", metavar="DIR", help="the data directory (default ./kwire-data)")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="any setting, by its Kafka name; repeatable"
    )
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    parser.add_argument(
        "--log-format", default=TEXT, choices=FORMATS, help=f"lines of text or JSON objects on stderr (default {TEXT})"
    )


def run_configured(options: argparse.Namespace, serve: Serve, kafka: str | None = None) -> int:
    """Read the configuration, and run `serve` in an event loop. Returns the exit code of the process."""
    server_log = ServerLog(options.log_level, options.log_format, print_error)
    try:
        config = load(
            files=options.config,
            environment=os.environ,
            kafka=kafka,
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

    return uvloop.run(serve(config, server_log))


def prepare_process(config: Config) -> None:
    """Set the limits of the process, before the event loop starts."""
    _prepare_descriptors(config)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    bound_collections()
    bound_heap()


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


async def run_until_signal(
    service: Service,
    start: Callable[[], Awaitable[str]],
    server_log: ServerLog,
    data_dirs: tuple[str, ...],
    start_errors: StartErrors = START_ERRORS,
) -> int:
    """Start a service, and stop it at the first signal. Returns the exit code. `start` returns the ready line."""
    loop = asyncio.get_running_loop()
    stop_requested: asyncio.Future[signal.Signals] = loop.create_future()

    def request_stop(number: signal.Signals) -> None:
        if not stop_requested.done():
            stop_requested.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, request_stop, number)
    server_log.starting(__version__, data_dirs)
    try:
        ready_line = await start()
    except tuple(error for error, _ in start_errors) as error:
        server_log.failed(f"cannot start: {error_text(error)}")
        return next(code for kind, code in start_errors if isinstance(error, kind))
    print(ready_line, flush=True)
    reports = ServiceReports()
    reports.ready(f"Serving: {ready_line.removeprefix('ready ')}")
    reason = await stop_requested
    reports.stopping()
    server_log.stopping(reason.name, service.connection_counts)
    # If the stop takes too long, for example because a disk does not respond, the process exits. The next start then
    # recovers as after a crash.
    guard = threading.Timer(STOP_SECONDS_MAX, os._exit, [1])
    guard.daemon = True
    guard.start()
    server_log.stopped(await service.stop())
    reports.close()
    guard.cancel()
    return DONE
