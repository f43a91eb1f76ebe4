"""An hour in three rooms as a picture: a demo stream, counted by the analytics job, drawn from the room of its results.

.venv/bin/python docs/examples/room_activity/plot.py [activity.png] [--url URL --bootstrap HOST:PORT]

Without --url it starts a server of its own, and puts everything away in the end. It needs the extras `spark` and
`plots` (`scripts/install spark plots`) and Java 17.
"""

import argparse
import math
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import matplotlib as mpl
from matplotlib import dates
from matplotlib import pyplot as plt

from kwire.client import Client, ClientError, Event, NewEvent

ROOMS = {"lobby": 26, "match-17": 14, "support": 8}  # and how many people come to each of them
COLOURS = dict(zip(ROOMS, ("#3366cc", "#dc7f27", "#2f9e6f"), strict=True))
MINUTES = 60
EVENTS_PER_REQUEST = 500
PAGE_EVENTS = 1000
SERVER_STOP_S = 30
ANALYSIS = ("--window", "4m", "--slide", "1m", "--session-gap", "5m", "--lateness", "2m")


@contextmanager
def own_server(directory: str) -> Iterator[tuple[str, str]]:
    """Its HTTP address and its Kafka address."""
    command = [sys.executable, "-m", "kwire", "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with subprocess.Popen([*command, "--data-dir", directory], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            words = server.stdout.readline().split()
            if not words or words[0] != "ready":
                raise SystemExit("the server did not start")
            addresses = dict(word.split("=", 1) for word in words[1:])
            yield f"http://{addresses['http']}", addresses["kafka"]
        finally:
            server.terminate()
            server.wait(SERVER_STOP_S)


def demo_stream(began: datetime, chance: random.Random) -> dict[str, list[NewEvent]]:
    """What happened in each room: people come in waves, say things for a while, and go; some events come late."""
    happened: dict[str, list[tuple[datetime, NewEvent]]] = {room: [] for room in ROOMS}
    for number, (room, people) in enumerate(ROOMS.items()):
        for person in range(people * 3):
            user = f"{room}-{person % people}"
            wave = (0.5 + 0.45 * math.sin(number * 2.1 + person)) * MINUTES
            minute = min(max(wave + chance.gauss(0, 5), 0), MINUTES - 1)
            for turn in range(chance.randint(4, 24)):
                kind = "joined" if not turn else chance.choice(["message", "message", "message", "reaction"])
                moment = began + timedelta(minutes=minute)
                event = NewEvent(kind, {"user": user, "at": moment.isoformat()})
                happened[room].append((moment + timedelta(seconds=chance.choice([0, 0, 0, 20, 60])), event))
                minute += chance.expovariate(2.0)
                if minute >= MINUTES:
                    break
    return {room: [event for _, event in sorted(told, key=lambda one: one[0])] for room, told in happened.items()}


def publish(client: Client, prefix: str, stream: dict[str, list[NewEvent]]) -> int:
    for room, events in stream.items():
        for first in range(0, len(events), EVENTS_PER_REQUEST):
            client.stream.publish_many(prefix + room, events[first : first + EVENTS_PER_REQUEST])
    # A window is closed when time has moved on behind it: this event does that, it is of now.
    client.stream.publish(prefix + "lobby", "closed", {"user": "demo"})
    return sum(len(events) for events in stream.values())


def analyse(url: str, bootstrap: str, prefix: str, warehouse: str) -> None:
    command = [sys.executable, "-m", "kwire", "pipeline", "analytics", "--http", url, "--bootstrap", bootstrap]
    command += ["--pattern", f"{prefix}({'|'.join(ROOMS)})", "--time-field", "at", *ANALYSIS, "--once", "--to", "room"]
    command += ["--results-room", f"{prefix}activity", "--warehouse", warehouse]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit("the analysis failed; its reason is above")


def results(client: Client, room: str) -> list[Event]:
    info, found = client.rooms.get(room), list[Event]()
    while (next_offset := found[-1].offset + 1 if found else info.oldest_offset) <= info.newest_offset:
        found += client.stream.history(room, from_offset=next_offset, limit=PAGE_EVENTS).events
    return found


def draw(told: list[Event], prefix: str, began: datetime, path: Path) -> None:
    mpl.use("Agg")
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True})
    plt.rcParams.update({"grid.color": "#e5e5e5", "axes.axisbelow": True, "axes.titlelocation": "left"})
    figure, (above, middle, below) = plt.subplots(
        3, 1, figsize=(10, 9), sharex=True, height_ratios=(3, 2, 3), layout="constrained"
    )
    window_ends = [moment(event, "window_end") for event in told if event.type == "activity.top"]
    minutes = sorted(set(window_ends))
    events = by_room(told, "activity.counts", "events", prefix)
    stacks = [[events[room].get(minute, 0) for minute in minutes] for room in ROOMS]
    above.stackplot(minutes, stacks, labels=list(ROOMS), colors=[COLOURS[room] for room in ROOMS], alpha=0.85)
    above.set_title("Events in four minutes")
    above.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, ncols=len(ROOMS))
    users = by_room(told, "activity.users", "users", prefix)
    for room in ROOMS:
        middle.plot(minutes, [users[room].get(minute, 0) for minute in minutes], color=COLOURS[room], linewidth=2)
    middle.set_title("Users in four minutes")
    middle.set_ylim(bottom=0)
    sessions = sorted(
        (event for event in told if event.type == "activity.sessions"),
        key=lambda event: (list(ROOMS).index(event.data["room"].removeprefix(prefix)), event.data["session_start"]),
    )
    for height, session in enumerate(sessions):
        colour = COLOURS[session.data["room"].removeprefix(prefix)]
        ends = [moment(session, "session_start"), moment(session, "session_end")]
        below.plot(ends, [height, height], color=colour, linewidth=2, solid_capstyle="round")
    below.set_title(f"{len(sessions)} sessions, from the first event to the last")
    below.set_yticks([])
    below.set_xlabel("UTC")
    below.set_xlim(began, began + timedelta(minutes=MINUTES + 4))
    below.xaxis.set_major_formatter(dates.DateFormatter("%H:%M", tz=UTC))
    figure.savefig(path, dpi=120)


