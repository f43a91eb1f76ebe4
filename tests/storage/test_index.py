"""The sparse index: each look-up agrees with a scan over everything."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from storage.segment.index import ENTRY_BYTES, NO_MAX_TIMESTAMP, SparseIndex, decode_sealed

BASE = 2**40

steps = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000), st.integers(0, 30)), max_size=60)


def build(given_steps: list[tuple[int, int, int]]) -> tuple[SparseIndex, list[tuple[int, int, int]]]:
    """An index and the same entries as (offset, position, timestamp)."""
    index, naive = SparseIndex(BASE), []
    offset, position, timestamp = BASE, 0, 0
    for offset_step, position_step, timestamp_step in given_steps:
        offset, position, timestamp = offset + offset_step, position + position_step, timestamp + timestamp_step
        index.add(offset, position, timestamp)
        naive.append((offset, position, timestamp))
    return index, naive


@given(steps, st.integers(-5, 4000))
def test_an_offset_is_found_as_by_a_scan(given_steps: list[tuple[int, int, int]], distance: int) -> None:
    index, naive = build(given_steps)
    expected = (0, BASE)
    for offset, position, _ in naive:
        if offset <= BASE + distance:
            expected = (position, offset)
    assert index.find_offset(BASE + distance) == expected


@given(steps, st.integers(0, 300_000))
def test_a_boundary_is_found_as_by_a_scan(given_steps: list[tuple[int, int, int]], limit: int) -> None:
    index, naive = build(given_steps)
    expected = (0, BASE)
    for offset, position, _ in naive:
        if position <= limit:
            expected = (position, offset)
    assert index.find_position(limit) == expected


@given(steps, st.integers(-1, 2000))
def test_a_timestamp_is_found_as_by_a_scan(given_steps: list[tuple[int, int, int]], wanted: int) -> None:
    index, naive = build(given_steps)
    expected = (0, BASE)
    for offset, position, timestamp in naive:
        if timestamp < wanted:
            expected = (position, offset)
    assert index.find_timestamp(wanted) == expected


@given(steps, st.integers(0, 300_000))
def test_a_cut_forgets_what_lies_behind(given_steps: list[tuple[int, int, int]], limit: int) -> None:
    index, naive = build(given_steps)
    index.truncate(limit)
    assert list(index.positions) == [position for _, position, _ in naive if position < limit]
    assert len(index.offsets) == len(index.positions) == len(index.timestamps)


@given(steps, st.integers(0, 60))
def test_entries_survive_the_file(given_steps: list[tuple[int, int, int]], start: int) -> None:
    index, naive = build(given_steps)
    start = min(start, len(index))
    data = index.encode()
    assert len(data) == ENTRY_BYTES * len(naive)
    assert index.encode(start) == data[ENTRY_BYTES * start :]
    again = SparseIndex.decode(BASE, data)
    assert (again.offsets, again.positions, again.timestamps) == (index.offsets, index.positions, index.timestamps)
    assert again.written_count == len(index)


@given(steps, st.integers(0, 2**32), st.integers(NO_MAX_TIMESTAMP, 2**62))
def test_a_seal_fits_its_own_bytes_only(given_steps: list[tuple[int, int, int]], size: int, largest: int) -> None:
    index, _ = build(given_steps)
    data = index.encode() + index.encode_seal(size, largest)
    found = decode_sealed(BASE, data, size)
    assert found is not None
    assert found[0].positions == index.positions
    assert found[1] == largest
    assert decode_sealed(BASE, data, size + 1) is None
    assert decode_sealed(BASE, data[:-1], size) is None
    assert decode_sealed(BASE, data[:-ENTRY_BYTES], size) is None
    for position in range(0, len(data), 7):
        changed = bytearray(data)
        changed[position] ^= 4
        assert decode_sealed(BASE, bytes(changed), size) is None
    # A seal is not an entry.
    assert SparseIndex.decode(BASE, data).positions == index.positions


@given(st.binary(max_size=200))
def test_random_bytes_give_rising_entries(data: bytes) -> None:
    index = SparseIndex.decode(BASE, data)
    for column in (index.offsets, index.positions):
        assert all(before < after for before, after in pairwise(column))
    assert list(index.timestamps) == sorted(index.timestamps)
