"""The cost of an assignment, in executed lines, grows at most linearly with the partitions."""

import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kwire.coordinator import assignment
from kwire.coordinator.assignment import STRATEGIES, MemberSubscription

STEP_PARTITIONS = 500
MEMBERS = 7
# What does not depend on partitions is part of every count, so doubling them may not even double it.
SLACK = 1.02
PACKAGE = str(Path(assignment.__file__).parent)


def lines_run(strategy: str, partition_count: int, owned: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """How many lines of the package run, and the assignment."""
    members = {
        f"m{number}": MemberSubscription(topics=frozenset({"t"}), owned=owned.get(f"m{number}", {}))
        for number in range(MEMBERS)
    }
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = STRATEGIES[strategy](members, {"t": partition_count})
    finally:
        sys.settrace(before)
    assert sorted(one for share in found.values() for one in share.get("t", ())) == list(range(partition_count))
    return count, found


@pytest.mark.proves("S0-96")
@pytest.mark.parametrize("strategy", ["round_robin", "range", "sticky"])
def test_twice_the_partitions_are_at_most_twice_the_steps(strategy: str) -> None:
    counts = [lines_run(strategy, size * STEP_PARTITIONS, {})[0] for size in (1, 2, 4, 8)]
    for smaller, larger in pairwise(counts):
        assert larger <= 2 * smaller * SLACK, counts


@pytest.mark.proves("S0-96")
def test_keeping_what_members_have_is_no_more_than_linear_either() -> None:
    counts = []
    for size in (1, 2, 4, 8):
        _, owned = lines_run("sticky", size * STEP_PARTITIONS, {})
        # One has gone, so what it had is to be shared out among the others.
        del owned["m3"]
        counts.append(lines_run("sticky", size * STEP_PARTITIONS, owned)[0])
    for smaller, larger in pairwise(counts):
        assert larger <= 2 * smaller * SLACK, counts
