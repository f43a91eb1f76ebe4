"""Starts the servers of this family, with a topic and without rebalance delays, and runs the request program."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from benchmark import family
from benchmark.admin import Admin
from benchmark.groups.crowd import await_coordinator
from benchmark.groups.options import Options
from benchmark.histogram import Latencies
from benchmark.loadgen import Load
from benchmark.processes import own_program
from benchmark.servers import RunningServer
from benchmark.tools import Tools
from benchmark.works import Outcome

# In both protocols, a rebalance does not wait for further members.
SETTINGS: dict[str, object] = {"group.initial.rebalance.delay.ms": 0, "group.consumer.assignment.interval.ms": 0}
TOPIC = "read-by-groups"
OFFSETS_TOPIC = "__consumer_offsets"
GRACE_SECONDS = 180.0

Stage = family.Stage[Options, Tools]
GroupWork = family.StagedWork[Options, Tools]


@contextmanager
def servers(stage: Stage, names: Sequence[str], partition_count: int) -> Iterator[list[RunningServer]]:
    """Start servers with a topic and a group coordinator."""
    with ExitStack() as stack:
        started = [stack.enter_context(stage.server(name, SETTINGS)) for name in names]
        for server in started:
            with Admin(server.address) as admin:
                admin.make_topic(TOPIC, partition_count, {})
            await_coordinator(server.address, TOPIC)
        yield started


def request_load(server: RunningServer, request: str, prefix: str, connections: int, seconds: float) -> Outcome:
    """Send `request` as fast as the server answers."""
    program = own_program(
        "groups.request_program",
        port=server.address[1],
        request=request,
        topic=TOPIC,
        prefix=prefix,
        connections=connections,
        seconds=seconds,
    )
    with program as generator:
        load = Load(**json.loads(generator.finish(seconds + GRACE_SECONDS)))
    figures = Latencies.decode(load.latencies).figures()
    figures["requests_per_s"] = load.requests / load.seconds
    figures["generator_busy_share"] = load.own_cpu_seconds / load.seconds
    return Outcome(figures, requests=load.requests, histograms={"request": load.latencies})
