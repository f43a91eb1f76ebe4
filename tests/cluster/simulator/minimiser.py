"""Finds the faults that a failing seed needs: leaves out one after the other as long as the run still fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.cluster.simulator.options import Options, draw_options
from tests.cluster.simulator.simulation import Result, run
from tests.cluster.simulator.world import World

# The seconds of CPU that a search may take.
SEARCH_SECONDS: Final = 60.0


def minimised(seed: int, change: Callable[[Options], None] | None = None) -> tuple[list[str], Result]:
    """The faults without which the seed does not fail, and the result of the run with only these."""
    options = draw_options(World(seed).chance("options"))
    if change is not None:
        change(options)
    removed: frozenset[int] = frozenset()
    result = run(seed, removed, change)
    spent = result.seconds
    # Larger parts first: most faults have nothing to do with the violation.
    size = max(1, len(options.items()) // 2)
    while True:
        kept = [item for item in options.items() if item not in removed]
        for start in range(0, len(kept), size):
            if spent > SEARCH_SECONDS:
                break
            attempt = removed | frozenset(kept[start : start + size])
            found = run(seed, attempt, change)
            spent += found.seconds
            if _rule(found) and _rule(found) == _rule(result):
                removed, result = attempt, found
        if size == 1 or spent > SEARCH_SECONDS:
            break
        size //= 2
    return [options.name_of(item) for item in options.items() if item not in removed], result


def _rule(result: Result) -> str:
    """The number of the invariant, so that a search does not slip to another violation."""
    return result.violation.split(":", 1)[0]


def report(seed: int, change: Callable[[Options], None] | None = None) -> str:
    """A failing seed in words: its violation, the faults it needs, and the end of its trace."""
    faults, result = minimised(seed, change)
    lines = [f"seed {seed}: {result.violation}", "faults that are needed:", *(f"  {fault}" for fault in faults)]
    return "\n".join([*lines, "the last events:", result.tail])
