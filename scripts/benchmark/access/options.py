"""The command line of this family, and the sizes of its works."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmark.family import FamilyOptions, add_common_options, parse_common
from benchmark.options import DISK_RESERVE, FULL, GIGABYTE, QUICK, ROUNDS_MAX, Sizes
from benchmark.servers import REPOSITORY

ACLS, TLS, KEYS, KEY_PUBLISH = "acls", "tls", "keys", "key-publish"
WORK_NAMES = (ACLS, TLS, KEYS, KEY_PUBLISH)
# The numbers of ACLs of the servers with an authorizer.
FEW_ACLS, MANY_ACLS = 12, 1_000
SERVERS_MAX = 3  # Those of `acls`: without logins, with few ACLs and with many.
TURNS_MAX = 100
KEYS_FULL, KEYS_QUICK, KEYS_MAX = 10_000, 500, 100_000
SECONDS_MAX = 600.0
CONNECTIONS, GENERATORS = 8, 1
QUICK_SHARE = 0.1  # Estimated duration with --quick, as a share of the usual duration.


@dataclass(frozen=True, kw_only=True)
class Options(FamilyOptions):
    sizes: Sizes
    turns: int
    keys: int

    @property
    def disk_bytes(self) -> int:
        """The disk space of the turn and of the one before it, whose files Kafka deletes a minute later."""
        return int(2 * SERVERS_MAX * (self.sizes.kibibyte_records * 1024 + GIGABYTE / 4) * DISK_RESERVE)

    @property
    def estimate_share(self) -> float:
        share = 1.0 if self.sizes.kibibyte_records == FULL.kibibyte_records else QUICK_SHARE
        return share * (1 + self.turns)


def parse(arguments: Sequence[str]) -> Options:
    parser = _parser()
    given, common = parse_common(parser, arguments, WORK_NAMES)
    sizes = QUICK if given.quick else FULL
    if given.seconds is not None:
        sizes = replace(sizes, request_seconds=given.seconds)
    turns = given.turns if given.turns is not None else (1 if given.quick else 5)
    if not 0 < given.rounds <= ROUNDS_MAX or not 0 < turns <= TURNS_MAX or not 0 < sizes.request_seconds <= SECONDS_MAX:
        parser.error(f"1 to {ROUNDS_MAX} rounds of 1 to {TURNS_MAX} turns, at most {SECONDS_MAX:.0f} seconds")
    keys = given.keys if given.keys is not None else (KEYS_QUICK if given.quick else KEYS_FULL)
    if not 1 < keys <= KEYS_MAX:
        parser.error(f"2 to {KEYS_MAX:,} keys")
    return Options(
        sizes=sizes,
        turns=turns,
        keys=keys,
        **common,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench access",
        description="Measure what logins, ACLs, TLS and API keys cost; see docs/benchmarks.md",
    )
    add_common_options(parser, WORK_NAMES, REPOSITORY / "bench-results-access.json")
    parser.add_argument("--turns", type=int, metavar="N", help="turns of each server in a round (5)")
    parser.add_argument("--keys", type=int, metavar="N", help=f"keys of the work {KEYS} ({KEYS_FULL})")
    seconds = f"how long small requests are sent, and events published ({FULL.request_seconds:g})"
    parser.add_argument("--seconds", type=float, metavar="S", help=seconds)
    return parser