def by_room(told: list[Event], kind: str, number: str, prefix: str) -> dict[str, dict[datetime, int]]:
    """A result's number by room and end of window; counts of several event types add up."""
    found: dict[str, dict[datetime, int]] = {room: defaultdict(int) for room in ROOMS}
    for event in told:
        if event.type == kind:
            found[event.data["room"].removeprefix(prefix)][moment(event, "window_end")] += event.data[number]
    return found


def moment(event: Event, name: str) -> datetime:
    return datetime.fromisoformat(event.data[name])


def picture(url: str, bootstrap: str, directory: str, path: Path) -> None:
    prefix = f"demo-{time.time_ns()}-"
    began = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=2 * MINUTES)
    with Client(url) as client:
        count = publish(client, prefix, demo_stream(began, random.Random(17)))
        print(f"{count} events published in {len(ROOMS)} rooms")
        analyse(url, bootstrap, prefix, directory)
        told = results(client, f"{prefix}activity")
    draw(told, prefix, began, path)
    print(f"{len(told)} results drawn in {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", type=Path, default=Path("activity.png"))
    parser.add_argument("--url", help="the HTTP port of a server that runs")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="its Kafka port")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kwire-demo-") as directory:
        try:
            if options.url:
                picture(options.url, options.bootstrap, f"{directory}/lake", options.path)
                return
            with own_server(f"{directory}/data") as (url, bootstrap):
                picture(url, bootstrap, f"{directory}/lake", options.path)
        except ClientError as error:
            raise SystemExit(f"is a server running? {error}") from None


if __name__ == "__main__":
    main()
