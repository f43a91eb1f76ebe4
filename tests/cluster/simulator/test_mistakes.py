"""Every planted mistake is found by the simulator."""

import pytest

from tests.cluster.simulator.mistakes import MISTAKES, Mistake, many_leaders, planted
from tests.cluster.simulator.simulation import run

# A search tries this many seeds.
SEEDS_MAX = 300


def seed_that_finds(mistake: Mistake, first: int) -> tuple[int, str]:
    with planted(mistake):
        for seed in range(first, first + SEEDS_MAX):
            result = run(seed, change=many_leaders)
            if result.violation:
                return seed, result.violation
    raise AssertionError(f"{mistake.number}, {mistake.what}: not found by {SEEDS_MAX} seeds from {first}")


FOUND = tuple(mistake for mistake in MISTAKES if mistake.seed is not None)


@pytest.mark.parametrize("mistake", FOUND, ids=lambda one: one.number)
def test_a_planted_mistake_is_found_by_its_seed(mistake: Mistake) -> None:
    assert mistake.seed is not None
    with planted(mistake):
        result = run(mistake.seed, change=many_leaders)
    print(f"{mistake.number}: seed {mistake.seed}: {result.violation}")
    assert result.violation, f"{mistake.number}, {mistake.what}: seed {mistake.seed} does not find it any more"
    assert not run(mistake.seed, change=many_leaders).violation, "the seed fails without the mistake, too"


@pytest.mark.full("searches anew for seeds, where the shorter test keeps one for each mistake")
@pytest.mark.parametrize("mistake", FOUND, ids=lambda one: one.number)
def test_a_planted_mistake_is_found_by_a_search(mistake: Mistake) -> None:
    seed, violation = seed_that_finds(mistake, 10_000)
    print(f"{mistake.number}: {seed - 10_000 + 1} seeds, seed {seed}: {violation}")
