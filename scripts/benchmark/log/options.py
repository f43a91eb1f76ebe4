"""The command line of this family, and the sizes of its works."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.family import FamilyOptions, add_common_options, parse_common
from benchmark.options import GIGABYTE, ROUNDS_MAX, WARM_UP_SHARE
from benchmark.servers import REPOSITORY

RECOVERY, SYNC_ROUND, DURABLE, COMPACTION = "recovery", "sync-round", "durable", "compaction"
MANY_TOPICS, UPKEEP = "many-topics", "upkeep"
WORK_NAMES = (SYNC_ROUND, DURABLE, UPKEEP, COMPACTION, MANY_TOPICS, RECOVERY)

GB_MAX = 500.0
TOPICS_MAX = 1_000_000
QUICK_SHARE = 0.2  # Estimated duration with --quick, as a share of the usual duration.
DISK_RESERVE = 1.3  # For indexes, and for segments that reserve space for later records.
COPIES_WHILE_COMPACTING = 3  # The log, its compacted copy, and the copy compacted without a server.


@dataclass(frozen=True)
class Sizes:
    """The sizes of the works, some of which are options of the command line."""

    log_gb: float
    compact_gb: float
    keys: int
    topics: int
    shared_topics: int
    produced_records: int
    request_seconds: float
    sync_seconds: float
    upkeep_seconds: float
    upkeep_mb: float


FULL = Sizes(10.0, 1.0, 100_000, 100_000, 2_000, 500_000, 10.0, 10.0, 20.0, 2.0)
QUICK = Sizes(0.1, 0.1, 10_000, 2_000, 200, 20_000, 2.0, 0.5, 4.0, 2.0)


@dataclass(frozen=True, kw_only=True)
class Options(FamilyOptions):
    sizes: Sizes
    generators: int

    @property
    def disk_bytes(self) -> int:
        compacted_gb = self.sizes.compact_gb * COPIES_WHILE_COMPACTING
        # Two servers with two promises, plus the warm-up, which has half the size.
        produced_gb = self.sizes.produced_records * 1024 / GIGABYTE * 4 * (1 + WARM_UP_SHARE)
        needs = {RECOVERY: self.sizes.log_gb, COMPACTION: compacted_gb, DURABLE: produced_gb}
        return int(max((needs.get(work, 1.0) for work in self.works), default=0.0) * GIGABYTE * DISK_RESERVE)

    @property
    def estimate_share(self) -> float:
        return 1.0 if self.sizes.request_seconds == FULL.request_seconds else QUICK_SHARE


def parse(arguments: Sequence[str]) -> Options:
    parser = _parser()
    given, common = parse_common(parser, arguments, WORK_NAMES)
    sizes = QUICK if given.quick else FULL
    chosen = Sizes(
        log_gb=_or(given.log_gb, sizes.log_gb),
        compact_gb=_or(given.compact_gb, sizes.compact_gb),
        keys=int(_or(given.keys, sizes.keys)),
        topics=int(_or(given.topics, sizes.topics)),
        shared_topics=int(_or(given.shared_topics, sizes.shared_topics)),
        produced_records=sizes.produced_records,
        request_seconds=sizes.request_seconds,
        sync_seconds=sizes.sync_seconds,
        upkeep_seconds=_or(given.upkeep_seconds, sizes.upkeep_seconds),
        upkeep_mb=_or(given.upkeep_mb, sizes.upkeep_mb),
    )
    if not 0 < given.rounds <= ROUNDS_MAX or not all(0 < gb <= GB_MAX for gb in (chosen.log_gb, chosen.compact_gb)):
        parser.error(f"1 to {ROUNDS_MAX} rounds, more than 0 and at most {GB_MAX:.0f} GB")
    if not all(0 < count <= TOPICS_MAX for count in (chosen.keys, chosen.topics, chosen.shared_topics)):
        parser.error(f"1 to {TOPICS_MAX} keys and topics")
    return Options(
        sizes=chosen,
        generators=2 if (os.cpu_count() or 1) >= 4 else 1,
        **common,
    )


def _or(given: float | None, otherwise: float) -> float:
    return otherwise if given is None else given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench log",
        description="Measure durability, recovery, compaction and scale; see docs/benchmarks.md",
    )
    add_common_options(parser, WORK_NAMES, REPOSITORY / "bench-results-log.json")
    parser.add_argument("--log-gb", type=float, metavar="GB", help=f"size of the recovered log ({FULL.log_gb:g})")
    parser.add_argument("--compact-gb", type=float, metavar="GB", help=f"size compacted ({FULL.compact_gb:g})")
    parser.add_argument("--keys", type=int, metavar="N", help=f"keys of compaction ({FULL.keys})")
    parser.add_argument("--topics", type=int, metavar="N", help=f"topics of many-topics, kwire only ({FULL.topics})")
    shared = f"topics of many-topics, both servers ({FULL.shared_topics})"
    parser.add_argument("--shared-topics", type=int, metavar="N", help=shared)
    upkeep = f"length of each part of upkeep ({FULL.upkeep_seconds:g})"
    parser.add_argument("--upkeep-seconds", type=float, metavar="S", help=upkeep)
    rate = f"MB per second to each topic meanwhile ({FULL.upkeep_mb:g})"
    parser.add_argument("--upkeep-mb", type=float, metavar="MB", help=rate)
    return parser
