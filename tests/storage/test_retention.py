"""Retention: which records may go by age, size and number, and that nothing else ever does."""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.log.retention_rules import (
    NEVER,
    LogExtent,
    RetentionLimits,
    apply_message_limit,
    message_limit_start,
    next_check_ms,
    retained_start,
)

NOW_MS = 1_000_000
HOUR_MS = 3_600_000


class KnownSegment(NamedTuple):
    base_offset: int
    size_bytes: int
    newest_ms: int


def log_of(*segments: tuple[int, int], size_bytes: int = 100, start: int = 0) -> tuple[list[KnownSegment], LogExtent]:
    """Segments of (record count, time of the newest record); everything is visible."""
    made, offset = [], 0
    for count, newest_ms in segments:
        made.append(KnownSegment(offset, size_bytes, newest_ms))
        offset += count
    return made, LogExtent(start, offset, offset)


def kept_from(
    log: tuple[Sequence[KnownSegment], LogExtent], now_ms: int = NOW_MS, *, watermark: int | None = None, **limits: Any
) -> int:
    segments, extent = log
    if watermark is not None:
        extent = extent._replace(high_watermark=watermark)
    return retained_start(segments, extent, RetentionLimits(**limits), now_ms)


THREE = log_of((10, 100), (10, 200), (10, 300))


# --- time


def test_s0_58_a_segment_goes_when_its_newest_record_is_older_than_the_limit() -> None:
    assert kept_from(THREE, 1100, retention_ms=1000) == 0
    assert kept_from(THREE, 1101, retention_ms=1000) == 10
    assert kept_from(THREE, 1200, retention_ms=1000) == 10
    assert kept_from(THREE, 1201, retention_ms=1000) == 20


def test_s0_58_an_idle_log_empties_to_the_last_record() -> None:
    assert kept_from(THREE, 1300, retention_ms=1000) == 20
    assert kept_from(THREE, 1301, retention_ms=1000) == 30


def test_the_first_segment_that_stays_ends_it() -> None:
    assert kept_from(log_of((10, 100), (10, 5000), (10, 100)), 4000, retention_ms=1000) == 10


def test_a_time_to_come_keeps_its_segment() -> None:
    assert kept_from(log_of((10, NOW_MS + HOUR_MS), (10, 0)), retention_ms=0) == 0


def test_a_segment_whose_age_nobody_knows_stays() -> None:
    assert kept_from(log_of((10, -1), (10, 0)), retention_ms=1000) == 0


# --- size


@pytest.mark.parametrize(
    ("retention_bytes", "expected"),
    [(301, 0), (300, 0), (201, 0), (200, 10), (199, 10), (100, 20), (99, 20), (1, 20), (0, 30)],
)
def test_s0_59_whole_segments_go_and_the_log_stays_at_or_above_the_limit(retention_bytes: int, expected: int) -> None:
    assert kept_from(THREE, retention_bytes=retention_bytes) == expected


def test_what_lies_below_the_log_start_does_not_count_any_more() -> None:
    segments, extent = THREE
    extent = extent._replace(log_start_offset=10)
    assert kept_from((segments, extent), retention_bytes=200) == 10
    assert kept_from((segments, extent), retention_bytes=100) == 20
    # A segment that has lost only its beginning is there, with all its bytes.
    assert kept_from((segments, extent._replace(log_start_offset=9)), retention_bytes=200) == 10


# --- number


def test_s0_18_a_full_ring_drops_the_oldest_record_for_each_new_one() -> None:
    start = 0
    for watermark in range(50):
        start = message_limit_start(start, watermark, 7)
        assert start == max(0, watermark - 7)


def test_s0_60_the_number_of_records_is_exact_across_segments() -> None:
    assert kept_from(THREE, retention_messages=30) == 0
    assert kept_from(THREE, retention_messages=13) == 17
    assert kept_from(THREE, retention_messages=1) == 29
    assert kept_from(THREE, retention_messages=0) == 30


def test_the_ring_counts_what_is_visible() -> None:
    assert kept_from(THREE, watermark=25, retention_messages=10) == 15


def test_the_ring_is_held_in_memory_and_never_goes_back() -> None:
    class Start:
        log_start_offset = 5

    log = Start()
    apply_message_limit(log, 10, 6)
    assert log.log_start_offset == 5
    apply_message_limit(log, 20, 6)
    assert log.log_start_offset == 14
    apply_message_limit(log, 21, 100)
    assert log.log_start_offset == 14


# --- together


