"""The command line of this family, and the sizes of its works."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.bridge.servers import BRIDGE
from benchmark.family import FamilyOptions, add_common_options, parse_common
from benchmark.options import GIGABYTE, ROUNDS_MAX
from benchmark.rooms.nats import NATS
from benchmark.servers import REPOSITORY

START_UP, BROADCAST, DELIVERIES, PUBLISH = "start-up", "broadcast", "deliveries", "publish"
MANY_ROOMS, GROUPS = "many-rooms", "rest-groups"
WORK_NAMES = (START_UP, BROADCAST, DELIVERIES, PUBLISH, MANY_ROOMS, GROUPS)

SUBSCRIBERS_MAX, ROOMS_MAX = 5_000, 100_000
SECONDS_MAX = 120.0
ROOM_DISK_BYTES = 100_000  # A segment reserves space for later records.
QUICK_SHARE = 0.2  # Estimated duration with --quick, as a share of the usual duration.


@dataclass(frozen=True)
class Sizes:
    """The sizes of the works."""

    # The numbers of subscribers of a broadcast. It ends after `events` or `seconds`, whichever is first.
    subscribers: tuple[int, ...]
    events: int
    seconds: float
    rooms: tuple[int, ...]
    streams: int
    commits: int
    rebalances: int


FULL = Sizes((1, 100, 1_000), 3_000, 4.0, (1_000, 100_000), 1_000, 3_000, 20)
QUICK = Sizes((1, 100), 200, 0.5, (100, 1_000), 100, 200, 3)


@dataclass(frozen=True, kw_only=True)
class Options(FamilyOptions):
    sizes: Sizes

    @property
    def disk_bytes(self) -> int:
        """The disk space for millions of small events, or for many rooms."""
        return max(4 * GIGABYTE, max(self.sizes.rooms) * ROOM_DISK_BYTES)

    @property
    def estimate_share(self) -> float:
        return 1.0 if self.sizes.events == FULL.events else QUICK_SHARE


def parse(arguments: Sequence[str]) -> Options:
    parser = _parser()
    given, common = parse_common(parser, arguments, WORK_NAMES)
    if given.bridge:
        common["servers"] = (*common["servers"], BRIDGE)
    sizes = QUICK if given.quick else FULL
    subscribers = sizes.subscribers if given.subscribers is None else tuple(given.subscribers)
    rooms = sizes.rooms if given.rooms is None else tuple(given.rooms)
    seconds = sizes.seconds if given.seconds is None else given.seconds
    if not 0 < given.rounds <= ROUNDS_MAX or not 0 < seconds <= SECONDS_MAX:
        parser.error(f"1 to {ROUNDS_MAX} rounds, at most {SECONDS_MAX:.0f} seconds")
    if not all(0 < count <= SUBSCRIBERS_MAX for count in subscribers) or not subscribers:
        parser.error(f"1 to {SUBSCRIBERS_MAX} subscribers")
    if not all(0 < count <= ROOMS_MAX for count in rooms) or not rooms:
        parser.error(f"1 to {ROOMS_MAX} rooms")
    return Options(
        sizes=Sizes(
            subscribers=subscribers,
            events=sizes.events,
            seconds=seconds,
            rooms=rooms,
            streams=sizes.streams,
            commits=sizes.commits,
            rebalances=sizes.rebalances,
        ),
        **common,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench rooms",
        description="Measure rooms beside a NATS server with JetStream; see docs/benchmarks.md",
    )
    add_common_options(parser, WORK_NAMES, REPOSITORY / "bench-results-rooms.json", NATS)
    parser.add_argument("--bridge", action="store_true", help="also measure a bridge over three Apache Kafkas")
    subscribers, rooms = (", ".join(map(str, counts)) for counts in (FULL.subscribers, FULL.rooms))
    parser.add_argument("--subscribers", type=int, nargs="+", metavar="N", help=f"in broadcast ({subscribers})")
    parser.add_argument("--rooms", type=int, nargs="+", metavar="N", help=f"in many-rooms ({rooms})")
    parser.add_argument("--seconds", type=float, metavar="S", help=f"how long each load lasts ({FULL.seconds:g})")
    return parser
