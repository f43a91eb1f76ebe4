"""A run of this family: which works there are, and the table of what they found."""

import sys
from collections.abc import Sequence

from benchmark.events import files, producing, publishing, subscribing, webhooks
from benchmark.events.measures import measures
from benchmark.events.options import parse
from benchmark.events.stage import beside
from benchmark.family import run_family
from benchmark.processes import ChildFailed
from benchmark.samples import Sample

WORKS = (publishing.WORK, producing.WORK, webhooks.WORK, files.WORK, subscribing.WORK)


def run_event_works(arguments: Sequence[str]) -> list[Sample]:
    given = parse(arguments)
    try:
        return run_family(given, WORKS, measures(given), beside(given))
    except ChildFailed as error:  # Of a work it would be a sample: this is the building.
        sys.exit(f"scripts/bench events: {error}")
