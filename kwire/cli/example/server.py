"""The server that an example uses: the one that options name, or a temporary one that ends with the example."""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from kwire.cli.connection.errors import Refused
from kwire.cli.connection.http_client import HttpClient
from kwire.cli.connection.options import source_of_options
from kwire.cli.connection.profiles import HTTP_SETTING
from kwire.cli.connection.settings import HttpSettings, bootstrap_server_of, http_settings
from kwire.server_addresses import HTTP_DEFAULT, HTTP_VARIABLE

STOP_SECONDS_MAX = 30.0
CONNECT_SECONDS_MAX = 1.0
READY = "ready"
# A part of the document of the examples.
MARK = b"/examples/main.js"


class ExampleServer(NamedTuple):
    """`bootstrap` is empty if the example has no option for it. `process` is None if the server was running before."""

    http: HttpSettings
    bootstrap: str
    process: subprocess.Popen[str] | None


@contextmanager
def example_server(options: argparse.Namespace, *, prefers_temporary: bool = False) -> Iterator[ExampleServer]:
    """Yield the server that the options, the environment or the profile name, or the one at the default address.

    If no server is named, and none listens at the default address or `prefers_temporary` is true, yield a temporary
    one.
    """
    source = source_of_options(options)
    is_named = bool(options.http or os.environ.get(HTTP_VARIABLE) or source.given.get(HTTP_SETTING))
    if not options.temporary and (is_named or (not prefers_temporary and _listens(HTTP_DEFAULT))):
        http = http_settings(
            source,
            os.environ,
            url=options.http,
            user=options.user,
            ca_file=options.cacert,
        )
        has_kafka = hasattr(options, "bootstrap_server")
        bootstrap = bootstrap_server_of(source, os.environ, options.bootstrap_server) if has_kafka else ""
        yield ExampleServer(http, bootstrap, None)
        return
    with tempfile.TemporaryDirectory(prefix="kwire-example-") as directory, _ended_by_signals():
        command = [sys.executable, "-m", "kwire", "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        command += ["--data-dir", f"{directory}/data", "--log-level", "WARNING"]
        # The banner would only distract; the log is shown if the server does not start.
        log = Path(directory, "server.log")
        with (
            log.open("w") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            try:
                yield _started(process, log)
            finally:
                process.terminate()
                process.wait(STOP_SECONDS_MAX)


def check_examples(server: ExampleServer) -> None:
    """Raise Unreachable if the server does not answer, and Refused if it does not have the pages of the examples."""
    with HttpClient(server.http) as client:
        page = client.fetch("/examples")
    if MARK not in page:
        raise Refused(f"{server.http.url} does not have the examples: it is not a kwire server, or an older one")


def add_temporary(parser: argparse.ArgumentParser) -> None:
    """Declare the option that `example_server` reads beside those of the connection."""
    parser.add_argument(
        "--temporary", action="store_true", help="use a server of this example's own, which is deleted at the end"
    )


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), CONNECT_SECONDS_MAX).close()
    except OSError:
        return False
    return True


def _started(process: subprocess.Popen[str], log: Path) -> ExampleServer:
    assert process.stdout is not None
    words = next((line.split() for line in process.stdout if line.startswith(READY)), [])
    addresses = dict(word.split("=", 1) for word in words if "=" in word)
    if not {"kafka", "http"} <= addresses.keys():
        raise OSError(f"the temporary server did not start: {log.read_text().strip()}")
    return ExampleServer(HttpSettings(f"http://{addresses['http']}"), addresses["kafka"], process)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that the temporary server and its files do not stay."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
