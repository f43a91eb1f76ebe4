"""Rebalances of three members over six partitions, in both protocols.

Both servers have their default durability: kwire syncs the records of a rebalance, Kafka leaves them in the page cache.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial

from benchmark.groups.options import PROTOCOLS, REBALANCE
from benchmark.groups.rebalance_program import Rebalances
from benchmark.groups.stage import GRACE_SECONDS, TOPIC, GroupWork, Stage, servers
from benchmark.histogram import Latencies
from benchmark.processes import own_program
from benchmark.samples import WARM_UP_ROUND, Sample, observe
from benchmark.servers import RunningServer
from benchmark.works import PARTITIONS, Outcome


def name_of(protocol: str) -> str:
    return f"{REBALANCE}, {protocol}"


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    with servers(stage, names, PARTITIONS) as started:
        # The warm-up is as long as the measured round, because Java compiles little after only a hundred calls.
        for number in (WARM_UP_ROUND, round_number):
            for protocol in PROTOCOLS:
                for server in started:
                    rebalances = partial(_rebalance, server, protocol, stage.options.sizes.rebalances, number)
                    yield observe(server, number, name_of(protocol), rebalances)


def _rebalance(server: RunningServer, protocol: str, rebalances: int, round_number: int) -> Outcome:
    program = own_program(
        "groups.rebalance_program",
        port=server.address[1],
        protocol=protocol,
        topic=TOPIC,
        partitions=PARTITIONS,
        prefix=f"{protocol}-{round_number}",
        rebalances=rebalances,
    )
    with program as members:
        found = Rebalances(**json.loads(members.finish(rebalances + GRACE_SECONDS)))
    histograms = {"form": found.form, "join": found.join, "leave": found.leave}
    figures = {
        f"{name}_{figure.removesuffix('_us')}_ms": value / 1000
        for name, encoded in histograms.items()
        for figure, value in Latencies.decode(encoded).figures().items()
    }
    return Outcome(figures, requests=len(histograms) * rebalances, histograms=histograms)


WORK = GroupWork(REBALANCE, 60, run, takes_turns=True)
