"""Recovery: a server is killed after a large log was written. Measures the time until all records can be read again.

The page cache survives the kill, so the recovery mostly reads from memory. Dirty pages are written back before the
start, so that the recovery does not compete with this.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmark import procfs
from benchmark.admin import Admin, await_served
from benchmark.log.options import RECOVERY
from benchmark.log.stage import LogWork, Stage, crash
from benchmark.options import GIGABYTE
from benchmark.samples import Sample, anonymous_mb
from benchmark.servers import RunningServer
from benchmark.works import BULK_PRODUCER, KIBIBYTE, PARTITIONS

TOPIC = "recovered"
START_TIMEOUT_SECONDS = 600


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    for name in names:
        with stage.server(name, {}, START_TIMEOUT_SECONDS) as server:
            yield Sample(name, round_number, RECOVERY, _recover(stage, server))


def _recover(stage: Stage, server: RunningServer) -> dict[str, float]:
    records = int(stage.options.sizes.log_gb * GIGABYTE / KIBIBYTE)
    with Admin(server.address) as admin:
        admin.make_topic(TOPIC, PARTITIONS, {})
    filled = stage.tools.produce(server, TOPIC, records, KIBIBYTE, BULK_PRODUCER)
    with Admin(server.address) as admin:
        ends = admin.offsets(TOPIC, PARTITIONS)
    crash(server)
    os.sync()
    with ThreadPoolExecutor(1) as watcher:
        served = watcher.submit(await_served, server.address, TOPIC, ends, START_TIMEOUT_SECONDS)
        server.start()
        served_at = served.result(timeout=START_TIMEOUT_SECONDS)
    figures = {
        "fill_mb_per_s": filled["mb_per_s"],
        "port_ms": server.start_up.port_seconds * 1000,
        "served_ms": (served_at - server.started) * 1000,
        "cpu_s": procfs.cpu_seconds(server.pid),
        "memory_mb": anonymous_mb(server),
    }
    if server.start_up.ready_seconds is not None:
        figures["ready_ms"] = server.start_up.ready_seconds * 1000
    with Admin(server.address) as admin:
        figures["lost_records"] = records - sum(admin.offsets(TOPIC, PARTITIONS))
    return figures


WORK = LogWork(RECOVERY, 500, run)
