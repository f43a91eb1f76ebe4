"""kwire example plot: a demo stream, counted by the analytics job, and drawn from the room with the results."""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

from kwire.cli.connection.options import add_connection_options
from kwire.cli.connection.profiles import CONFIG_VARIABLE
from kwire.cli.connection.settings import PASSWORD_VARIABLE, USER_VARIABLE
from kwire.cli.example.demo_stream import MINUTES, ROOMS, demo_stream
from kwire.cli.example.server import ExampleServer, add_temporary, check_examples, example_server
from kwire.cli.framework.errors import CannotRun, UsageError
from kwire.cli.framework.parser import CommandParser
from kwire.client import Client, ClientError, Event, NewEvent

EVENTS_PER_REQUEST = 500
PAGE_EVENTS = 1000
SEED = 17
ANALYSIS = ("--window", "4m", "--slide", "1m", "--session-gap", "5m", "--lateness", "2m")


def add(parser: CommandParser) -> None:
    parser.add_argument(
        "path",
        metavar="FILE",
        nargs="?",
        type=Path,
        default=Path("activity.png"),
        help="the picture (default activity.png)",
    )
    add_temporary(parser)
    add_connection_options(parser)
    parser.epilog = "Needs Java 17 and the extras `spark` and `plots`. If no server is named, a temporary one is used."
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    missing = [name for name, module in (("spark", "pyspark"), ("plots", "matplotlib")) if find_spec(module) is None]
    if missing:
        raise CannotRun(f"this example needs the extras of kwire: pip install 'kwire[{','.join(missing)}]'")
    if not options.path.parent.is_dir():
        raise UsageError(f"{options.path}: the folder {options.path.parent} does not exist")
    with (
        tempfile.TemporaryDirectory(prefix="kwire-example-") as directory,
        example_server(options, prefers_temporary=True) as server,
    ):
        check_examples(server)
        try:
            make_picture(server, options, f"{directory}/lake")
        except ClientError as error:
            raise CannotRun(f"{server.http.url}: {error}") from None


def make_picture(server: ExampleServer, options: argparse.Namespace, warehouse: str) -> None:
    # Imported here, because it is an extra and takes seconds.
    from kwire.cli.example.activity_picture import draw

    prefix = f"demo-{time.time_ns()}-"
    began = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=2 * MINUTES)
    user, password = server.http.login or (None, "")
    with Client(server.http.url, user=user, password=password, ssl_context=server.http.tls) as client:
        count = publish(client, prefix, demo_stream(began, random.Random(SEED)))
        print(f"{count} events published in {len(ROOMS)} rooms", flush=True)
        analyse(server, options, prefix, warehouse)
        results = read_results(client, f"{prefix}activity")
    draw(results, prefix, began, options.path)
    print(f"{len(results)} results drawn in {options.path}", flush=True)


def publish(client: Client, prefix: str, stream: dict[str, list[NewEvent]]) -> int:
    for room, events in stream.items():
        for first in range(0, len(events), EVENTS_PER_REQUEST):
            client.stream.publish_many(prefix + room, events[first : first + EVENTS_PER_REQUEST])
    # A window is closed by an event after its end: this one has the time of now.
    client.stream.publish(prefix + "lobby", "closed", {"user": "demo"})
    return sum(len(events) for events in stream.values())


def analyse(server: ExampleServer, options: argparse.Namespace, prefix: str, warehouse: str) -> None:
    command = [sys.executable, "-m", "kwire", "pipeline", "analytics", "--http", server.http.url]
    command += ["--bootstrap", server.bootstrap]
    command += ["--pattern", f"{prefix}({'|'.join(ROOMS)})", "--time-field", "at", *ANALYSIS, "--once", "--to", "room"]
    command += ["--results-room", f"{prefix}activity", "--warehouse", warehouse]
    environment = dict(os.environ)
    if server.process is not None:
        # The logins of the environment and of profiles are for other servers.
        environment = {name: value for name, value in environment.items() if not name.startswith("KWIRE_")}
        environment[CONFIG_VARIABLE] = os.devnull
    else:
        for name in ("profile", "command_config", "cacert"):
            if value := getattr(options, name):
                command += [f"--{name.replace('_', '-')}", str(value)]
        if login := server.http.login:
            # The password may have been asked for.
            command += ["--user", login.user]
            environment |= {USER_VARIABLE: login.user, PASSWORD_VARIABLE: login.password}
    if subprocess.run(command, env=environment, check=False).returncode:
        raise CannotRun("the analysis failed; its reason is above")


def read_results(client: Client, room: str) -> list[Event]:
    info, found = client.rooms.get(room), list[Event]()
    while (next_offset := found[-1].offset + 1 if found else info.oldest_offset) <= info.newest_offset:
        found += client.stream.history(room, from_offset=next_offset, limit=PAGE_EVENTS).events
    return found
