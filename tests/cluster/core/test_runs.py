"""Runs of entries, compared with a dictionary."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kwire.cluster.core.entries import INDEX_MAX, Kind, Range, Run, joined, joined_ranges, without
from kwire.cluster.core.runs import EntryRuns

RUNS = st.builds(
    lambda first, size, kind, stamp: Run(first, first + size, kind, 1, stamp),
    st.integers(1, 20), st.integers(0, 4), st.sampled_from(Kind), st.integers(1, 3),
)  # fmt: skip
CHANGES = st.lists(st.one_of(RUNS, st.integers(0, 20)), max_size=30)


@given(CHANGES, st.integers(1, 25), st.integers(0, 25))
def test_runs_equal_a_dictionary(changes: list[Run | int], first: int, last: int) -> None:
    runs = EntryRuns()
    twin: dict[int, tuple[Kind, int, int]] = {}
    for change in changes:
        if isinstance(change, int):
            runs.remove_after(change)
            twin = {index: value for index, value in twin.items() if index <= change}
        else:
            runs.put(change)
            twin |= dict.fromkeys(range(change.first, change.last + 1), change[2:])
    assert _expanded(list(runs)) == twin
    assert list(runs) == joined(runs), "adjacent runs differ"
    assert runs.last == max(twin, default=0)
    for index in range(30):
        found = runs.at(index)
        assert (None if found is None else found[2:]) == twin.get(index)
    assert _expanded(list(runs.between(first, last))) == {k: v for k, v in twin.items() if first <= k <= last}


def _expanded(runs: list[Run]) -> dict[int, tuple[Kind, int, int]]:
    return {index: run[2:] for run in runs for index in range(run.first, run.last + 1)}


RANGES = st.builds(lambda first, size: Range(first, first + size), st.integers(1, 20), st.integers(0, 5))


@given(st.lists(RANGES, max_size=6), RANGES)
def test_ranges_equal_sets(ranges: list[Range], removed: Range) -> None:
    together = joined_ranges(ranges)
    assert _indexes(together) == _indexes(ranges)
    assert all(one.last + 1 < other.first for one, other in pairwise(together))
    assert _indexes(without(together, removed)) == _indexes(ranges) - _indexes([removed])


def _indexes(ranges: list[Range]) -> set[int]:
    return {index for one in ranges for index in range(one.first, one.last + 1)}


def test_a_range_without_an_end_is_cut() -> None:
    assert without([Range(1, INDEX_MAX)], Range(1, 9)) == [Range(10, INDEX_MAX)]
