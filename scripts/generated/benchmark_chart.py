"""Generates docs/pictures/benchmarks.svg from the tables of docs/benchmarks.md."""

import math
import re
from pathlib import Path
from typing import NamedTuple

from generated.svg import FAINT_INK, Picture

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
FIRST_TABLE_HEADING = "## The figures in short"
_ROW = re.compile(
    r"^\| (?P<name>[^|]+?) \| (?P<unit>[^|]+?) \| (?P<other>[^|]+?) \| (?P<kwire>[^|]+?) \| (?P<better>more|less) \|"
)

WIDTH, ROW_HEIGHT, TOP, BOTTOM = 860, 30, 74, 40
AXIS_LEFT, AXIS_RIGHT = 390, 790
# The axis goes from a twentieth to twenty times, in a logarithmic scale.
RATIO_MAX = 20
BETTER, WORSE = "#2f9e6e", "#d97742"


class Measure(NamedTuple):
    """A row of the table: figures of the other server and of kwire, and whether more or less of it is better."""

    name: str
    unit: str
    other: float
    kwire: float
    better: str

    @property
    def advantage(self) -> float:
        """How many times better kwire is; below 1, it is worse."""
        return self.kwire / self.other if self.better == "more" else self.other / self.kwire


def measures(page: str) -> list[Measure]:
    chapter = page.partition(FIRST_TABLE_HEADING)[2].partition("\n## ")[0]
    return [
        Measure(match["name"], match["unit"], _number(match["other"]), _number(match["kwire"]), match["better"])
        for match in map(_ROW.match, chapter.splitlines())
        if match
    ]


def render() -> str:
    rows = measures(PAGE.read_text(encoding="utf-8"))
    height = TOP + ROW_HEIGHT * len(rows) + BOTTOM
    picture = Picture(WIDTH, height, "How many times better or worse kwire is than the other server, by measure")
    picture.text(
        24, 30, "kwire beside Apache Kafka and NATS JetStream, on the same machine", size=15, anchor="start", bold=True
    )
    picture.text(
        24,
        50,
        "Right of the line kwire is better, left of it the other server. Logarithmic scale.",
        size=12,
        anchor="start",
        ink=FAINT_INK,
    )
    for ratio in (1 / 10, 1 / 3, 1, 3, 10):
        dashes = "" if ratio == 1 else "3 4"
        picture.line(_x(ratio), TOP - 8, _x(ratio), height - BOTTOM + 4, dashes=dashes)
        label = "equal" if ratio == 1 else f"{max(ratio, 1 / ratio):.0f} times"
        picture.text(_x(ratio), height - BOTTOM + 22, label, size=11, ink=FAINT_INK)
    for number, row in enumerate(rows):
        _draw(picture, row, TOP + ROW_HEIGHT * number)
    return picture.render()


def _draw(picture: Picture, row: Measure, top: float) -> None:
    left, right = sorted((_x(1), _x(row.advantage)))
    picture.text(AXIS_LEFT - 24, top + 17, row.name, size=12, anchor="end")
    picture.bar(left, top + 4, max(right - left, 2), ROW_HEIGHT - 12, BETTER if row.advantage >= 1 else WORSE)
    ratio = max(row.advantage, 1 / row.advantage)
    if row.advantage >= 1:
        picture.text(right + 6, top + 17, f"{ratio:.2g}x", size=11, anchor="start")
    else:
        picture.text(left - 6, top + 17, f"{ratio:.2g}x", size=11, anchor="end")


def _x(ratio: float) -> float:
    middle, half = (AXIS_LEFT + AXIS_RIGHT) / 2, (AXIS_RIGHT - AXIS_LEFT) / 2
    return middle + half * math.log(ratio) / math.log(RATIO_MAX)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
