"""Many topics: memory, start-up time, and the latency of a hundred busy (hot) topics among them.

The full number of topics is measured only for kwire, with its default promise (synced). Both servers are compared with
a number of topics that Apache Kafka can handle, and with acknowledged records in the page cache.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from benchmark import procfs
from benchmark.admin import Admin
from benchmark.loadgen import topic_name
from benchmark.log.options import MANY_TOPICS
from benchmark.log.promises import PAGE_CACHE
from benchmark.log.stage import LogWork, Stage, crash
from benchmark.processes import ChildFailed
from benchmark.samples import MEGABYTE, Sample, anonymous_mb, observe
from benchmark.servers import KWIRE, RunningServer
from benchmark.stalls import loop_health
from benchmark.works import RequestLoad

ALL, SHARED = f"{MANY_TOPICS}, all", f"{MANY_TOPICS}, shared"
PREFIX = "many"
HOT = 100
CONNECTIONS = 8
STOP_SECONDS = 300
START_TIMEOUT_SECONDS = 600
SETTLE_SECONDS = 3.0


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    sizes = stage.options.sizes
    for name in names:
        yield _TopicLoad(SHARED, sizes.shared_topics, PAGE_CACHE.configs[name]).measure(stage, name, round_number)
    if KWIRE in names:
        yield _TopicLoad(ALL, sizes.topics, {}).measure(stage, KWIRE, round_number)


@dataclass(frozen=True)
class _TopicLoad:
    work: str
    topics: int
    configs: Mapping[str, object]

    def measure(self, stage: Stage, name: str, round_number: int) -> Sample:
        with stage.server(name, {}, START_TIMEOUT_SECONDS) as server:
            empty_mb = anonymous_mb(server)
            created = self._create(server)
            self._await_hot(server)
            load = RequestLoad(
                PREFIX,
                CONNECTIONS,
                stage.options.generators,
                stage.options.sizes.request_seconds,
                topics=self._hot,
            )
            load.run(server)  # A warm-up, because the first append to a topic also creates its files.
            sample = observe(server, round_number, self.work, partial(load.run, server))
            sample.figures |= {"empty_mb": empty_mb, **created, **memory_of(server, "loaded")}
            sample.figures |= self._stop_and_start(server)
            self._await_hot(server)
            load.run(server)
            sample.figures |= self._kill_and_start(server)
            time.sleep(SETTLE_SECONDS)
            sample.figures |= memory_of(server, "started")
            return sample

    @property
    def _hot(self) -> int:
        return min(HOT, self.topics)

    def _await_hot(self, server: RunningServer) -> None:
        with Admin(server.address) as admin:
            for number in range(self._hot):
                admin.await_leader(topic_name(PREFIX, number), 1)

    def _create(self, server: RunningServer) -> dict[str, float]:
        before, began = loop_health(server), time.perf_counter()
        with Admin(server.address) as admin:
            admin.create_topics((topic_name(PREFIX, number) for number in range(self.topics)), 1, self.configs)
        figures = {"created_per_s": self.topics / (time.perf_counter() - began)}
        stalls = loop_health(server).figures_since(before)
        return figures | {f"created_{name}": value for name, value in stalls.items()}

    def _stop_and_start(self, server: RunningServer) -> dict[str, float]:
        began = time.perf_counter()
        if not server.stop(STOP_SECONDS):
            raise ChildFailed(f"{server.product.title}: not stopped after {STOP_SECONDS} s")
        stop_ms = (time.perf_counter() - began) * 1000
        server.start()
        return {"stop_ms": stop_ms, **started(server, "clean")}

    def _kill_and_start(self, server: RunningServer) -> dict[str, float]:
        crash(server)
        server.start()
        return started(server, "killed")


def memory_of(server: RunningServer, when: str) -> dict[str, float]:
    return {
        f"{when}_rss_mb": procfs.resident_bytes(server.pid) / MEGABYTE,
        f"{when}_anonymous_mb": anonymous_mb(server),
    }


def started(server: RunningServer, how: str) -> dict[str, float]:
    """Return the time until the ready line, or until the open port if the server prints no ready line."""
    times = server.start_up
    seconds = times.port_seconds if times.ready_seconds is None else times.ready_seconds
    return {f"{how}_ms": seconds * 1000, f"{how}_port_ms": times.port_seconds * 1000}


WORK = LogWork(MANY_TOPICS, 200, run)
