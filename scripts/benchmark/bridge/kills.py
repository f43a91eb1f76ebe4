"""Kills brokers and the bridge under load: the time without service, and what became of every event.

The room and the topic of a stock client have one partition each, with the same replicas in the same order, so the same
broker leads both. The time without service after a kill is the longest time between two acknowledgements.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from benchmark.bridge.load import RoomLoad
from benchmark.bridge.options import BRIDGE_PROCESS, LEADER
from benchmark.bridge.servers import BRIDGE
from benchmark.bridge.stock_writer import StockWriter, Topics
from benchmark.house import say
from benchmark.processes import ChildFailed
from benchmark.samples import Sample
from benchmark.servers import LOOPBACK, RunningServer
from tests.support.apache_cluster import NODE_IDS, ApacheCluster
from tests.support.history_anomalies import Kind, report
from tests.support.history_checks import anomalies_in

STOCK = "stock client"
# The load before a kill and after the service has resumed.
STEADY_SECONDS = 1.0
SERVICE_SECONDS_MAX = 120.0
POLL_SECONDS = 0.05
LOST = (Kind.LOST_WRITE, Kind.LOST_APPEND)
STORED_TWICE = (Kind.DUPLICATE, Kind.DOUBLED_APPEND)


def work_of(kind: str) -> str:
    return f"kill of the {kind}"


@dataclass
class Outages:
    """The seconds without service after each kill."""

    published: list[float] = field(default_factory=list)
    delivered: list[float] = field(default_factory=list)
    stock: list[float] = field(default_factory=list)


async def run_kills(cluster: ApacheCluster, bridge: RunningServer, kind: str, kills: int) -> list[Sample]:
    room, stock_topic = f"killed-{kind}", f"stock-{kind}"
    topics = Topics(cluster.bootstrap)
    await asyncio.to_thread(topics.create, [room, stock_topic], list(NODE_IDS))
    outages = Outages()
    with StockWriter(cluster.bootstrap, stock_topic) as stock:
        async with RoomLoad(f"http://{LOOPBACK}:{bridge.http_port}", room) as load:
            await _until(lambda: bool(load.acknowledged_at and stock.acknowledged_at), "the load has begun")
            for number in range(1, kills + 1):
                await asyncio.sleep(STEADY_SECONDS)
                await _kill(cluster, bridge, topics, room, kind, load, stock, outages)
                say(
                    f"{work_of(kind)} {number}/{kills}: publish {outages.published[-1]:.2f} s, "
                    f"deliver {outages.delivered[-1]:.2f} s, stock client {outages.stock[-1]:.2f} s"
                )
    committed, everything = [
        await asyncio.to_thread(list, topics.read(room, is_committed=is_committed)) for is_committed in (True, False)
    ]
    await load.finish(committed, everything)
    return list(_samples(kind, load, stock, outages))


async def _kill(
    cluster: ApacheCluster,
    bridge: RunningServer,
    topics: Topics,
    room: str,
    kind: str,
    load: RoomLoad,
    stock: StockWriter,
    outages: Outages,
) -> None:
    node: int | None = None
    leader, _ = await asyncio.to_thread(topics.leader_and_in_sync, room)
    killed_at = time.monotonic()
    if kind == BRIDGE_PROCESS:
        await asyncio.to_thread(bridge.kill)
        await asyncio.to_thread(bridge.start)
    else:
        node = leader if kind == LEADER else next(one for one in NODE_IDS if one != leader)
        await asyncio.to_thread(cluster.kill, node)
        deadline = killed_at + SERVICE_SECONDS_MAX
        while True:
            leader, in_sync = await asyncio.to_thread(topics.leader_and_in_sync, room)
            if leader not in (node, -1) and node not in in_sync:
                break
            if time.monotonic() > deadline:
                raise ChildFailed(f"the cluster has not replaced node {node} within {SERVICE_SECONDS_MAX:.0f} s")
            await asyncio.sleep(POLL_SECONDS)
    resumed_at = time.monotonic()
    all_times = (load.acknowledged_at, load.received_at, stock.acknowledged_at)
    await _until(lambda: all(times[-1] > resumed_at for times in all_times), f"there is service after {work_of(kind)}")
    await asyncio.sleep(STEADY_SECONDS)
    for found, times in zip((outages.published, outages.delivered, outages.stock), all_times, strict=True):
        found.append(_longest_pause(times, killed_at))
    if node is not None:
        await asyncio.to_thread(cluster.restart, node)


async def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SERVICE_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise ChildFailed(f"not within {SERVICE_SECONDS_MAX:.0f} s: {what}")
        await asyncio.sleep(POLL_SECONDS)


def _longest_pause(times: Sequence[float], since: float) -> float:
    """Return the longest time between two acknowledgements of which the second came after `since`."""
    return max(later - earlier for earlier, later in pairwise(times) if later > since)


def _samples(kind: str, load: RoomLoad, stock: StockWriter, outages: Outages) -> Iterator[Sample]:
    anomalies = anomalies_in(load.history.events)
    kinds = [one.kind for one in anomalies]
    figures = _percentiles("outage", outages.published) | _percentiles("delivery_outage", outages.delivered)
    figures |= {
        "kills": len(outages.published),
        "acknowledged": len(load.acknowledged_at),
        "uncertain": load.uncertain_count,
        "lost": sum(map(kinds.count, LOST)),
        "stored_twice": sum(map(kinds.count, STORED_TWICE)),
        "gaps": load.gap_count + kinds.count(Kind.SKIPPED_RECORD),
        "repeats": kinds.count(Kind.READER_WENT_BACK),
        "anomalies": len(anomalies),
    }
    error = f"anomalies were found\n{report(anomalies)}" if anomalies or load.gap_count else None
    yield Sample(BRIDGE, 1, work_of(kind), figures, error=error)
    figures = _percentiles("outage", outages.stock)
    figures |= {"kills": len(outages.stock), "acknowledged": len(stock.acknowledged_at)}
    figures["uncertain"] = stock.failure_count
    yield Sample(STOCK, 1, work_of(kind), figures)


def _percentiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """The nearest ranks, so the 99th percentile of twenty values is the largest one."""
    ordered = sorted(seconds)
    ranks = {f"{name}_p{percent}_ms": -(-percent * len(ordered) // 100) for percent in (50, 99)}
    return {title: ordered[rank - 1] * 1000 for title, rank in ranks.items()}
