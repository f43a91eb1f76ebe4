"""The command line of this family, and the sizes of its works."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmark.family import FamilyOptions, add_common_options, parse_common
from benchmark.options import GIGABYTE, ROUNDS_MAX
from benchmark.servers import REPOSITORY

PUBLISH, PRODUCE, WEBHOOKS, FILES, SUBSCRIBE = "publish", "produce", "webhooks", "files", "subscribe"
WORK_NAMES = (PUBLISH, PRODUCE, WEBHOOKS, FILES, SUBSCRIBE)

SECONDS_MAX = 120.0
EVENTS_MAX = 1_000_000
FILE_DISK_BYTES = 8192  # A file of any size needs at least a block and an inode.
QUICK_SHARE = 0.2  # Estimated duration with --quick, as a share of the usual duration.


@dataclass(frozen=True)
class Sizes:
    """The sizes of the works. `seconds` is the duration of loads without a fixed number of events."""

    seconds: float
    produced_records: int
    delivered_events: int
    probes: int
    exported_events: int
    steady_per_s: int
    stored_events: int
    subscribers: int


FULL = Sizes(3.0, 100_000, 10_000, 300, 100_000, 1_000, 100_000, 10)
QUICK = Sizes(0.5, 5_000, 500, 20, 2_000, 500, 2_000, 3)


@dataclass(frozen=True, kw_only=True)
class Options(FamilyOptions):
    sizes: Sizes

    @property
    def disk_bytes(self) -> int:
        """The disk space for millions of small events, or for the files of the exported events."""
        return max(4 * GIGABYTE, self.sizes.exported_events * FILE_DISK_BYTES)

    @property
    def estimate_share(self) -> float:
        return 1.0 if self.sizes.exported_events >= FULL.exported_events else QUICK_SHARE


def parse(arguments: Sequence[str]) -> Options:
    parser = _parser()
    given, common = parse_common(parser, arguments, WORK_NAMES)
    sizes = QUICK if given.quick else FULL
    if given.seconds is not None:
        sizes = replace(sizes, seconds=given.seconds)
    if given.exported is not None:
        sizes = replace(sizes, exported_events=given.exported)
    if given.records is not None:
        sizes = replace(sizes, produced_records=given.records)
    if not 0 < given.rounds <= ROUNDS_MAX or not 0 < sizes.seconds <= SECONDS_MAX:
        parser.error(f"1 to {ROUNDS_MAX} rounds, at most {SECONDS_MAX:.0f} seconds")
    if not all(0 < count <= EVENTS_MAX for count in (sizes.exported_events, sizes.produced_records)):
        parser.error(f"1 to {EVENTS_MAX} events and records")
    return Options(
        sizes=sizes,
        **common,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench events",
        description="Measure the event store, and Produce to it beside Apache Kafka; see docs/benchmarks.md",
    )
    add_common_options(parser, WORK_NAMES, REPOSITORY / "bench-results-events.json")
    parser.add_argument("--seconds", type=float, metavar="S", help=f"how long each load lasts ({FULL.seconds:g})")
    parser.add_argument("--records", type=int, metavar="N", help=f"records of each producer ({FULL.produced_records})")
    parser.add_argument("--exported", type=int, metavar="N", help=f"events exported to files ({FULL.exported_events})")
    return parser
