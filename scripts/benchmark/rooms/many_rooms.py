"""Very many rooms with one event each: their memory, and the time to create them.

In NATS, a room is a subject of one stream. Such a subject has no retention and deletion of its own, as a room of kwire
has. So one stream per room is also measured, with fewer rooms.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from benchmark.rooms.nats import NATS
from benchmark.rooms.options import MANY_ROOMS
from benchmark.rooms.stage import BOTH, RoomWork, Stage, load, servers
from benchmark.samples import MEGABYTE, Sample, anonymous_mb, observe
from benchmark.servers import KWIRE, RunningServer
from benchmark.works import Outcome

# NATS processes many requests per connection at a time. kwire creates one room per connection at a time.
CONNECTIONS = {NATS: 16, KWIRE: 256}


def name_of(rooms: int) -> str:
    return f"{MANY_ROOMS} {rooms}"


STREAMS = f"{MANY_ROOMS}, streams"


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    """Measure one server at a time. For each number of rooms, the server starts in an empty directory."""
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
