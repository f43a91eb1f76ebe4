"""The command line of this family, and the durations of the parts of an attack."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.abuse.attack import Attack
from benchmark.abuse.attacks import ATTACKS
from benchmark.family import FamilyOptions, add_common_options, parse_common
from benchmark.options import GIGABYTE, ROUNDS_MAX
from benchmark.servers import REPOSITORY

WORK_NAMES = tuple(attack.name for attack in ATTACKS)
SECONDS_MAX = 120.0
DISK_GB = 4  # The largest attack writes a request of 51 MB ten times.
QUICK_SHARE = 0.1  # Estimated duration with --quick, as a share of the usual duration.


@dataclass(frozen=True)
class Times:
    """The duration of the measurement before the attack, the duration of the attack, and the maximum wait for the
    release of memory."""

    before_seconds: float
    attack_seconds: float
    after_seconds: float


FULL = Times(10.0, 10.0, 60.0)
QUICK = Times(2.0, 2.0, 5.0)


@dataclass(frozen=True, kw_only=True)
class Options(FamilyOptions):
    times: Times
    is_quick: bool

    def size_of(self, attack: Attack) -> int:
        return attack.quick if self.is_quick else attack.full

    @property
    def disk_bytes(self) -> int:
        return DISK_GB * GIGABYTE

    @property
    def estimate_share(self) -> float:
        return QUICK_SHARE if self.is_quick else 1.0


def parse(arguments: Sequence[str]) -> Options:
    parser = _parser()
    given, common = parse_common(parser, arguments, WORK_NAMES)
    times = QUICK if given.quick else FULL
    seconds = times.attack_seconds if given.seconds is None else given.seconds
    if not 0 < given.rounds <= ROUNDS_MAX or not 0 < seconds <= SECONDS_MAX:
        parser.error(f"1 to {ROUNDS_MAX} rounds, at most {SECONDS_MAX:.0f} seconds")
    return Options(
        times=Times(times.before_seconds, seconds, times.after_seconds),
        is_quick=given.quick,
        **common,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench abuse",
        description="Attack kwire and measure stalls, memory and what a good client notices; see docs/benchmarks.md",
    )
    add_common_options(parser, WORK_NAMES, REPOSITORY / "bench-results-abuse.json", beside=None)
    parser.add_argument(
        "--seconds", type=float, metavar="S", help=f"how long an attack lasts ({FULL.attack_seconds:g})"
    )
    return parser
