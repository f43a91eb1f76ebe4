"""Verification of a topic's event files: no event is missing, and each file contains the event that its path names."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from kwire.streams.event_store.files.layout import DATA, NotAnEventFile, config_path, parse_config
from kwire.streams.event_store.files.reader import Problem, events_in
from storage.disk.files import Files

PROBLEMS_KEPT_MAX = 100


@dataclass(slots=True)
class Tally:
    """The result of verifying one topic.

    `events` is the number of valid events. `first` and `last` are the first and the last event number, or 0 if there
    are no events. `problems` has the first PROBLEMS_KEPT_MAX problems.
    """

    topic: str
    events: int = 0
    first: int = 0
    last: int = 0
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_KEPT_MAX:
            self.problems.append(problem)


def configured_count(files: Files, root: str, topic: str) -> int:
    """Return the sequence that the topic's configuration file states; 0 if the file is missing or invalid."""
    try:
        return parse_config(topic, files.read_file(os.path.join(root, config_path(topic))) or b"")[0]
    except NotAnEventFile:
        return 0


def check_topic(files: Files, root: str, topic: str, on_event: Callable[[], None] = lambda: None) -> Tally:
    """Verify the files of a topic. `on_event` is called for each event."""
    tally = Tally(topic)
    for one in events_in(files, root, topic):
        if isinstance(one, Problem):
            tally.add(one)
            continue
        if tally.events and one.sequence != tally.last + 1:
            tally.add(Problem(f"{DATA}/{topic}", f"events {tally.last + 1} to {one.sequence - 1} are missing"))
        tally.first = tally.first or one.sequence
        tally.last = one.sequence
        tally.events += 1
        on_event()
    raw = files.read_file(os.path.join(root, config_path(topic)))
    try:
        sequence, _ = parse_config(topic, raw or b"")
    except NotAnEventFile as error:
        tally.add(Problem(config_path(topic), "the file is missing" if raw is None else str(error)))
    else:
        if sequence != tally.last:
            tally.add(Problem(config_path(topic), f"its sequence is {sequence}, but the last event is {tally.last}"))
    return tally
