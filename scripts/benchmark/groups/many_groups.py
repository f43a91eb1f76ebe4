"""Measures the CPU time and the latency of the heartbeats of a thousand stable groups with ten members.

Every member has its own connection. Each protocol is measured on a new server. On the same server, the sessions of the
previous members would still have to expire.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial

from benchmark.groups.many_program import Beats
from benchmark.groups.options import MANY_GROUPS, PROTOCOLS, Sizes
from benchmark.groups.stage import GRACE_SECONDS, TOPIC, GroupWork, Stage, servers
from benchmark.histogram import Latencies
from benchmark.processes import own_program
from benchmark.samples import Sample, anonymous_mb, observe
from benchmark.servers import RunningServer
from benchmark.works import Outcome

INTERVAL_SECONDS = 3.0  # The default of classic consumers.


def name_of(protocol: str) -> str:
    return f"{MANY_GROUPS}, {protocol}"


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    sizes = stage.options.sizes
    for protocol in PROTOCOLS:
        for name in names:
            with servers(stage, [name], sizes.members) as (server,):
                empty_mb = anonymous_mb(server)
                sample = observe(server, round_number, name_of(protocol), partial(_beat, server, protocol, sizes))
                sample.figures["empty_mb"] = empty_mb
                yield sample


def _beat(server: RunningServer, protocol: str, sizes: Sizes) -> Outcome:
    program = own_program(
        "groups.many_program",
        port=server.address[1],
        server_pid=server.pid,
        metrics_url=server.metrics_url or "",
        protocol=protocol,
        topic=TOPIC,
        prefix=protocol,
        groups=sizes.groups,
        members=sizes.members,
        interval=INTERVAL_SECONDS,
        seconds=sizes.heartbeat_seconds,
    )
    with program as members:
        beats = Beats(**json.loads(members.finish(sizes.heartbeat_seconds + sizes.groups + GRACE_SECONDS)))
    figures = Latencies.decode(beats.latencies).figures()
    figures["heartbeats_per_s"] = beats.heartbeats / beats.seconds
    figures["cpu_share"] = beats.server_cpu_seconds / beats.seconds
    figures["cpu_us_per_heartbeat"] = beats.server_cpu_seconds / max(1, beats.heartbeats) * 1e6
    figures["gathering_s"] = beats.gathering_seconds
    figures["rejoins"] = beats.rejoins
    if beats.stalls is not None:
        figures["rest_stalls"] = beats.stalls
    figures["generator_busy_share"] = beats.own_cpu_seconds / beats.seconds
    return Outcome(figures, histograms={"heartbeat": beats.latencies})


WORK = GroupWork(MANY_GROUPS, 260, run)
