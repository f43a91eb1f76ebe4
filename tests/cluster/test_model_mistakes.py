"""Each mistake planted in the rules of the model is found by random schedules.

The kept seeds are tried first, so that the default run is short; `full` searches from a random seed.
"""

import os
from random import Random, randrange

import pytest

from tests.cluster.kept_seeds import KEPT
from tests.cluster.model.biases import BIASES
from tests.cluster.model.mistakes import Mistake
from tests.cluster.model.schedule import Failure, replay, run, shortest, trace
from tests.cluster.model.settings import INTERRUPTIONS, QUORUMS, Setting

# A search ends without a result after this many schedules; the rarest mistake needs about 2,000.
SEARCHED_MAX = 30_000
# The invariants of the state that only strict worlds check, and the mistakes that break them.
STATE = {
    "I4": Mistake.EPOCH_TWICE,
    "I5": Mistake.SEAL_IN_MEMORY,
    "I6": Mistake.NO_EPOCH_CHECK,
    "I9": Mistake.ANSWERS_MISSING,
    "I11": Mistake.ACKED_TOO_EARLY,
    "I12": Mistake.LEFTOVERS_MATCHED,
    "I13": Mistake.UNACKED_SERVED,
}


def failure_of(setting: Setting, seed: int, mistake: Mistake, *, strict: bool = False) -> Failure | None:
    try:
        run(setting, Random(seed), mistake, strict=strict)
    except Failure as failure:
        return failure
    return None


def search(mistake: Mistake, first: int) -> Failure:
    """The first failure of the biased schedules from seed `first` on."""
    for seed in range(first, first + SEARCHED_MAX):
        failure = failure_of(BIASES[mistake], seed, mistake)
        if failure is not None:
            print(f"{mistake.row} {mistake.name}: {mistake.text} ({mistake.requirements})")
            print(f"seed {seed}, {seed - first + 1} schedules from {first}, {BIASES[mistake]}: {failure}")
            return failure
    pytest.fail(f"{mistake.name}: {SEARCHED_MAX} schedules from seed {first} break nothing")


@pytest.mark.parametrize("mistake", Mistake, ids=lambda mistake: mistake.name)
def test_a_mistake_is_found_and_its_schedule_is_minimised(mistake: Mistake) -> None:
    """What finds it is what users and later leaders see, not a check of the rule itself."""
    seed, invariant = KEPT[mistake]
    failure = search(mistake, seed)
    assert failure.invariant == invariant
    steps = shortest(failure)
    print(trace(failure, steps))
    violation = replay(failure.setting, steps, mistake, strict=False)
    assert violation is not None
    assert violation.invariant == invariant
    assert replay(failure.setting, steps, None, strict=True) is None, "the correct rules break in the same schedule"


@pytest.mark.parametrize("quorum", QUORUMS, ids=str)
def test_every_quorum_needs_all_of_its_answers(quorum: tuple[int, int, int]) -> None:
    """S4-28 and S4-31: R = N - W + 1 is the smallest number of answers, for every N and W."""
    setting = Setting(quorum, weather=INTERRUPTIONS)
    found = (failure_of(setting, seed, Mistake.ANSWERS_MISSING) for seed in range(SEARCHED_MAX))
    schedules, failure = next((number, one) for number, one in enumerate(found, 1) if one is not None)
    print(f"{setting}: {schedules} schedules: {failure}")
    assert failure.invariant in ("I1", "I2", "I24")


@pytest.mark.full("searches from a random seed for what the kept seeds show")
@pytest.mark.timeout(900)
def test_mistakes_are_found_from_any_seed() -> None:
    first = int(os.environ.get("KWIRE_TEST_SEED") or randrange(1 << 32))
    print(f"KWIRE_TEST_SEED={first}")
    for mistake in Mistake:
        search(mistake, first)


@pytest.mark.parametrize("invariant", STATE)
def test_strict_worlds_check_their_state(invariant: str) -> None:
    mistake = STATE[invariant]
    found = (failure_of(BIASES[mistake], seed, mistake, strict=True) for seed in range(SEARCHED_MAX))
    failure = next(failure for failure in found if failure is not None and failure.invariant == invariant)
    assert str(failure).startswith(f"{invariant}: ")


def test_every_mistake_has_a_bias_and_a_seed() -> None:
    assert set(KEPT) == set(BIASES) == set(Mistake)
