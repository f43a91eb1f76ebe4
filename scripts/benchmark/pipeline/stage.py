"""The types and settings of this family's works, and the function that runs a Spark program."""

import json

from benchmark import family
from benchmark.pipeline.options import Options
from benchmark.processes import ChildFailed, own_program
from benchmark.tools import Tools

# Both servers have the same durability: an acknowledged record is in the page cache. This is Kafka's default.
SETTINGS = {"kafka": {}, "kwire": {"kwire.log.sync": "os"}}
PARTITIONS = 6
# The maximum time for Spark's start and the warm-up. The measured work has its own limit in addition.
START_SECONDS_MAX = 300.0

Stage = family.Stage[Options, Tools]
PipelineWork = family.StagedWork[Options, Tools]


def told(program: str, seconds_max: float, **options: object) -> dict[str, float]:
    """Run a program, and return the figures from its last line of output. Spark may print other lines before it."""
    with own_program(f"pipeline.{program}", **options) as child:
        output = child.finish(START_SECONDS_MAX + seconds_max)
    try:
        figures: dict[str, float] = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise ChildFailed(f"{program} printed no result:\n{output}") from None
    return figures
