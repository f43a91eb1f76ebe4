"""Starts a cluster and a bridge for the kills and for the many rooms, and prints the table and a verdict for each kind
of kill."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmark import machine, report
from benchmark.bridge.kills import STOCK, run_kills, work_of
from benchmark.bridge.many_rooms import SUBSCRIBED_ROOMS, create_rooms, subscribe_to_rooms
from benchmark.bridge.options import BRIDGE_PROCESS, MANY_ROOMS, Options, parse
from benchmark.bridge.servers import BRIDGE, Bridge, three_nodes
from benchmark.bridge.stock_client import warm_up
from benchmark.house import check_kwire, make_directory, say
from benchmark.measures import Measure
from benchmark.processes import ChildFailed
from benchmark.samples import Sample
from benchmark.servers import KWIRE, RunningServer, ServerDied, fetch_apache_kafka
from tests.support.apache_cluster import HEAP, ApacheCluster

TITLES = ("stock client", "stock client")
WARM_UP_SECONDS = 5.0
# A broker has a replica of each room.
MANY_ROOMS_HEAP = "1G"
FAILURES = (ChildFailed, ServerDied, OSError, TimeoutError, ExceptionGroup, AssertionError)


def run_bridge_works(arguments: Sequence[str]) -> list[Sample]:
    given = parse(arguments)
    check_kwire((KWIRE,))
    samples: list[Sample] = []
    with ExitStack() as stack:
        directory = make_directory(given.base_directory, given.disk_bytes, given.keep, stack)
        say("looking for Apache Kafka's jars (the first run fetches them)")
        facts = machine.facts(directory, machine.kafka_facts(fetch_apache_kafka()))
        if given.kinds:
            with _servers(directory / "kills", given.cluster_settings) as (cluster, bridge):
                for kind in given.kinds:
                    if not _measure(samples, work_of(kind), run_kills(cluster, bridge, kind, given.kills)):
                        break
        if given.has_many_rooms:
            with _servers(directory / MANY_ROOMS, {}, MANY_ROOMS_HEAP) as (_, bridge):
                if _measure(samples, MANY_ROOMS, create_rooms(bridge, given.rooms, given.idle_seconds)):
                    subscribed = subscribe_to_rooms(bridge, given.rooms, given.subscribers, given.idle_seconds)
                    _measure(samples, SUBSCRIBED_ROOMS, subscribed)
    rows = report.rows(samples, list(_measures(given)), beside=STOCK, own=BRIDGE)
    print(f"{machine.summary(facts)}\n\n{report.table(rows, TITLES, own=BRIDGE)}\n", flush=True)
    for line in [*report.notes(samples), *verdicts(samples)]:
        print(line, flush=True)
    given.json_path.write_text(report.document(facts, asdict(given), samples, rows))
    say(f"every sample: {given.json_path}")
    return samples


@contextmanager
def _servers(
    directory: Path, settings: Mapping[str, str], heap: str = HEAP
) -> Iterator[tuple[ApacheCluster, RunningServer]]:
    say("starting three Apache Kafkas and a bridge")
    directory.mkdir()
    with three_nodes(directory / "cluster", settings, heap=heap) as cluster:
        warm_up(cluster.bootstrap, WARM_UP_SECONDS)
        bridge = RunningServer(Bridge({}, cluster.bootstrap), directory / "bridge")
        try:
            yield cluster, bridge
        finally:
            bridge.stop()


def _measure(samples: list[Sample], work: str, running: Coroutine[Any, Any, list[Sample]]) -> bool:
    """Run a work. Return whether it came to its end; otherwise the servers may be in any state."""
    try:
        samples += asyncio.run(running)
    except FAILURES as failure:
        error: BaseException = failure
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        reason = str(error) or type(error).__name__
        samples.append(Sample(BRIDGE, 1, work, error=reason))
        say(f"{work} failed: {reason}")
        return False
    return True


def _measures(given: Options) -> Iterator[Measure]:
    for kind in given.kinds:
        work = work_of(kind)
        compared = kind != BRIDGE_PROCESS
        yield Measure(f"{work}: without service, p50", "ms", work, "outage_p50_ms", is_compared=compared)
        yield Measure("- p99", "ms", work, "outage_p99_ms", is_compared=compared)
        yield Measure("- subscribers, p50", "ms", work, "delivery_outage_p50_ms")
        yield Measure("- subscribers, p99", "ms", work, "delivery_outage_p99_ms")
        yield Measure("- kills", "", work, "kills", is_compared=False)
        yield Measure("- acknowledged", "records", work, "acknowledged", is_compared=False)
        yield Measure("- of unknown outcome", "records", work, "uncertain", is_compared=False)
    rooms, subscribers = f"{given.rooms:,} rooms", f"{given.subscribers:,} subscribers"
    yield Measure(f"{rooms} with one event each: created in", "s", MANY_ROOMS, "create_s")
    yield Measure("- rooms per second", "1/s", MANY_ROOMS, "rooms_per_s")
    yield Measure("- CPU of the bridge", "ms/room", MANY_ROOMS, "create_cpu_ms")
    yield Measure("- memory before", "MB", MANY_ROOMS, "empty_mb")
    yield Measure("- memory", "MB", MANY_ROOMS, "rooms_mb")
    yield Measure("- memory of a room", "bytes", MANY_ROOMS, "bytes_per_room")
    yield Measure("- idle CPU", "% of a core", MANY_ROOMS, "idle_cpu_percent")
    yield Measure(f"{subscribers} in as many rooms: subscribed in", "s", SUBSCRIBED_ROOMS, "subscribe_s")
    yield Measure("- memory", "MB", SUBSCRIBED_ROOMS, "subscribers_mb")
    yield Measure("- memory of a subscriber", "bytes", SUBSCRIBED_ROOMS, "bytes_per_subscriber")
    yield Measure("- idle CPU", "% of a core", SUBSCRIBED_ROOMS, "idle_cpu_percent")
    yield Measure("- connections to the cluster", "", SUBSCRIBED_ROOMS, "connections")
    yield Measure("- publish to delivery, one after another, p50", "us", SUBSCRIBED_ROOMS, "p50_us")
    yield Measure("- p99", "us", SUBSCRIBED_ROOMS, "p99_us")


def verdicts(samples: Sequence[Sample]) -> Iterator[str]:
    """Yield a line for each kind of kill: what the history checker found."""
    for sample in samples:
        figures = sample.figures
        if sample.server != BRIDGE or "anomalies" not in figures:
            continue
        found = (
            f"{figures['acknowledged']:,.0f} events acknowledged, {figures['lost']:.0f} lost, "
            f"{figures['stored_twice']:.0f} stored twice; subscribers: {figures['gaps']:.0f} gaps, "
            f"{figures['repeats']:.0f} repeats; {figures['anomalies']:.0f} anomalies in all"
        )
        holds = "does not hold" if sample.error else "holds"
        yield f"{sample.work}, {figures['kills']:.0f} times: {found}: {holds}"
