"""Whether the files of a topic are all there, each in its place and in order."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from kwire.broker.store.files.layout import DATA, NotAnEventFile, config_path, parse_config
from kwire.broker.store.files.reading import Problem, events_in
from storage.files import Files

PROBLEMS_KEPT_MAX = 100


@dataclass(slots=True)
class Tally:
    """What was found of one topic. `first` and `last` are the numbers of its events, 0 if there is none."""

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


def counted_events(files: Files, root: str, topic: str) -> int:
    """How many events its description says there are; 0 if there is none."""
    try:
        return parse_config(topic, files.read_file(os.path.join(root, config_path(topic))) or b"")[0]
    except NotAnEventFile:
        return 0


def check_topic(files: Files, root: str, topic: str, on_event: Callable[[], None] = lambda: None) -> Tally:
    """`on_event` is called for each one."""
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
        tally.add(Problem(config_path(topic), "it is missing" if raw is None else str(error)))
    else:
        if sequence != tally.last:
            tally.add(Problem(config_path(topic), f"it counts {sequence} events, the last one has number {tally.last}"))
    return tally
