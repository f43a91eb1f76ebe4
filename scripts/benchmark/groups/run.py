"""The works of this family, and the function that runs them and prints the table."""

from collections.abc import Sequence

from benchmark.family import APACHE_KAFKA, run_family
from benchmark.groups import commits, heartbeats, many_groups, rebalance
from benchmark.groups.measures import measures
from benchmark.groups.options import parse
from benchmark.samples import Sample

WORKS = (rebalance.WORK, commits.WORK, heartbeats.WORK, many_groups.WORK)


def run_group_works(arguments: Sequence[str]) -> list[Sample]:
    given = parse(arguments)
    return run_family(given, WORKS, measures(given), APACHE_KAFKA)
