"""Very many rooms with one event each: what they take of the memory, and how long it takes to make them.

At NATS a room is a subject of one stream. That is all a room needs for its events, and it is less than a room of
kwire's is: retention and deletion are the stream's. So a stream for each room is measured too, for fewer rooms.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from benchmark.rooms.nats import NATS
from benchmark.rooms.options import MANY_ROOMS
from benchmark.rooms.stage import BOTH, RoomWork, Stage, load, servers
from benchmark.samples import MEGABYTE, Sample, anonymous_mb, observe
from benchmark.servers import KWIRE, RunningServer
from benchmark.works import Outcome

# NATS takes many at a time on each connection; kwire makes one room at a time for each, and many for many.
CONNECTIONS = {NATS: 16, KWIRE: 256}


def name_of(rooms: int) -> str:
    return f"{MANY_ROOMS} {rooms}"


STREAMS = f"{MANY_ROOMS}, streams"


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    """Each server is alone, and each count begins on an empty directory."""
    sizes = stage.options.sizes
    for rooms in sizes.rooms:
        with servers(stage, names) as (server,):
            connections = CONNECTIONS[server.product.name]
            make = partial(load, stage, server, "rooms", count=rooms, connections=connections)
            yield observe(server, round_number, name_of(rooms), partial(_weighed, server, rooms, make))
    if NATS in names:
        with servers(stage, names) as (server,):
            make = partial(load, stage, server, "streams", count=sizes.streams)
            yield observe(server, round_number, STREAMS, partial(_weighed, server, sizes.streams, make))


def _weighed(server: RunningServer, count: int, make: Callable[[], Outcome]) -> Outcome:
    empty_mb = anonymous_mb(server)
    outcome = make()
    outcome.figures["empty_mb"] = empty_mb
    outcome.figures["bytes_per_room"] = (anonymous_mb(server) - empty_mb) * MEGABYTE / count
    return outcome


WORK = RoomWork(MANY_ROOMS, 150, run, servers=BOTH)
