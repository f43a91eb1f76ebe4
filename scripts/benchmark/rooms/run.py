"""The works of this family, and the function that runs them and prints the table."""

import sys
from collections.abc import Sequence

from benchmark.bridge.servers import BRIDGE
from benchmark.family import run_family
from benchmark.house import say
from benchmark.processes import ChildFailed
from benchmark.rooms import bridged, broadcasts, many_rooms, publishing, rest_groups, start_up
from benchmark.rooms.measures import measures
from benchmark.rooms.nats import NATS, NATS_SERVER
from benchmark.rooms.options import parse
from benchmark.rooms.programs import NATS_VERSION, build_nats_server
from benchmark.samples import Sample

WORKS = (
    start_up.WORK,
    broadcasts.BROADCAST_WORK,
    broadcasts.DELIVERIES_WORK,
    publishing.WORK,
    many_rooms.WORK,
    rest_groups.WORK,
)


def run_room_works(arguments: Sequence[str]) -> list[Sample]:
    given = parse(arguments)
    try:
        if NATS in given.servers:
            say(f"looking for nats-server {NATS_VERSION} (the first run builds it)")
            build_nats_server()
        samples = run_family(given, WORKS, measures(given), NATS_SERVER)
        if BRIDGE in given.servers:
            for line in bridged.tables(given, samples):
                print(line, flush=True)
        return samples
    except ChildFailed as error:  # A build failed. (A failed work becomes a sample with an error.)
        sys.exit(f"scripts/bench rooms: {error}")
