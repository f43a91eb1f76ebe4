"""Offset commits, one at a time and eight at a time, with and without a sync of the offsets topic."""

from collections.abc import Iterator, Sequence
from functools import partial

from benchmark.admin import Admin
from benchmark.groups.options import COMMITS
from benchmark.groups.stage import OFFSETS_TOPIC, GroupWork, Stage, request_load, servers
from benchmark.log.promises import PROMISES, Promise
from benchmark.options import WARM_UP_SHARE
from benchmark.samples import WARM_UP_ROUND, Sample, observe
from benchmark.servers import KAFKA, RunningServer

CONNECTIONS = (1, 8)
# The topic exists, and its settings are changed for each promise in turn. So the default must also be set explicitly.
DEFAULTS = {KAFKA: {"flush.messages": 2**63 - 1}}


def name_of(connections: int, promise: Promise) -> str:
    return promise.of(f"{COMMITS} {connections}")


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    with servers(stage, names, 1) as started:
        for number, share in ((WARM_UP_ROUND, WARM_UP_SHARE), (round_number, 1.0)):
            for promise in PROMISES:
                for server in started:
                    _promise(server, promise)
                    for connections in CONNECTIONS:
                        work = name_of(connections, promise)
                        prefix = f"{promise.name}-{connections}-{number}"
                        seconds = stage.options.sizes.commit_seconds * share
                        load = partial(request_load, server, "commit", prefix, connections, seconds)
                        yield observe(server, number, work, load)


def _promise(server: RunningServer, promise: Promise) -> None:
    name = server.product.name
    configs = promise.configs[name] or DEFAULTS[name]
    with Admin(server.address) as admin:
        for key, value in configs.items():
            admin.set_topic_config(OFFSETS_TOPIC, key, value)


WORK = GroupWork(COMMITS, 160, run, takes_turns=True)
