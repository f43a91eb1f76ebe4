"""Broadcasts to all subscribers of a room: the time until the last subscriber has an event, and the delivery rate.

A subscriber has its own connection: a WebSocket for kwire, and an ordered push consumer for NATS. Both can start at an
old event, and both receive an event only after it is stored. `plain` subscribers of NATS receive messages without
JetStream, so they cannot read old messages.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from benchmark.bridge.servers import Bridge
from benchmark.bridge.stock_client import produce_latency
from benchmark.rooms.nats import NATS
from benchmark.rooms.options import BROADCAST, DELIVERIES
from benchmark.rooms.stage import ALL, PAGE_CACHE, PROMISES, SYNCED, RoomWork, Stage, load, names_for, servers
from benchmark.samples import WARM_UP_ROUND, Sample, observe

WARM_UP_SHARE = 0.25
SYNCED_SUBSCRIBERS = 100
SATURATING_SUBSCRIBERS_MIN = 100


def name_of(subscribers: int) -> str:
    return f"{BROADCAST} {subscribers}"


def plain_name_of(subscribers: int) -> str:
    return f"{name_of(subscribers)}, plain"


def deliveries_name_of(subscribers: int) -> str:
    return f"{DELIVERIES} {subscribers}"


def run_broadcasts(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    sizes = stage.options.sizes
    for promise in PROMISES:
        with servers(stage, names_for(promise, names), promise) as started:
            for number, share in ((WARM_UP_ROUND, WARM_UP_SHARE), (round_number, 1.0)):
                for subscribers in sizes.subscribers:
                    if promise is SYNCED and subscribers != SYNCED_SUBSCRIBERS:
                        continue
                    for server in started:
                        work = name_of(subscribers)
                        broadcast = partial(
                            load,
                            stage,
                            server,
                            "broadcast",
                            subscribers=subscribers,
                            events=max(1, int(sizes.events * share)),
                            seconds=sizes.seconds * share,
                        )
                        room = f"b-{subscribers}-{number}"
                        yield observe(server, number, promise.of(work), partial(broadcast, room=room))
                        if server.product.name == NATS and promise is PAGE_CACHE:
                            plain = partial(broadcast, room=f"{room}-plain", plain=True)
                            yield observe(server, number, plain_name_of(subscribers), plain)
                for server in started:
                    if isinstance(server.product, Bridge):
                        seconds = sizes.seconds * share
                        yield produce_latency(server.product.upstream, number, sizes.events, seconds)


def run_deliveries(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    sizes = stage.options.sizes
    with servers(stage, names) as started:
        for number, share in ((WARM_UP_ROUND, WARM_UP_SHARE), (round_number, 1.0)):
            for subscribers in sizes.subscribers:
                if subscribers < SATURATING_SUBSCRIBERS_MIN:
                    continue
                for server in started:
                    saturate = partial(
                        load,
                        stage,
                        server,
                        "saturate",
                        subscribers=subscribers,
                        seconds=sizes.seconds * share,
                        room=f"d-{subscribers}-{number}",
                    )
                    yield observe(server, number, deliveries_name_of(subscribers), saturate)


BROADCAST_WORK = RoomWork(BROADCAST, 70, run_broadcasts, takes_turns=True, servers=ALL)
DELIVERIES_WORK = RoomWork(DELIVERIES, 30, run_deliveries, takes_turns=True, servers=ALL)
