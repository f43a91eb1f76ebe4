"""The command line of a run, and the sizes of its works."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.servers import BASELINE, KAFKA, KWIRE, PROGRAM_IN_CHECKOUT, REPOSITORY

GIGABYTE = 1_000_000_000
ROUNDS_MAX = 100
COLD_GB_MAX = 500.0
DISK_RESERVE = 1.2  # For indexes, and for segments that reserve space for later records.

START_UP, PRODUCE, CONSUME, PRODUCE_SMALL = "start-up", "produce", "consume", "produce-100b"
END_TO_END, SMALL_REQUESTS, LATENCY, COLD_READ = "end-to-end", "small-requests", "latency", "cold-read"
WORK_NAMES = (START_UP, PRODUCE, CONSUME, PRODUCE_SMALL, END_TO_END, SMALL_REQUESTS, LATENCY, COLD_READ)


@dataclass(frozen=True)
class Sizes:
    """The sizes of the works. `scaled` returns the smaller sizes of the warm-up."""

    kibibyte_records: int
    small_records: int
    end_to_end_records: int
    request_seconds: float
    probes: int

    def scaled(self, factor: float) -> "Sizes":
        return Sizes(
            int(self.kibibyte_records * factor),
            int(self.small_records * factor),
            int(self.end_to_end_records * factor),
            self.request_seconds * factor,
            int(self.probes * factor),
        )


FULL = Sizes(1_500_000, 2_000_000, 10_000, 10.0, 10_000)
QUICK = Sizes(100_000, 200_000, 1_000, 3.0, 1_000)
WARM_UP_SHARE = 0.5


@dataclass(frozen=True)
class Options:
    sizes: Sizes
    rounds: int
    works: tuple[str, ...]
    servers: tuple[str, ...]
    # The checkout of the kwire that stands in the place of Apache Kafka.
    baseline: Path | None
    cold_gb: float
    connections: int
    generators: int
    json_path: Path
    base_directory: Path | None
    keep: bool

    @property
    def disk_bytes(self) -> int:
        """The maximum disk usage: two rounds (Kafka deletes files a minute later), and the topic of the cold read."""
        round_bytes = self.sizes.kibibyte_records * 1024 + self.sizes.small_records * 100
        return int((2 * round_bytes + self.cold_gb * GIGABYTE) * len(self.servers) * DISK_RESERVE)


def parse(arguments: Sequence[str] | None = None) -> Options:
    parser = _parser()
    given = parser.parse_args(arguments)
    works = tuple(given.only.split(",")) if given.only else WORK_NAMES
    if unknown := set(works) - set(WORK_NAMES):
        parser.error(f"--only knows {', '.join(WORK_NAMES)}; not {', '.join(sorted(unknown))}")
    rounds = given.rounds if given.rounds is not None else (1 if given.quick else 3)
    cold_gb = given.cold_gb if given.cold_gb is not None else (0.25 if given.quick else 5.0)
    if not 0 < rounds <= ROUNDS_MAX or not 0 <= cold_gb <= COLD_GB_MAX:
        parser.error(f"1 to {ROUNDS_MAX} rounds, 0 to {COLD_GB_MAX:.0f} GB")
    if given.baseline and not (given.baseline / PROGRAM_IN_CHECKOUT).exists():
        parser.error(f"{given.baseline}: run scripts/install in this checkout first")
    if not 0 < given.generators <= given.connections:
        parser.error("every generator needs a connection")
    return Options(
        sizes=QUICK if given.quick else FULL,
        rounds=rounds,
        works=works,
        servers=(BASELINE, KWIRE) if given.baseline else given.servers,
        baseline=given.baseline,
        cold_gb=cold_gb if COLD_READ in works else 0.0,
        connections=given.connections,
        generators=given.generators,
        json_path=given.json,
        base_directory=given.dir,
        keep=given.keep,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure kwire beside a real Apache Kafka on this machine; see docs/benchmarks.md",
        epilog="`scripts/bench log` measures durability, recovery, compaction and scale, `scripts/bench groups` "
        "consumer groups; see --help of both",
    )
    parser.add_argument("--quick", action="store_true", help="small counts and one round: does everything work?")
    parser.add_argument("--rounds", type=int, metavar="N", help="measured rounds; the table shows medians (3)")
    parser.add_argument("--only", metavar="WORK,…", help=f"some of: {', '.join(WORK_NAMES)}")
    which = parser.add_mutually_exclusive_group()
    both = (KAFKA, KWIRE)
    which.add_argument("--kafka-only", dest="servers", action="store_const", const=(KAFKA,), default=both)
    which.add_argument("--kwire-only", dest="servers", action="store_const", const=(KWIRE,))
    which.add_argument(
        "--baseline",
        type=Path,
        metavar="CHECKOUT",
        help="another checkout of kwire, in which scripts/install has run, takes the place of Apache Kafka",
    )
    parser.add_argument("--cold-gb", type=float, metavar="GB", help="size of the cold read; 0 leaves it out (5)")
    parser.add_argument("--connections", type=int, default=8, metavar="N", help="connections of small-requests (8)")
    # With two cores, a second generator process would take the server's core.
    generators = 2 if (os.cpu_count() or 1) >= 4 else 1
    parser.add_argument(
        "--generators", type=int, default=generators, metavar="N", help=f"load generator processes ({generators})"
    )
    results = REPOSITORY / "bench-results.json"
    parser.add_argument("--json", type=Path, default=results, metavar="FILE", help=f"raw samples ({results.name})")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the data directories are made (TMPDIR)")
    parser.add_argument("--keep", action="store_true", help="do not delete the data directories and logs")
    return parser
