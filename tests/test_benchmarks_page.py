"""docs/benchmarks.md: the table at its beginning repeats rows of the tables at its end."""

import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
SHORT, _, REST = PAGE.partition("\n## Run it\n")
ROW = re.compile(r"^\| (?P<cells>[^|]+\|[^|]+\|[^|]+\|[^|]+)\| (?:more|less) \|$", re.MULTILINE)


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|")]


def test_every_figure_of_the_first_table_is_a_measured_one() -> None:
    measured = [cells(line)[1:5] for line in REST.splitlines() if line.startswith("| ")]
    rows = [cells(match["cells"]) for match in ROW.finditer(SHORT)]
    assert len(rows) >= 10
    assert [row for row in rows if row not in measured] == []
