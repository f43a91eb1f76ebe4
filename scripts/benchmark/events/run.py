"""The works of this family, and the function that runs them and prints the table."""

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
    except ChildFailed as error:  # A build failed. (A failed work becomes a sample with an error.)
        sys.exit(f"scripts/bench events: {error}")
