"""The command line of this family, and the sizes of its works."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.family import FamilyOptions, add_common_options, parse_common
from benchmark.options import GIGABYTE, ROUNDS_MAX
from benchmark.servers import REPOSITORY

REBALANCE, COMMITS, HEARTBEATS, MANY_GROUPS = "rebalance", "commits", "heartbeats", "many-groups"
WORK_NAMES = (REBALANCE, COMMITS, HEARTBEATS, MANY_GROUPS)
CLASSIC, CONSUMER = "classic", "consumer"
PROTOCOLS = (CLASSIC, CONSUMER)

GROUPS_MAX, MEMBERS_MAX = 10_000, 1_000
SECONDS_MAX = 600.0
QUICK_SHARE = 0.2  # Estimated duration with --quick, as a share of the usual duration.


@dataclass(frozen=True)
class Sizes:
    """The sizes of the works."""

    rebalances: int
    commit_seconds: float
    request_seconds: float
    groups: int
    members: int
    heartbeat_seconds: float


FULL = Sizes(50, 10.0, 10.0, 1_000, 10, 30.0)
QUICK = Sizes(3, 1.0, 1.0, 10, 10, 4.0)


@dataclass(frozen=True, kw_only=True)
class Options(FamilyOptions):
    sizes: Sizes

    @property
    def disk_bytes(self) -> int:
        """The disk space for some hundred thousand commits of about a hundred bytes."""
        return GIGABYTE

    @property
    def estimate_share(self) -> float:
        return 1.0 if self.sizes.request_seconds == FULL.request_seconds else QUICK_SHARE


def parse(arguments: Sequence[str]) -> Options:
    parser = _parser()
    given, common = parse_common(parser, arguments, WORK_NAMES)
    sizes = QUICK if given.quick else FULL
    chosen = Sizes(
        rebalances=sizes.rebalances,
        commit_seconds=sizes.commit_seconds,
        request_seconds=sizes.request_seconds,
        groups=sizes.groups if given.groups is None else given.groups,
        members=sizes.members if given.members is None else given.members,
        heartbeat_seconds=sizes.heartbeat_seconds if given.heartbeat_seconds is None else given.heartbeat_seconds,
    )
    if not 0 < given.rounds <= ROUNDS_MAX or not 0 < chosen.heartbeat_seconds <= SECONDS_MAX:
        parser.error(f"1 to {ROUNDS_MAX} rounds, at most {SECONDS_MAX:.0f} seconds")
    if not 0 < chosen.groups <= GROUPS_MAX or not 0 < chosen.members <= MEMBERS_MAX:
        parser.error(f"1 to {GROUPS_MAX} groups of 1 to {MEMBERS_MAX} members")
    return Options(
        sizes=chosen,
        **common,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench groups",
        description="Measure rebalances, offset commits and heartbeats; see docs/benchmarks.md",
    )
    add_common_options(parser, WORK_NAMES, REPOSITORY / "bench-results-groups.json")
    parser.add_argument("--groups", type=int, metavar="N", help=f"groups of many-groups ({FULL.groups})")
    parser.add_argument("--members", type=int, metavar="N", help=f"members of each group ({FULL.members})")
    length = f"how long many-groups is watched ({FULL.heartbeat_seconds:g})"
    parser.add_argument("--heartbeat-seconds", type=float, metavar="S", help=length)
    return parser
