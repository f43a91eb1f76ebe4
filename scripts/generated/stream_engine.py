"""Generates the pictures of docs/stream-engine.md, and its table of the specification's lines and their tests."""

from collections.abc import Callable, Sequence
from pathlib import Path

from generated.requirements import table_of_part
from generated.svg import AMBER, BLUE, FAINT_INK, GREEN, GREY, PAPER, Picture

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stream-engine.md"
# The table is between these lines of the page.
BEGIN = "<!-- The table is written by scripts/generate. -->"
END = "<!-- The end of the table. -->"

LANE_WIDTH = 190
LEFT = 110
TOP = 40
STEP = 34
CELL = 74


class SequenceDiagram:
    """A sequence diagram: one lane for each participant, time runs down."""

    def __init__(self, title: str, lanes: Sequence[tuple[str, str]], steps: int) -> None:
        self.height = TOP + 46 + STEP * steps + 20
        self.picture = Picture(LEFT * 2 + LANE_WIDTH * (len(lanes) - 1), self.height, title)
        self._x = {name: LEFT + LANE_WIDTH * number for number, (name, _) in enumerate(lanes)}
        self._y = TOP + 66
        for name, colour in lanes:
            x = self._x[name]
            self.picture.line(x, TOP + 20, x, self.height - 16, dashes="4 4")
            self.picture.box(x - 66, TOP - 16, 132, 36, colour)
            self.picture.text(x, TOP + 7, name, bold=True)

    def send(self, source: str, target: str, text: str) -> None:
        x1, x2 = self._x[source], self._x[target]
        gap = 4 if x2 > x1 else -4
        self.picture.arrow(x1 + gap, self._y, x2 - gap, self._y)
        self._label(x1, x2, text)

    def _label(self, x1: float, x2: float, text: str) -> None:
        """Write the text between the sender and the lane next to it."""
        middle = x1 + (LANE_WIDTH / 2 if x2 > x1 else -LANE_WIDTH / 2)
        width = 6.4 * len(text)
        self.picture.bar(middle - width / 2, self._y - 17, width, 14, PAPER)
        self.picture.text(middle, self._y - 6, text, size=12)
        self._y += STEP

    def lose(self, source: str, target: str, text: str) -> None:
        """A message that does not arrive."""
        x1, x2 = self._x[source], self._x[target]
        end = x1 + (x2 - x1) * 0.6
        self.picture.line(x1, self._y, end, self._y, dashes="3 3")
        self.picture.text(end + 10, self._y + 5, "✕", size=14)
        self._label(x1, x2, text)

    def note(self, lane: str, text: str) -> None:
        x, width = self._x[lane], 6.6 * len(text) + 20
        self.picture.box(x - width / 2, self._y - 18, width, 24, AMBER)
        self.picture.text(x, self._y - 2, text, size=12)
        self._y += STEP

    def render(self) -> str:
        return self.picture.render()


CLIENT = ("leader", BLUE)
STORES = (("store A", GREEN), ("store B", GREEN), ("store C", GREEN))


def append() -> str:
    diagram = SequenceDiagram(
        "The append path: an event is acknowledged when W = 2 stores have it", [CLIENT, *STORES], 9
    )
    diagram.send("leader", "store A", "Store e(7)")
    diagram.send("leader", "store B", "Store e(7)")
    diagram.lose("leader", "store C", "Store e(7)")
    diagram.send("store A", "leader", "matched 7")
    diagram.send("store B", "leader", "matched 7")
    diagram.note("leader", "acked 7: answer the user")
    diagram.send("leader", "store A", "e(8), acked 7")
    diagram.send("leader", "store C", "e(8), acked 7")
    diagram.send("store C", "leader", "matched 6, gap")
    return diagram.render()


def sealing() -> str:
    lanes = [("old leader, epoch 4", GREY), ("new leader, epoch 5", BLUE), STORES[0]]
    diagram = SequenceDiagram("Replica sealing: a store that accepted epoch 5 refuses epoch 4", lanes, 6)
    diagram.send("new leader, epoch 5", "store A", "Seal epoch 5")
    diagram.note("store A", "sealed 5, on disk")
    diagram.send("store A", "new leader, epoch 5", "Sealed: entries, acked")
    diagram.send("old leader, epoch 4", "store A", "Store e(9)")
    diagram.send("store A", "old leader, epoch 4", "Stale: sealed 5")
    diagram.note("old leader, epoch 4", "stops")
    return diagram.render()


def recovery() -> str:
    lanes = [("master", GREY), CLIENT, STORES[0], STORES[1]]
    diagram = SequenceDiagram("The recovery of a segment by a new leader", lanes, 11)
    diagram.send("leader", "master", "begin recovery")
    diagram.send("leader", "store A", "Seal")
    diagram.send("leader", "store B", "Seal")
    diagram.send("store A", "leader", "e(1-3), acked 2")
    diagram.send("store B", "leader", "e(1-2), acked 2")
    diagram.note("leader", "R answers: e(1-3), then the end")
    diagram.send("leader", "store A", "restamp 3, bridge 4")
    diagram.send("leader", "store B", "e(3), bridge 4")
    diagram.send("store A", "leader", "matched 4")
    diagram.send("store B", "leader", "matched 4")
    diagram.send("leader", "master", "sealed, end 4")
    return diagram.render()


def hole() -> str:
    """The worked example: what the stores hold before and after the recovery."""
    before = {"A": ("e(1) @1", "e(2) @1", "e(3) @1", ""), "B": ("e(1) @1", "", "e(3) @1", "")}
    after = {"A": ("e(1) @1", "e(2) @1", "e(3) @1", ""), "B": ("e(1) @2", "h(2) @2", "e(3) @2", "b(4) @2")}
    picture = Picture(800, 280, "The example with a hole: the entry with the higher stamp holds")
    for left, title, content in ((40, "leader 1 has crashed", before), (430, "leader 2 has recovered", after)):
        picture.text(left + 36 + CELL * 2, 40, title, bold=True)
        rows = {"A": content["A"], "B": content["B"], "C": content["B"]}
        for row, (store, cells) in enumerate(rows.items()):
            top = 60 + row * 56
            picture.text(left + 14, top + 28, store, bold=True)
            for column, cell in enumerate(cells):
                colour = PAPER if not cell else AMBER if cell[0] in "hb" else GREEN if cell.endswith("2") else BLUE
                picture.box(left + 36 + column * CELL, top, CELL - 6, 44, colour)
                picture.text(left + 36 + column * CELL + (CELL - 6) / 2, top + 27, cell, size=12)
    picture.text(
        400, 250, "e event, h hole, b bridge; the number after @ is the stamp epoch. A was not reached.", size=12,
        ink=FAINT_INK,
    )  # fmt: skip
    return picture.render()


PICTURES: dict[str, Callable[[], str]] = {
    "pictures/stream-engine-append.svg": append,
    "pictures/stream-engine-hole.svg": hole,
    "pictures/stream-engine-recovery.svg": recovery,
    "pictures/stream-engine-sealing.svg": sealing,
}


def render_page() -> str:
    """The page with its table. Everything else on the page is written by hand."""
    page = PAGE.read_text(encoding="utf-8")
    before, begin, rest = page.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(f"{END}\n")
    if not begin or not end:
        raise ValueError(f'{PAGE.name}: the lines "{BEGIN}" and "{END}" must enclose the table')
    return f"{before}{begin}{table_of_part('S4')}\n{end}{after}"
