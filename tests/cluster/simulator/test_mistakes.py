"""Every planted mistake is found by the simulator."""

import pytest

from tests.cluster.simulator.mistakes import BIASES, MISTAKES, Mistake, planted
from tests.cluster.simulator.partition_mistakes import PARTITION_MISTAKES
from tests.cluster.simulator.simulation import run
from tests.cluster.simulator.trim_mistakes import TRIM_MISTAKES

ALL_MISTAKES = (*MISTAKES, *PARTITION_MISTAKES, *TRIM_MISTAKES)

# A search tries this many seeds.
SEEDS_MAX = 300


def seed_that_finds(mistake: Mistake, first: int) -> tuple[int, str]:
    with planted(mistake):
        for seed in filter(mistake.only, range(first, first + SEEDS_MAX)):
            result = run(seed, change=BIASES[mistake.bias])
            if result.violation:
                return seed, result.violation
    raise AssertionError(f"{mistake.number}, {mistake.what}: not found by {SEEDS_MAX} seeds from {first}")


@pytest.mark.parametrize("mistake", ALL_MISTAKES, ids=lambda one: one.number)
def test_a_planted_mistake_is_found_by_its_seed(mistake: Mistake) -> None:
    with planted(mistake):
        result = run(mistake.seed, change=BIASES[mistake.bias])
    print(f"{mistake.number}: seed {mistake.seed} of {mistake.bias}: {result.violation}")
    assert result.violation, f"{mistake.number}, {mistake.what}: seed {mistake.seed} does not find it any more"
    found = run(mistake.seed, change=BIASES[mistake.bias])
    assert not found.violation, "the seed fails without the mistake, too"


@pytest.mark.full("searches anew for seeds, where the shorter test keeps one for each mistake")
@pytest.mark.parametrize("mistake", ALL_MISTAKES, ids=lambda one: one.number)
def test_a_planted_mistake_is_found_by_a_search(mistake: Mistake) -> None:
    seed, violation = seed_that_finds(mistake, 10_000)
    print(f"{mistake.number}: {seed - 10_000 + 1} seeds, seed {seed}: {violation}")
