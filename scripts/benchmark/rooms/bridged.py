"""The second table of a run with `--bridge`: a bridge beside the server with logs of its own, and the verdict."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmark import report
from benchmark.bridge.servers import BRIDGE
from benchmark.bridge.stock_client import PRODUCE
from benchmark.measures import Measure
from benchmark.rooms import broadcasts
from benchmark.rooms.measures import BARRED_SUBSCRIBERS, measures
from benchmark.rooms.options import Options
from benchmark.samples import WARM_UP_ROUND, Sample
from benchmark.servers import KWIRE

TITLES = ("kwire", "kwire")
EMBEDDED_TIMES = 2.0


def tables(given: Options, samples: Sequence[Sample]) -> Iterator[str]:
    """Yield the table, and the verdict if the works that it needs have run."""
    bridged = {sample.work for sample in samples if sample.server == BRIDGE}
    # The bars are for a server with logs of its own.
    compared = [replace(one, bar=None) for one in measures(given) if one.work in bridged and not one.beside_work]
    stock = (
        Measure("produce by a stock client, one at a time, p50", "us", PRODUCE, "p50_us"),
        Measure("- p99", "us", PRODUCE, "p99_us"),
    )
    rows = report.rows(samples, [*compared, *stock], beside=KWIRE, own=BRIDGE)
    yield ""
    yield report.table(rows, TITLES, own=BRIDGE)
    line = verdict(samples)
    if line is not None:
        yield f"\n{line}"


def verdict(samples: Sequence[Sample]) -> str | None:
    """Return whether a delivery through the bridge takes at most twice as long as embedded, plus a produce."""
    work = broadcasts.name_of(BARRED_SUBSCRIBERS)
    bridged, embedded = _median(samples, BRIDGE, work), _median(samples, KWIRE, work)
    produce = _median(samples, BRIDGE, PRODUCE)
    if bridged is None or embedded is None or produce is None:
        return None
    limit = EMBEDDED_TIMES * embedded + produce
    figures = f"{bridged:,.0f} us; {EMBEDDED_TIMES:g} x {embedded:,.0f} us embedded + {produce:,.0f} us to produce"
    holds = "holds" if bridged <= limit else "does not hold"
    return f"delivery to {BARRED_SUBSCRIBERS} subscribers through the bridge, p50: {figures} = {limit:,.0f} us: {holds}"


def _median(samples: Sequence[Sample], server: str, work: str) -> float | None:
    found = [
        sample.figures["p50_us"]
        for sample in samples
        if (sample.server, sample.work) == (server, work) and sample.round != WARM_UP_ROUND and not sample.error
    ]
    return statistics.median(found) if found else None
