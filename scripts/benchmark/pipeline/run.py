"""The works of this family, and the function that runs them and prints the table."""

import importlib.util
import sys
from collections.abc import Sequence

from benchmark.family import APACHE_KAFKA, run_family
from benchmark.pipeline import lake, reading
from benchmark.pipeline.measures import measures
from benchmark.pipeline.options import parse
from benchmark.samples import Sample

WORKS = (reading.WORK, lake.WORK, lake.LAG_WORK)


def run_pipeline_works(arguments: Sequence[str]) -> list[Sample]:
    given = parse(arguments)
    if importlib.util.find_spec("pyspark") is None:
        sys.exit("scripts/bench pipeline: there is no PySpark: scripts/install spark")
    return run_family(given, WORKS, measures(given), APACHE_KAFKA)
