"""Random schedules of the model with the correct rules break no invariant.

S4-13 to S4-39 as far as a model can show them: one epoch per leader, sealing, fencing, recovery, re-stamping, holes,
bridges, the matched index, the parallel path. The model is not the server, so no line is marked as proved here.
"""

import os
import time
from collections import Counter
from random import Random, randrange

import pytest

from tests.cluster.model.schedule import Failure, replay, run, shortest, trace
from tests.cluster.model.settings import QUORUMS, Setting
from tests.cluster.model.world import FATES, Step
from tests.support.effort import repetitions

# Of these schedules, one is looked into for the faults that fired.
TALLIED = 5
# What must have happened in the schedules of one quorum and policy.
FAULTS = (
    *("lost", "stays", "shortened", "not synced"),
    *("crash_leader", "crash_store", "damage", "wipe", "replace", "forget", "read", "elect", "resend"),
)


def tally(steps: list[Step], fired: Counter[str]) -> None:
    for step in steps:
        fired[FATES[step[2]] if step[0] == "deliver" else step[0]] += 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize("sparse", [False, True], ids=["prefix", "sparse"])
@pytest.mark.parametrize("quorum", QUORUMS, ids=str)
def test_correct_rules_break_no_invariant(quorum: tuple[int, int, int], sparse: bool) -> None:
    """20,000 schedules by default over all quorums and policies, a million by `soak`."""
    first = int(os.environ.get("KWIRE_TEST_SEED") or randrange(1 << 32))
    count = repetitions(quick=2_000, full=10_000)
    print(f"KWIRE_TEST_SEED={first}")
    done: Counter[str] = Counter()
    fired: Counter[str] = Counter()
    began = time.process_time()
    for seed in range(first, first + count):
        random = Random(seed)
        setting = Setting.draw(quorum, sparse=sparse, random=random)
        try:
            world = run(setting, random)
        except Failure as failure:
            pytest.fail(f"KWIRE_TEST_SEED={seed}: {setting}: {failure}\n{trace(failure, shortest(failure))}")
        done["recoveries decided"] += world.recoveries
        done["recoveries and bridges completed"] += world.completed
        done["segments closed"] += world.closed
        done["segments left open"] += world.master.unsealed()
        done["events acknowledged"] += len(world.history.acked)
        done["entries read"] += len(world.history.delivered)
        if not seed % TALLIED:
            tally(world.steps, fired)
    rate = count / (time.process_time() - began)
    print(f"{count} schedules, 0 violations, {rate:.0f} schedules per second")
    print(", ".join(f"{name} {number}" for name, number in done.items()))
    print(f"in one of {TALLIED}:", ", ".join(f"{name} {number}" for name, number in fired.items()))
    assert min(done.values()) > 0
    assert [name for name in FAULTS if not fired[name]] == []


def test_a_seed_repeats_its_schedule() -> None:
    for seed in range(200):
        worlds = []
        for _ in range(2):
            random = Random(seed)
            setting = Setting.draw(QUORUMS[seed % len(QUORUMS)], sparse=seed % 2 == 0, random=random)
            worlds.append(run(setting, random))
        assert worlds[0].steps == worlds[1].steps
        assert worlds[0].history.acked == worlds[1].history.acked
        assert replay(worlds[0].setting, worlds[0].steps, None, strict=True) is None
