"""Batch reads with Spark's Kafka source, `format("kafka")`: the same complete topic, on each server.

Both servers are filled before the first read. Each read has a new Spark process, which uses all cores, and which first
reads a smaller topic of the same server as a warm-up.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from benchmark import page_cache
from benchmark.options import GIGABYTE
from benchmark.pipeline.options import READ
from benchmark.pipeline.stage import PARTITIONS, SETTINGS, PipelineWork, Stage, told
from benchmark.processes import ChildFailed
from benchmark.samples import Sample, observe
from benchmark.servers import RunningServer
from benchmark.works import BULK_PRODUCER, KIBIBYTE, Outcome

TOPIC, WARM_UP = "read", "warm-up"
WARM_UP_SHARE = 0.1
SECONDS_PER_GB_MAX = 120.0


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    with ExitStack() as stack:
        servers = [stack.enter_context(stage.server(name, SETTINGS[name])) for name in names]
        for server in servers:
            _fill(stage, server)
        for server in servers:
            yield observe(server, round_number, READ, partial(_read, stage, server))


def _records(stage: Stage) -> int:
    return int(stage.options.sizes.read_gb * GIGABYTE / KIBIBYTE)


def _fill(stage: Stage, server: RunningServer) -> None:
    records = _records(stage)
    for topic, count in ((WARM_UP, max(1, int(records * WARM_UP_SHARE))), (TOPIC, records)):
        stage.tools.create_topic(server, topic, PARTITIONS)
        stage.tools.produce(server, topic, count, KIBIBYTE, BULK_PRODUCER)


def _read(stage: Stage, server: RunningServer) -> Outcome:
    records = _records(stage)
    resident = page_cache.resident_share(server.directory)
    figures = told(
        "read_program",
        stage.options.sizes.read_gb * SECONDS_PER_GB_MAX,
        bootstrap=server.bootstrap,
        topic=TOPIC,
        warm_up=WARM_UP,
        server_pid=server.pid,
    )
    if figures["rows"] != records or figures["bytes"] != records * KIBIBYTE:
        raise ChildFailed(f"Spark read {figures['rows']:.0f} of {records} records from {server.product.title}")
    if resident is not None:
        figures["resident_share_before"] = resident
    return Outcome(figures)


WORK = PipelineWork(READ, 240, run, takes_turns=True)
