"""What has to come of each cell, from tests/fault_matrix.toml."""

import tomllib
from pathlib import Path
from typing import Final

from tests.support.damage.faults import Fault, Stop
from tests.support.damage.kinds import KINDS
from tests.support.damage.matrix import Cell
from tests.support.damage.outcomes import Outcome

PATH: Final = Path(__file__).resolve().parents[2] / "fault_matrix.toml"


def load_expected() -> tuple[dict[Cell, Outcome], frozenset[str]]:
    """The outcome of every cell, and the names of kinds that are not compared yet."""
    content = tomllib.loads(PATH.read_text(encoding="utf-8"))
    assert content["faults"] == list(Fault)
    rows = {row["name"]: row for row in content["file"]}
    assert list(rows) == [kind.name for kind in KINDS], "fault_matrix.toml and kinds.py name other files"
    expected = {
        Cell(kind, fault, stop): Outcome(value)
        for kind in KINDS
        for stop in Stop
        for fault, value in zip(kind.faults, rows[kind.name][stop], strict=True)
    }
    pending = frozenset(content["pending"])
    assert pending <= rows.keys()
    return expected, pending
