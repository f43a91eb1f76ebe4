"""Generates the fault matrix in docs/on-disk.md from tests/fault_matrix.toml. The rest of the page is manual."""

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MATRIX = ROOT / "tests" / "fault_matrix.toml"
PAGE = ROOT / "docs" / "on-disk.md"
BEGIN = "<!-- written by scripts/generate from tests/fault_matrix.toml -->\n"
END = "<!-- end of what scripts/generate writes -->\n"

FAULTS = {
    "removed": "removed",
    "emptied": "emptied",
    "flipped": "a byte flipped",
    "cut": "cut short",
    "appended": "garbage appended",
}
OUTCOMES = {"whole": "whole", "named": "named", "read_only": "read-only", "refused": "refused", "none": "n/a"}
# The outcome of faults that are not tested. For a folder, only the first fault (removed) is tested.
NOT_TRIED = "n/a"


def render() -> str:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise ValueError(f"{PAGE} has no place for the fault matrix: {BEGIN.strip()} … {END.strip()}")
    return before + BEGIN + "\n".join(_lines()) + "\n" + END + after


def _lines() -> list[str]:
    content = tomllib.loads(MATRIX.read_text(encoding="utf-8"))
    faults: list[str] = content["faults"]
    lines = [
        "",
        f"| file | stop | {' | '.join(FAULTS[fault] for fault in faults)} |",
        "|---|---|" + "---|" * len(faults),
    ]
    for row in content["file"]:
        name = row["name"] + (" (not tested yet)" if row["name"] in content["pending"] else "")
        if row["clean"] == row["killed"]:
            lines.append(_line(f"{name}: {row['about']}", "any", row["clean"], len(faults)))
        else:
            lines.append(_line(f"{name}: {row['about']}", "clean", row["clean"], len(faults)))
            lines.append(_line("", "SIGKILL", row["killed"], len(faults)))
    return [*lines, ""]


def _line(name: str, stop: str, outcomes: list[Any], count: int) -> str:
    shown = [OUTCOMES[one] for one in outcomes] + [NOT_TRIED] * (count - len(outcomes))
    return f"| {name} | {stop} | {' | '.join(shown)} |"
