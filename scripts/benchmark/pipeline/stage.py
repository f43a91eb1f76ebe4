"""What the works of this family are given, and what Spark's programs tell them."""

import json

from benchmark import family
from benchmark.pipeline.options import Options
from benchmark.processes import ChildFailed, own_program
from benchmark.tools import Tools

# Both make the same promise: an acknowledged record is in the page cache, which is Kafka's default.
SETTINGS = {"kafka": {}, "kwire": {"kwire.log.sync": "os"}}
PARTITIONS = 6
# Spark starts, and reads its warm-up, within this; a read has its own time besides.
START_SECONDS_MAX = 300.0

Stage = family.Stage[Options, Tools]
PipelineWork = family.StagedWork[Options, Tools]


def told(program: str, seconds_max: float, **options: object) -> dict[str, float]:
    """What a program of this family prints in its last line: Spark may have said something before."""
    with own_program(f"pipeline.{program}", **options) as child:
        output = child.finish(START_SECONDS_MAX + seconds_max)
    try:
        figures: dict[str, float] = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise ChildFailed(f"{program} printed no result:\n{output}") from None
    return figures