def test_s0_61_the_tightest_limit_wins() -> None:
    everything = {"retention_ms": 1000, "retention_bytes": 200, "retention_messages": 13}
    assert kept_from(THREE, 1101, **everything) == 17
    assert kept_from(THREE, 1201, **everything) == 20
    assert kept_from(THREE, 1101, **everything | {"retention_messages": 25}) == 10
    assert kept_from(THREE, 0, **everything | {"retention_bytes": 100}) == 20


def test_s0_62_without_limits_everything_stays_for_ever() -> None:
    assert kept_from(THREE, 2**62) == 0
    assert next_check_ms(100, RetentionLimits()) == NEVER


def test_s0_19_a_room_may_be_bounded_by_time_alone() -> None:
    assert kept_from(THREE, 24 * HOUR_MS + 201, retention_ms=24 * HOUR_MS) == 20


def test_s0_20_a_room_may_be_bounded_by_count_alone() -> None:
    assert kept_from(log_of((30_000, 0)), 2**62, retention_messages=10_000) == 20_000


def test_s0_21_a_hybrid_room_obeys_whichever_limit_is_hit_first() -> None:
    limits = {"retention_ms": 24 * HOUR_MS, "retention_messages": 15}
    assert kept_from(THREE, 0, **limits) == 15
    assert kept_from(THREE, 24 * HOUR_MS + 301, **limits) == 30


def test_age_and_size_do_not_count_where_the_policy_is_only_compact() -> None:
    limits = {"retention_ms": 0, "retention_bytes": 0, "is_deleted": False}
    assert kept_from(THREE, 2**62, **limits) == 0
    assert kept_from(THREE, 2**62, **limits, retention_messages=12) == 18
    assert next_check_ms(100, RetentionLimits(retention_ms=5, is_deleted=False)) == NEVER


def test_an_empty_log_stays_as_it_is() -> None:
    empty = LogExtent(7, 7, 7)
    assert retained_start([], empty, RetentionLimits(0, 0, 0), NOW_MS) == 7


def test_the_next_look_is_when_the_oldest_segment_comes_of_age() -> None:
    limits = RetentionLimits(retention_ms=1000)
    due_ms = next_check_ms(100, limits)
    assert kept_from(THREE, due_ms - 1, retention_ms=1000) == 0
    assert kept_from(THREE, due_ms, retention_ms=1000) == 10


def test_times_are_asked_of_the_oldest_segments_only() -> None:
    asked = []

    class Asked:
        def __init__(self, base_offset: int, newest_ms: int) -> None:
            self.base_offset, self.size_bytes, self._newest_ms = base_offset, 1, newest_ms

        @property
        def newest_ms(self) -> int:
            asked.append(self.base_offset)
            return self._newest_ms

    segments = [Asked(base, base * 10) for base in range(0, 100, 10)]
    assert retained_start(segments, LogExtent(10, 100, 100), RetentionLimits(retention_ms=0), 250) == 30
    assert asked == [10, 20, 30]


@given(st.data())
def test_what_stays_agrees_with_a_naive_account_of_every_record(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    dice = random.Random(data.draw(st.integers(0, 10_000)))
    segments, extent = log_of(*((count, dice.randrange(-1, 100)) for count in counts), size_bytes=10)
    extent = LogExtent(
        start := dice.randint(0, extent.log_end_offset),
        end := extent.log_end_offset,
        watermark := dice.randint(start, extent.log_end_offset),
    )
    limits = RetentionLimits(
        dice.randrange(-1, 60), dice.randrange(-1, 70), dice.randrange(-1, 12), dice.random() < 0.8
    )
    found = retained_start(segments, extent, limits, 100)
    assert start <= found <= watermark
    ends = [*(segment.base_offset for segment in segments[1:]), end]
    ring = max(start, watermark - limits.retention_messages) if limits.retention_messages >= 0 else start
    live = [(one, end_) for one, end_ in zip(segments, ends, strict=True) if end_ > ring]
    removable = {ring}
    for number in range(len(live)):
        gone, left = live[: number + 1], live[number + 1 :]
        if gone[-1][1] > watermark or not limits.is_deleted:
            break
        is_old = all(0 <= one.newest_ms < 100 - limits.retention_ms for one, _ in gone) and limits.retention_ms >= 0
        is_large = sum(one.size_bytes for one, _ in left) >= limits.retention_bytes >= 0
        if is_old or is_large:
            removable.add(gone[-1][1])
    assert found == max(removable)
