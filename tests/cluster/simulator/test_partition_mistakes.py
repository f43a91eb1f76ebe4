"""Every mistake that is planted in the replicas of partitions is found by the simulator."""

import pytest

from kwire.cluster.core.store import replica, segment_store
from kwire.cluster.segment_files import partition_log, segment_files
from tests.cluster.simulator.mistakes import Mistake, planted
from tests.cluster.simulator.simulation import run
from tests.cluster.simulator.stream_kinds import runs_partition

# A search tries this many seeds.
SEEDS_MAX = 300

MISTAKES = (
    Mistake(
        "P1",
        "a batch is not durable when the frame that refers to it is",
        segment_files.SegmentFiles,
        "_flush",
        "self._logs[stream].sync()",
        "pass",
        seed=87,
    ),
    Mistake(
        "P2",
        "entries of a segment are stored before the one before it is closed",
        segment_store.SegmentStore,
        "_store",
        "if not self._has_all_before(request.segment):",
        "if False:",
        seed=3,
    ),
    Mistake(
        "P3",
        "entries are stored after a gap",
        replica,
        "_last_without_gap",
        "return matched",
        "return max([matched, *(entry.index for entry in entries)])",
        seed=2,
    ),
    Mistake(
        "P4",
        "the bytes of a batch are not compared when it is read",
        partition_log.PartitionLog,
        "read",
        "if len(batch) != ref.size_bytes or crc32c(batch) != ref.crc:",
        "if False:",
        seed=31,
    ),
    Mistake(
        "P5",
        "a segment that lost batches stays closed",
        segment_files.SegmentFiles,
        "_rewrite",
        "generation=generation, closed_end=0",
        "generation=generation",
        seed=8,
    ),
)


def seed_that_finds(mistake: Mistake, first: int) -> tuple[int, str]:
    with planted(mistake):
        for seed in range(first, first + SEEDS_MAX):
            if runs_partition(seed) and (result := run(seed)).violation:
                return seed, result.violation
    raise AssertionError(f"{mistake.number}, {mistake.what}: not found by {SEEDS_MAX} seeds from {first}")


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.number)
def test_a_planted_mistake_is_found_by_its_seed(mistake: Mistake) -> None:
    with planted(mistake):
        result = run(mistake.seed)
    print(f"{mistake.number}: seed {mistake.seed}: {result.violation}")
    assert result.violation, f"{mistake.number}, {mistake.what}: seed {mistake.seed} does not find it any more"
    assert not run(mistake.seed).violation, "the seed fails without the mistake, too"


@pytest.mark.full("searches anew for seeds, where the shorter test keeps one for each mistake")
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.number)
def test_a_planted_mistake_is_found_by_a_search(mistake: Mistake) -> None:
    seed, violation = seed_that_finds(mistake, 10_000)
    print(f"{mistake.number}: {seed - 10_000 + 1} seeds, seed {seed}: {violation}")
