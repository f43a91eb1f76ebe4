"""Runs the cells of the matrix: copy a directory, damage files, start a server on it, ask what became of them."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from kwire.testing import ServerFailed
from tests.support.clients_raw import RawConnection
from tests.support.damage.faults import Fault, Stop, damage
from tests.support.damage.kinds import Kind
from tests.support.damage.outcomes import Outcome, Silent
from tests.support.damage.probes import Probe
from tests.support.damage.world import World, settings
from tests.support.server import KwireProcess

# The start of files that are damaged all at once, in all ways: what becomes of each is clear by itself.
TOGETHER: Final = "one"
REFUSAL: Final = "kwire: cannot start: "
TRACEBACK: Final = "Traceback (most recent call last)"
# A refusal says what to do: with one of these words.
REMEDIES: Final = ("run", "restore", "remove", "move")


class Cell(NamedTuple):
    kind: Kind
    fault: Fault
    stop: Stop


Results = dict[Cell, Outcome | Silent]


def run_cells(world: World, directory: Path, cells: Iterable[Cell]) -> Results:
    """What came of each cell."""
    results: Results = {}
    for number, together in enumerate(_starts(cells)):
        results |= _run(world, directory / str(number), together)
    return results


def _starts(cells: Iterable[Cell]) -> Iterator[list[Cell]]:
    """The cells of one start each."""

    def key(cell: Cell) -> tuple[str, ...]:
        return (cell.stop, cell.kind.start) if cell.kind.start == TOGETHER else (cell.stop, cell.kind.start, cell.fault)

    for _, together in groupby(sorted(cells, key=key), key):
        yield list(together)


def _run(world: World, directory: Path, cells: list[Cell]) -> Results:
    shutil.copytree(world.directory / cells[0].stop, directory)
    (directory / "stderr.log").unlink()
    results: Results = {}
    for cell in list(cells):
        path = cell.kind.find(directory, cell.fault)
        if not path.exists():
            results[cell] = Outcome.NONE
            cells.remove(cell)
            continue
        damage(path, cell.fault)
    if not cells:
        return results
    server = KwireProcess(directory, settings=settings(directory))
    try:
        outcome = _start(server)
        found = _ask(world, server, cells) if outcome is None else {}
        is_clear = not any(isinstance(one, Silent) for one in found.values())
        if found and (is_clear or len(cells) == 1 or cells[0].kind.start == TOGETHER):
            return results | found
        if outcome is not None and len(cells) == 1:
            return results | {cells[0]: outcome}
    finally:
        server.kill()
        shutil.rmtree(directory)
    # Which one of them was it? Each for itself says so.
    for number, cell in enumerate(cells):
        results |= _run(world, directory.with_name(f"{directory.name}-{number}"), [cell])
    return results


def _start(server: KwireProcess) -> Outcome | Silent | None:
    """None when it serves."""
    server.start()
    try:
        server.ready()
    except ServerFailed:
        text = server.stderr_path.read_text(errors="replace")
        refusal = text[text.find(REFUSAL) :] if REFUSAL in text else ""
        if TRACEBACK in text or not refusal:
            return Silent(f"the server did not start: {text[-1000:]}")
        if not any(word in refusal.split() for word in REMEDIES):
            return Silent(f"the server refuses to start and names no remedy: {refusal.strip()}")
        return Outcome.REFUSED
    return None


def _ask(world: World, server: KwireProcess, cells: list[Cell]) -> Results:
    results: Results = {}
    with RawConnection(server.kafka_address) as connection:
        probe = Probe(world, server, connection)
        for cell in cells:
            try:
                results[cell] = cell.kind.probe(probe, cell.fault)
            except Silent as silent:
                results[cell] = silent
    text = server.stderr_path.read_text(errors="replace")
    if TRACEBACK in text:
        at = text.index(TRACEBACK)
        results[cells[0]] = Silent(f"a traceback in the server's log: {text[max(at - 300, 0) : at + 1500]}")
    return results


def table(results: Mapping[Cell, Outcome | Silent]) -> str:
    """One line for each kind of file and way to stop, one column for each fault."""
    rows = [("file", "stop", *Fault)]
    for (name, stop), cells in groupby(results, lambda cell: (cell.kind.name, cell.stop)):
        found = {cell.fault: results[cell] for cell in cells}
        shown = [found.get(fault) for fault in Fault]
        rows.append((name, stop, *("SILENT" if isinstance(one, Silent) else one or "" for one in shown)))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)
