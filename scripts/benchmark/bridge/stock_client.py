"""Measures a stock client on the cluster of a bridge; see `produce_program`."""

import json
from typing import Any

from benchmark.bridge.servers import BRIDGE
from benchmark.processes import ChildFailed, own_program
from benchmark.samples import Sample

PRODUCE = "produce by a stock client"
GRACE_SECONDS = 60.0
RECORDS_MAX = 1_000_000


def produce_latency(bootstrap: str, round_number: int, records: int, seconds: float) -> Sample:
    """Produce records one at a time, and return the latency."""
    found = _run(bootstrap, f"stock-{round_number}", records, seconds)
    return Sample(BRIDGE, round_number, PRODUCE, found["figures"], {"latency": found["latency"]})


def warm_up(bootstrap: str, seconds: float) -> None:
    """Produce for some seconds: the Java virtual machines of a new cluster need it."""
    _run(bootstrap, "warm-up", RECORDS_MAX, seconds)


def _run(bootstrap: str, topic: str, records: int, seconds: float) -> dict[str, Any]:
    program = "bridge.produce_program"
    with own_program(program, bootstrap=bootstrap, topic=topic, records=records, seconds=seconds) as child:
        printed = child.finish(seconds + GRACE_SECONDS)
    try:
        found: dict[str, Any] = json.loads(printed)
    except ValueError:
        raise ChildFailed(f"{program} printed no result:\n{printed}") from None
    return found
