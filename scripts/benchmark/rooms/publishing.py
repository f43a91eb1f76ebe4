"""Publishes events to one room without subscribers, in every supported way. A room has one partition.

Only acknowledged events are counted, and these are stored. NATS has only one way to publish, which is compared with
kwire's WebSocket.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmark.bridge.servers import BRIDGE
from benchmark.rooms.nats import NATS
from benchmark.rooms.options import PUBLISH
from benchmark.rooms.stage import ALL, PAGE_CACHE, PROMISES, RoomWork, Stage, load, names_for, servers
from benchmark.samples import WARM_UP_ROUND, Sample, observe
from benchmark.servers import KWIRE

WARM_UP_SHARE = 0.25
BATCH_EVENTS = 100
WINDOW_EVENTS = 1_000


@dataclass(frozen=True)
class Way:
    """A way to publish: its name in samples, and its name in the load program for each server that supports it."""

    name: str
    calls: dict[str, str]
    connections: int
    window: int
    is_synced_too: bool = False

    def call_of(self, server: str) -> str | None:
        """Return the name for a server; None if it has no such way. A bridge has those of kwire."""
        return self.calls.get(KWIRE if server == BRIDGE else server)


PIPELINED = Way("pipelined", {KWIRE: "socket-pipelined", NATS: "stream-pipelined"}, 1, WINDOW_EVENTS, True)
ONE_BY_ONE = Way("one by one", {KWIRE: "socket-one-by-one", NATS: "stream-one-by-one"}, 1, 1, True)
POST_BATCH = Way("post batch", {KWIRE: "post-batch"}, 2, BATCH_EVENTS)
POST_LINES = Way("post lines", {KWIRE: "post-lines"}, 1, WINDOW_EVENTS)
POST = Way("post", {KWIRE: "post"}, 8, 1)
WAYS = (PIPELINED, ONE_BY_ONE, POST_BATCH, POST_LINES, POST)


def name_of(way: Way) -> str:
    return f"{PUBLISH} {way.name}"


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    for promise in PROMISES:
        with servers(stage, names_for(promise, names), promise) as started:
            for number, share in ((WARM_UP_ROUND, WARM_UP_SHARE), (round_number, 1.0)):
                for way in WAYS:
                    if promise is not PAGE_CACHE and not way.is_synced_too:
                        continue
                    for server in started:
                        call = way.call_of(server.product.name)
                        if call is None:
                            continue
                        publish = partial(
                            load,
                            stage,
                            server,
                            "publish",
                            way=call,
                            connections=way.connections,
                            window=way.window,
                            seconds=stage.options.sizes.seconds * share,
                            room=f"p-{way.name.replace(' ', '-')}-{number}",
                        )
                        yield observe(server, number, promise.of(name_of(way)), publish)


WORK = RoomWork(PUBLISH, 60, run, takes_turns=True, servers=ALL)
