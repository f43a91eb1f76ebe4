"""The text scenarios of the core."""

import os
from pathlib import Path

import pytest

from tests.cluster.core.script import play

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
RECORD = os.environ.get("KWIRE_RECORD") == "1"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    for expected, actual in play(path, record=RECORD):
        assert RECORD or actual == expected
