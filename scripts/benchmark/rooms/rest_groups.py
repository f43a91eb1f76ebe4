"""Consumer groups over HTTP: commits and rebalances. NATS has nothing comparable, so only kwire is measured."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

from benchmark.rest_groups import measure_commits, measure_streamed_rebalances
from benchmark.rooms.options import GROUPS
from benchmark.rooms.stage import RoomWork, Stage
from benchmark.samples import WARM_UP_ROUND, Sample, observe
from benchmark.servers import KWIRE
from benchmark.works import Outcome

COMMITS, REBALANCES = f"{GROUPS} commits", f"{GROUPS} rebalances"
MEMBERS = 3
SYNCS = ("os", "group")


def name_of(work: str, sync: str) -> str:
    return f"{work}, {sync}"


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    sizes = stage.options.sizes
    for sync in SYNCS:
        with stage.server(KWIRE, {"kwire.log.sync": sync}) as server:
            assert server.http_port is not None
            for number in (WARM_UP_ROUND, round_number):
                commit = partial(_commit, server.http_port, sizes.commits, f"commits-{number}")
                yield observe(server, number, name_of(COMMITS, sync), commit)
            rebalance = partial(_rebalance, server.http_port, sizes.rebalances)
            yield observe(server, round_number, name_of(REBALANCES, sync), rebalance)


def _commit(port: int, count: int, group: str) -> Outcome:
    return Outcome(measure_commits(port, count, group), requests=count)


def _rebalance(port: int, count: int) -> Outcome:
    figures = asyncio.run(measure_streamed_rebalances(port, MEMBERS, count))
    return Outcome({name.replace("_us", "_ms"): value / 1000 for name, value in figures.items()}, requests=count)


WORK = RoomWork(GROUPS, 20, run, servers=(KWIRE,))
