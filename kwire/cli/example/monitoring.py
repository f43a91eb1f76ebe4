"""kwire example monitoring: publish the load of this machine to a room. A page of the server draws it."""

import argparse
import os
import platform
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from kwire.cli.connection.errors import Unreachable
from kwire.cli.connection.http_client import HttpClient
from kwire.cli.connection.subscriptions import positive_count
from kwire.cli.example.pages import add_page_options, show_page
from kwire.cli.example.server import example_server
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.runner import print_error

INTERVAL_SECONDS = 1.0
INTERVAL_SECONDS_MIN = 0.1
# A load above this number of processes per core is reported as high.
LOAD_HIGH_PER_CORE = 2.0


def add(parser: CommandParser) -> None:
    parser.add_argument("--name", default=platform.node(), help="the name of this machine (default: its host name)")
    parser.add_argument("--count", type=positive_count, metavar="N", help="end after N reports")
    parser.add_argument(
        "--every",
        type=_interval,
        default=INTERVAL_SECONDS,
        metavar="SECONDS",
        help=f"the time between two reports (default {INTERVAL_SECONDS:g})",
    )
    add_page_options(parser, "monitoring")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    with example_server(options) as server, suppress(KeyboardInterrupt):
        show_page("monitoring", server, options)
        print(f"{options.name} reports to the room {options.room}, until Ctrl-C", flush=True)
        with HttpClient(server.http) as client:
            report(client, options)


def report(client: HttpClient, options: argparse.Namespace) -> None:
    path = f"/rooms/{quote(options.room, safe='')}/events"
    # The first report has the average since the machine was started.
    sent, times = 0, CpuTimes(0, 0)
    while options.count is None or sent < options.count:
        before, times = times, cpu_times()
        load = os.getloadavg()[0]
        is_high = load > LOAD_HIGH_PER_CORE * (os.cpu_count() or 1)
        facts = {
            "host": options.name,
            "load": round(load, 2),
            "cpu": round(times.share_since(before), 3),
            **memory(),
        }
        try:
            client.request("POST", path, {"event_type": "load.high" if is_high else "load", "data": facts})
        except Unreachable as error:
            # The next report has the values that matter then, so this one is not sent again.
            print_error(f"not reported: {error}")
            client.close()
        sent += 1
        if sent != options.count:
            time.sleep(options.every)


class CpuTimes(NamedTuple):
    """The time that all cores were busy and the whole time, since the machine was started, in clock ticks."""

    busy: int
    whole: int

    def share_since(self, before: "CpuTimes") -> float:
        return (self.busy - before.busy) / max(1, self.whole - before.whole)


def cpu_times() -> CpuTimes:
    # user nice system idle iowait irq softirq steal; the rest is part of user and nice.
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return CpuTimes(sum(ticks) - idle, sum(ticks))


def memory() -> dict[str, int]:
    """Return the memory of the machine, and the part of it that programs can still get."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kibibytes = {words[0].rstrip(":"): int(words[1]) for words in lines}
    return {"free_bytes": kibibytes["MemAvailable"] * 1024, "total_bytes": kibibytes["MemTotal"] * 1024}


def _interval(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not INTERVAL_SECONDS_MIN <= value < sys.maxsize:
        raise argparse.ArgumentTypeError(f"expected seconds, at least {INTERVAL_SECONDS_MIN:g}, got {text!r}")
    return value
