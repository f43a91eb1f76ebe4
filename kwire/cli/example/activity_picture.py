"""The picture of room activity: events, users and sessions in the windows of the analytics job."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import matplotlib as mpl
from matplotlib import dates
from matplotlib import pyplot as plt

from kwire.cli.example.demo_stream import MINUTES, ROOMS
from kwire.client import Event

COLOURS = dict(zip(ROOMS, ("#3366cc", "#dc7f27", "#2f9e6f"), strict=True))


def draw(results: list[Event], prefix: str, began: datetime, path: Path) -> None:
    """Write the picture as PNG. The names of the rooms begin with `prefix`."""
    mpl.use("Agg")
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True})
    plt.rcParams.update({"grid.color": "#e5e5e5", "axes.axisbelow": True, "axes.titlelocation": "left"})
    figure, (above, middle, below) = plt.subplots(
        3, 1, figsize=(10, 9), sharex=True, height_ratios=(3, 2, 3), layout="constrained"
    )
    window_ends = [moment(event, "window_end") for event in results if event.type == "activity.top"]
    minutes = sorted(set(window_ends))
    events = by_room(results, "activity.counts", "events", prefix)
    stacks = [[events[room].get(minute, 0) for minute in minutes] for room in ROOMS]
    above.stackplot(minutes, stacks, labels=list(ROOMS), colors=[COLOURS[room] for room in ROOMS], alpha=0.85)
    above.set_title("Events in four minutes")
    above.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, ncols=len(ROOMS))
    users = by_room(results, "activity.users", "users", prefix)
    for room in ROOMS:
        middle.plot(minutes, [users[room].get(minute, 0) for minute in minutes], color=COLOURS[room], linewidth=2)
    middle.set_title("Users in four minutes")
    middle.set_ylim(bottom=0)
    sessions = sorted(
        (event for event in results if event.type == "activity.sessions"),
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


def by_room(results: list[Event], kind: str, number: str, prefix: str) -> dict[str, dict[datetime, int]]:
    """Return a number of the results, by room and end of window. Counts of several event types are added."""
    found: dict[str, dict[datetime, int]] = {room: defaultdict(int) for room in ROOMS}
    for event in results:
        if event.type == kind:
            found[event.data["room"].removeprefix(prefix)][moment(event, "window_end")] += event.data[number]
    return found


def moment(event: Event, name: str) -> datetime:
    return datetime.fromisoformat(event.data[name])
