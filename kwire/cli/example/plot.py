"""kwire example plot: a demo stream, counted by the analytics job, and drawn from the room with the results."""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

from kwire.cli.connection.options import add_connection_options
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
    parser.epilog = (
        "Needs Java 17 and the extras `spark` and `plots`. If no server is named, a temporary one is used. Spark jobs "
        "connect without TLS and without a login."
    )
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
        if server.http.login is not None or server.http.url.startswith("https:"):
            raise UsageError("Spark jobs connect without TLS and without a login: use --temporary")
        check_examples(server)
        try:
            make_picture(server, f"{directory}/lake", options.path)
        except ClientError as error:
            raise CannotRun(f"{server.http.url}: {error}") from None


def make_picture(server: ExampleServer, warehouse: str, path: Path) -> None:
    # Imported here, because it is an extra and takes seconds.
    from kwire.cli.example.activity_picture import draw

    prefix = f"demo-{time.time_ns()}-"
    began = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=2 * MINUTES)
    with Client(server.http.url) as client:
        count = publish(client, prefix, demo_stream(began, random.Random(SEED)))
        print(f"{count} events published in {len(ROOMS)} rooms", flush=True)
        analyse(server, prefix, warehouse)
        results = read_results(client, f"{prefix}activity")
    draw(results, prefix, began, path)
    print(f"{len(results)} results drawn in {path}", flush=True)


def publish(client: Client, prefix: str, stream: dict[str, list[NewEvent]]) -> int:
    for room, events in stream.items():
        for first in range(0, len(events), EVENTS_PER_REQUEST):
            client.stream.publish_many(prefix + room, events[first : first + EVENTS_PER_REQUEST])
    # A window is closed by an event after its end: this one has the time of now.
    client.stream.publish(prefix + "lobby", "closed", {"user": "demo"})
    return sum(len(events) for events in stream.values())


def analyse(server: ExampleServer, prefix: str, warehouse: str) -> None:
    command = [sys.executable, "-m", "kwire", "pipeline", "analytics", "--http", server.http.url]
    command += ["--bootstrap", server.bootstrap]
    command += ["--pattern", f"{prefix}({'|'.join(ROOMS)})", "--time-field", "at", *ANALYSIS, "--once", "--to", "room"]
    command += ["--results-room", f"{prefix}activity", "--warehouse", warehouse]
    if subprocess.run(command, check=False).returncode:
        raise CannotRun("the analysis failed; its reason is above")


def read_results(client: Client, room: str) -> list[Event]:
    info, found = client.rooms.get(room), list[Event]()
    while (next_offset := found[-1].offset + 1 if found else info.oldest_offset) <= info.newest_offset:
        found += client.stream.history(room, from_offset=next_offset, limit=PAGE_EVENTS).events
    return found
