"""The command line of this family, and the sizes of its works."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmark.family import FamilyOptions, add_common_options, parse_common
from benchmark.options import GIGABYTE, ROUNDS_MAX
from benchmark.servers import REPOSITORY

READ, LAKE, LAG = "read", "lake", "lag"
WORK_NAMES = (READ, LAKE, LAG)

GB_MAX = 500.0
ROWS_MAX = 100_000_000
SECONDS_MAX = 600.0
ROW_DISK_BYTES = 1000  # A record of some hundred bytes, in the log and in the table.
DISK_RESERVE = 1.3  # For indexes, and for segments that reserve space for later records.
QUICK_SHARE = 0.3  # Estimated duration with --quick, as a share of the usual duration. Includes Spark's start.


@dataclass(frozen=True)
class Sizes:
    """The sizes of the works: data that Spark reads, rows written to tables, and duration and rate of the lag work."""

    read_gb: float
    lake_rows: int
    event_rows: int
    lag_seconds: float
    lag_rows_per_s: int


FULL = Sizes(5.0, 3_000_000, 500_000, 60.0, 1_000)
QUICK = Sizes(0.05, 20_000, 5_000, 10.0, 200)


@dataclass(frozen=True, kw_only=True)
class Options(FamilyOptions):
    sizes: Sizes

    @property
    def disk_bytes(self) -> int:
        """The disk space of the largest work. In the read work, both servers hold the data at the same time."""
        read = self.sizes.read_gb * GIGABYTE * len(self.servers)
        return int(max(read, self.sizes.lake_rows * ROW_DISK_BYTES) * DISK_RESERVE)

    @property
    def estimate_share(self) -> float:
        return 1.0 if self.sizes.read_gb >= FULL.read_gb else QUICK_SHARE


def parse(arguments: Sequence[str]) -> Options:
    parser = _parser()
    given, common = parse_common(parser, arguments, WORK_NAMES)
    sizes = QUICK if given.quick else FULL
    chosen = {"read_gb": given.gb, "lake_rows": given.rows, "event_rows": given.events, "lag_seconds": given.seconds}
    sizes = replace(sizes, **{name: value for name, value in chosen.items() if value is not None})
    if not 0 < given.rounds <= ROUNDS_MAX or not 0 < sizes.read_gb <= GB_MAX:
        parser.error(f"1 to {ROUNDS_MAX} rounds, more than 0 and at most {GB_MAX:.0f} GB")
    if not all(0 < count <= ROWS_MAX for count in (sizes.lake_rows, sizes.event_rows)):
        parser.error(f"1 to {ROWS_MAX:,} rows and events")
    if not 0 < sizes.lag_seconds <= SECONDS_MAX:
        parser.error(f"at most {SECONDS_MAX:.0f} seconds")
    return Options(
        sizes=sizes,
        **common,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench pipeline",
        description="Measure Spark on kwire and on Apache Kafka, and kwire's lake job; see docs/benchmarks.md",
    )
    add_common_options(parser, WORK_NAMES, REPOSITORY / "bench-results-pipeline.json")
    parser.add_argument("--gb", type=float, metavar="GB", help=f"read by Spark from each server ({FULL.read_gb:g})")
    parser.add_argument("--rows", type=int, metavar="N", help=f"rows written to a table ({FULL.lake_rows})")
    events = f"rows written to a table, from a topic with a schema ({FULL.event_rows})"
    parser.add_argument("--events", type=int, metavar="N", help=events)
    parser.add_argument("--seconds", type=float, metavar="S", help=f"how long lag is watched ({FULL.lag_seconds:g})")
    return parser
