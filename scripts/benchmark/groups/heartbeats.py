"""Heartbeats of the classic protocol, as fast as the server answers. They measure a request that writes nothing."""

from collections.abc import Iterator, Sequence
from functools import partial

from benchmark.groups.options import HEARTBEATS
from benchmark.groups.stage import GroupWork, Stage, request_load, servers
from benchmark.options import WARM_UP_SHARE
from benchmark.samples import WARM_UP_ROUND, Sample, observe

CONNECTIONS = 8


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    with servers(stage, names, 1) as started:
        for number, share in ((WARM_UP_ROUND, WARM_UP_SHARE), (round_number, 1.0)):
            for server in started:
                seconds = stage.options.sizes.request_seconds * share
                load = partial(request_load, server, "heartbeat", f"beating-{number}", CONNECTIONS, seconds)
                yield observe(server, number, HEARTBEATS, load)


WORK = GroupWork(HEARTBEATS, 50, run, takes_turns=True)
