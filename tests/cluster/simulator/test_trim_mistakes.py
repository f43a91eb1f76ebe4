"""Every mistake that is planted in the trimming of streams is found by the simulator."""

import pytest

from kwire.cluster.core.reader import reader
from kwire.cluster.core.store import replica
from kwire.cluster.master import state
from tests.cluster.simulator.mistakes import Mistake, planted
from tests.cluster.simulator.simulation import run

# A search tries this many seeds.
SEEDS_MAX = 300

MISTAKES = (
    Mistake(
        "T1",
        "a store trims beyond the start of the stream",
        replica.Replica,
        "trim",
        "min(first, self.closed_end)",
        "min(first + 1, self.closed_end)",
        seed=0,
    ),
    Mistake(
        "T2",
        "the master counts reports of an earlier start",
        state.SegmentEntry,
        "from_start",
        "one.start == start",
        "True",
        seed=8,
    ),
    Mistake(
        "T3",
        "a reader goes on at the start without a gap",
        reader.Reader,
        "_skip_to",
        "self.deliveries.append(Trimmed(self.position, start))",
        "pass",
        seed=8,
    ),
)


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
    with planted(mistake):
        found = next((one for seed in range(10_000, 10_000 + SEEDS_MAX) if (one := run(seed)).violation), None)
    assert found is not None, f"{mistake.number}, {mistake.what}: not found by {SEEDS_MAX} seeds"
    print(f"{mistake.number}: {found.seed - 10_000 + 1} seeds, seed {found.seed}: {found.violation}")
