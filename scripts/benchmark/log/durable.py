"""Durable: the same produce loads with both promises, that is with and without a sync before the acknowledgement.

There is one server of each product. The promise is a topic setting. The servers take turns. The first round is a
warm-up of half the size, which is not counted.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from benchmark.admin import Admin
from benchmark.log.options import DURABLE
from benchmark.log.promises import PAGE_CACHE, PROMISES, SYNCED, Promise
from benchmark.log.stage import LogWork, Stage
from benchmark.options import GIGABYTE, WARM_UP_SHARE
from benchmark.samples import WARM_UP_ROUND, Sample, observe
from benchmark.servers import RunningServer
from benchmark.works import BULK_PRODUCER, KIBIBYTE, PARTITIONS, Outcome, RequestLoad

PRODUCE = f"{DURABLE} produce"
CONNECTIONS = (8, 64)
# The figures by which a synced load is compared with the same load in the page cache. Each load has one of them.
RATES = ("records_per_s", "requests_per_s")


def requests_with(connections: int) -> str:
    return f"{DURABLE} requests {connections}"


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    with ExitStack() as stack:
        servers = [stack.enter_context(stage.server(name, {})) for name in names]
        for number, share in ((WARM_UP_ROUND, WARM_UP_SHARE), (round_number, 1.0)):
            rates: dict[tuple[str, str], float] = {}
            for promise in PROMISES:
                yield from _under(promise, stage, servers, number, share, rates)


def _under(
    promise: Promise,
    stage: Stage,
    servers: list[RunningServer],
    round_number: int,
    share: float,
    rates: dict[tuple[str, str], float],
) -> Iterator[Sample]:
    for server in servers:
        load = _Load(promise, stage, server, round_number, share)
        load.make_topics()
        samples = [observe(server, round_number, promise.of(PRODUCE), load.produce)]
        for connections in CONNECTIONS:
            work = promise.of(requests_with(connections))
            samples.append(observe(server, round_number, work, partial(load.request, connections)))
        for sample in samples:
            _relate(sample, rates)
            yield sample


def _relate(sample: Sample, rates: dict[tuple[str, str], float]) -> None:
    """Add the ratio of the rate to that of the same server, load and round in the page cache."""
    rate = next(sample.figures[name] for name in RATES if name in sample.figures)
    rates[sample.server, sample.work] = rate
    unsynced = rates.get((sample.server, sample.work.replace(SYNCED.name, PAGE_CACHE.name)))
    if unsynced:
        sample.figures["of_page_cache"] = rate / unsynced


class _Load:
    def __init__(self, promise: Promise, stage: Stage, server: RunningServer, round_number: int, share: float) -> None:
        self._stage = stage
        self._server = server
        self._share = share
        self._configs = promise.configs[server.product.name]
        self._bulk = f"{promise.name}-{round_number}-bulk"
        self._requests = f"{promise.name}-{round_number}-requests"

    def make_topics(self) -> None:
        with Admin(self._server.address) as admin:
            admin.make_topic(self._bulk, PARTITIONS, self._configs)
            admin.make_topic(self._requests, 1, self._configs)

    def produce(self) -> Outcome:
        records = int(self._stage.options.sizes.produced_records * self._share)
        figures = self._stage.tools.produce(self._server, self._bulk, records, KIBIBYTE, BULK_PRODUCER)
        return Outcome(figures, gigabytes=records * KIBIBYTE / GIGABYTE)

    def request(self, connections: int) -> Outcome:
        seconds = self._stage.options.sizes.request_seconds * self._share
        return RequestLoad(self._requests, connections, self._stage.options.generators, seconds).run(self._server)


WORK = LogWork(DURABLE, 300, run, takes_turns=True)
