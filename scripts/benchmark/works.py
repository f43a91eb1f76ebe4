"""The works of the main benchmark: preparation, run and figures. One call runs one work on one server."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmark import options, page_cache
from benchmark.histogram import Latencies
from benchmark.loadgen import Load
from benchmark.options import GIGABYTE, Sizes
from benchmark.prober import Probes
from benchmark.processes import Child, own_program
from benchmark.servers import RunningServer
from benchmark.tools import TOOL_TIMEOUT_SECONDS, Tools, parse_consumed

KIBIBYTE = 1024
SMALL = 100
PARTITIONS = 6
BULK_PRODUCER: dict[str, object] = {"batch.size": 65536, "linger.ms": 5}
CLIENT_DEFAULTS: dict[str, object] = {}
GRACE_SECONDS = 60
PROBE_GAP_MS = 0.5
SECONDS_PER_PROBE_MAX = 0.05
COLD_PROBE_GAP_MS = 5


@dataclass
class Turn:
    """The context of one server in one round, with the topics that the round has created on the server so far."""

    server: RunningServer
    tools: Tools
    sizes: Sizes
    round: int
    connections: int
    generators: int
    cold_gb: float
    topics: set[str] = field(default_factory=set)

    def topic(self, label: str) -> str:
        return f"bench-{self.round}-{label}"

    def make_topic(self, label: str, partitions: int) -> bool:
        """Create the topic if this round has not created it yet. Return whether it was created now and so is empty."""
        topic = self.topic(label)
        if topic in self.topics:
            return False
        self.tools.create_topic(self.server, topic, partitions)
        self.topics.add(topic)
        return True

    def clear(self) -> None:
        if self.topics:
            self.tools.delete_topics(self.server, f"bench-{self.round}-.*")
            self.topics.clear()


@dataclass
class Outcome:
    figures: dict[str, float]
    gigabytes: float = 0.0
    requests: float = 0.0
    histograms: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    name: str
    estimate_seconds: float
    prepare: Callable[[Turn], object]
    run: Callable[[Turn], Outcome]


def produce_kibibytes(turn: Turn) -> Outcome:
    records = turn.sizes.kibibyte_records
    figures = turn.tools.produce(turn.server, turn.topic("1k"), records, KIBIBYTE, BULK_PRODUCER)
    return Outcome(figures, gigabytes=records * KIBIBYTE / GIGABYTE)


def fill_for_consumer(turn: Turn) -> None:
    """Produce the records that the consumer reads, unless the produce work has already written them."""
    if turn.make_topic("1k", PARTITIONS):
        produce_kibibytes(turn)


def consume_kibibytes(turn: Turn) -> Outcome:
    records = turn.sizes.kibibyte_records
    figures = turn.tools.consume(turn.server, turn.topic("1k"), records)
    return Outcome(figures, gigabytes=records * KIBIBYTE / GIGABYTE)


def produce_small(turn: Turn) -> Outcome:
    records = turn.sizes.small_records
    figures = turn.tools.produce(turn.server, turn.topic("100b"), records, SMALL, CLIENT_DEFAULTS)
    return Outcome(figures, gigabytes=records * SMALL / GIGABYTE)


def end_to_end(turn: Turn) -> Outcome:
    records = turn.sizes.end_to_end_records
    figures = turn.tools.end_to_end(turn.server, turn.topic("end-to-end"), records, SMALL)
    return Outcome(figures, requests=records)


def small_requests(turn: Turn) -> Outcome:
    load = RequestLoad(
        turn.topic("requests"),
        turn.connections,
        turn.generators,
        turn.sizes.request_seconds,
        command_config=turn.tools.command_config,
    )
    return load.run(turn.server)


@dataclass(frozen=True)
class RequestLoad:
    """Produce requests with one small record, one in flight per connection, to `topic` or to `topics` topics."""

    topic: str
    connections: int
    generators: int
    seconds: float
    topics: int = 0
    command_config: Path | None = None

    def run(self, server: RunningServer) -> Outcome:
        shares = [len(range(index, self.connections, self.generators)) for index in range(self.generators)]
        with ExitStack() as stack:
            generators = [stack.enter_context(self._generator(server, share)) for share in shares]
            loads = [Load(**json.loads(generator.finish(self.seconds + GRACE_SECONDS))) for generator in generators]
        latencies = Latencies()
        for load in loads:
            latencies.add(Latencies.decode(load.latencies))
        figures = latencies.figures()
        figures["requests_per_s"] = sum(load.requests / load.seconds for load in loads)
        figures["generator_busy_share"] = max(load.own_cpu_seconds / load.seconds for load in loads)
        requests = sum(load.requests for load in loads)
        return Outcome(figures, requests=requests, histograms={"request": latencies.encode()})

    def _generator(self, server: RunningServer, connections: int) -> Child:
        login = {} if self.command_config is None else {"command_config": self.command_config}
        return own_program(
            "loadgen",
            port=server.address[1],
            topic=self.topic,
            topics=self.topics,
            connections=connections,
            seconds=self.seconds,
            value_size=SMALL,
            **login,
        )


def latency(turn: Turn) -> Outcome:
    count = turn.sizes.probes
    port, topic = turn.server.address[1], turn.topic("latency")
    with own_program("prober", port=port, topic=topic, count=count, gap_ms=PROBE_GAP_MS, value_size=SMALL) as prober:
        probes = Probes(**json.loads(prober.finish(count * SECONDS_PER_PROBE_MAX + GRACE_SECONDS)))
    return Outcome(probe_figures(probes), requests=probes.records, histograms=probe_histograms(probes))


def probe_figures(probes: Probes) -> dict[str, float]:
    acknowledged = Latencies.decode(probes.acknowledged).figures()
    return Latencies.decode(probes.end_to_end).figures() | {
        f"ack_{name}": value for name, value in acknowledged.items()
    }


def probe_histograms(probes: Probes) -> dict[str, str]:
    return {"end_to_end": probes.end_to_end, "acknowledged": probes.acknowledged}


def fill_cold(turn: Turn) -> None:
    turn.make_topic("cold", PARTITIONS)
    turn.make_topic("probe", 1)
    turn.tools.produce(turn.server, turn.topic("cold"), cold_records(turn), KIBIBYTE, BULK_PRODUCER)


def cold_records(turn: Turn) -> int:
    return int(turn.cold_gb * GIGABYTE / KIBIBYTE)


def cold_read(turn: Turn) -> Outcome:
    """Read records that are not in the page cache, and measure the latency of another client's requests meanwhile."""
    page_cache.drop(turn.server.directory)
    resident = page_cache.resident_share(turn.server.directory)
    records = cold_records(turn)
    probing = own_program(
        "prober",
        port=turn.server.address[1],
        topic=turn.topic("probe"),
        gap_ms=COLD_PROBE_GAP_MS,
        value_size=SMALL,
        stop_with_stdin=True,
    )
    with probing as prober, turn.tools.consumer(turn.server, turn.topic("cold"), records) as consumer:
        consumed = parse_consumed(consumer.finish(TOOL_TIMEOUT_SECONDS), records)
        probes = Probes(**json.loads(prober.finish(GRACE_SECONDS)))
    figures = consumed | {f"probe_{name}": value for name, value in probe_figures(probes).items()}
    if resident is not None:
        figures["resident_share_before"] = resident
    return Outcome(figures, gigabytes=records * KIBIBYTE / GIGABYTE, histograms=probe_histograms(probes))


ROUND_WORKS = (
    Work(options.PRODUCE, 20, lambda turn: turn.make_topic("1k", PARTITIONS), produce_kibibytes),
    Work(options.CONSUME, 8, fill_for_consumer, consume_kibibytes),
    Work(options.PRODUCE_SMALL, 15, lambda turn: turn.make_topic("100b", 1), produce_small),
    Work(options.END_TO_END, 20, lambda turn: turn.make_topic("end-to-end", 1), end_to_end),
    Work(options.SMALL_REQUESTS, 14, lambda turn: turn.make_topic("requests", 1), small_requests),
    Work(options.LATENCY, 14, lambda turn: turn.make_topic("latency", 1), latency),
)
COLD_WORK = Work(options.COLD_READ, 90, fill_cold, cold_read)
