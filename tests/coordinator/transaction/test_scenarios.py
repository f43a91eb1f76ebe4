"""Every scenario produces the trace in its file. `KWIRE_RERECORD=1` rewrites the traces, to review as a diff."""

import os
from pathlib import Path

import pytest

from tests.coordinator.transaction.pairs import ALL_PAIRS, Pair
from tests.coordinator.transaction.scenario import rerun

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_leaves_its_recorded_trace(path: Path) -> None:
    trace = rerun(path)
    if os.environ.get("KWIRE_RERECORD") == "1":
        path.write_text(trace)
    assert trace == path.read_text()


def test_every_event_was_tried_in_every_state() -> None:
    tried: set[Pair] = set()
    for path in SCENARIOS:
        rerun(path, tried)
    assert sorted(ALL_PAIRS - tried) == []
