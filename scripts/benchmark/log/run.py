"""The works of this family, and the function that runs them and prints the table."""

from collections.abc import Sequence

from benchmark.family import APACHE_KAFKA, run_family
from benchmark.log import compaction, durable, many_topics, recovery, sync_round, upkeep
from benchmark.log.measures import measures
from benchmark.log.options import parse
from benchmark.samples import Sample

WORKS = (sync_round.WORK, durable.WORK, upkeep.WORK, compaction.WORK, many_topics.WORK, recovery.WORK)


def run_log_works(arguments: Sequence[str]) -> list[Sample]:
    given = parse(arguments)
    return run_family(given, WORKS, measures(given), APACHE_KAFKA)
