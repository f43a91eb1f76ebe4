"""The command line of this family, and the sizes of its works."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.family import FamilyOptions, add_common_options
from benchmark.options import DISK_RESERVE, ROUNDS_MAX
from benchmark.servers import KWIRE, REPOSITORY

PRODUCE, CONSUME, START_UP = "cli-produce", "cli-consume", "cli-start-up"
WORK_NAMES = (PRODUCE, CONSUME, START_UP)
KCAT = "kcat"
VALUE_BYTES = 100
RECORDS, QUICK_RECORDS = 1_000_000, 50_000
TURNS, QUICK_TURNS, TURNS_MAX = 5, 1, 100
TOPICS_PER_TURN = 2


@dataclass(frozen=True, kw_only=True)
class Options(FamilyOptions):
    records: int
    turns: int

    @property
    def disk_bytes(self) -> int:
        """The file, and the topics that both programs write in each turn."""
        return int(self.records * VALUE_BYTES * (1 + TOPICS_PER_TURN * (self.turns + 1)) * 1.2 * DISK_RESERVE)

    @property
    def estimate_share(self) -> float:
        return self.records / RECORDS * self.turns / TURNS


def parse(arguments: Sequence[str]) -> Options:
    parser = _parser()
    given = parser.parse_args(arguments)
    works = tuple(given.only.split(",")) if given.only else WORK_NAMES
    if unknown := set(works) - set(WORK_NAMES):
        parser.error(f"--only knows {', '.join(WORK_NAMES)}; not {', '.join(sorted(unknown))}")
    turns = given.turns if given.turns is not None else (QUICK_TURNS if given.quick else TURNS)
    if not 0 < given.rounds <= ROUNDS_MAX or not 0 < turns <= TURNS_MAX:
        parser.error(f"1 to {ROUNDS_MAX} rounds of 1 to {TURNS_MAX} turns")
    return Options(
        records=QUICK_RECORDS if given.quick else RECORDS,
        turns=turns,
        rounds=given.rounds,
        works=tuple(work for work in WORK_NAMES if work in works),
        servers=(KCAT, KWIRE),
        json_path=given.json,
        base_directory=given.dir,
        keep=given.keep,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench cli", description="Measure the command line beside kcat; see docs/benchmarks.md"
    )
    add_common_options(parser, WORK_NAMES, REPOSITORY / "bench-results-cli.json", beside=None)
    parser.add_argument("--turns", type=int, metavar="N", help=f"turns of each program in a round ({TURNS})")
    return parser
