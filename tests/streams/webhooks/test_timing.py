"""Due times of attempts, and the rate limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kwire.streams.webhooks.delivery.rate_limit import RateLimit
from kwire.streams.webhooks.delivery.retry_schedule import DEFAULT_SCHEDULE_MS, JITTER, RETRY_AFTER_MS_MAX, Schedule

NOW_MS = 1_700_000_000_000


@pytest.mark.proves("S2-43")
def test_the_schedule_is_that_of_the_documents() -> None:
    schedule = Schedule(DEFAULT_SCHEDULE_MS, lambda: 0.5)
    due = [schedule.due_ms(attempts, NOW_MS, None) for attempts in range(1, 9)]
    pauses = [None if each is None else (each - NOW_MS) // 1000 for each in due]
    assert pauses == [5, 300, 1800, 7200, 18_000, 36_000, 36_000, None]


@given(attempts=some.integers(1, 7), chance=some.floats(0, 1, exclude_max=True), asked=some.integers(0, 10**12))
def test_a_pause_varies_by_its_jitter_and_is_never_shorter_than_asked(attempts: int, chance: float, asked: int) -> None:
    schedule = Schedule(DEFAULT_SCHEDULE_MS, lambda: chance)
    pause_ms = DEFAULT_SCHEDULE_MS[attempts - 1]
    due_ms = schedule.due_ms(attempts, NOW_MS, None)
    assert due_ms is not None
    assert pause_ms * (1 - JITTER) - 1 <= due_ms - NOW_MS <= pause_ms * (1 + JITTER) + 1
    asked_ms = schedule.due_ms(attempts, NOW_MS, asked)
    assert asked_ms is not None
    assert asked_ms - NOW_MS >= min(asked, RETRY_AFTER_MS_MAX)
    assert asked_ms - NOW_MS <= schedule.pause_ms_max


def test_a_due_time_that_no_pause_explains_has_come() -> None:
    """The clock was wrong when the due time was set: the delivery does not wait for years."""
    schedule = Schedule((1000,), lambda: 0.5)
    assert schedule.is_due(NOW_MS, NOW_MS)
    assert not schedule.is_due(NOW_MS + 1, NOW_MS)
    assert not schedule.is_due(NOW_MS + RETRY_AFTER_MS_MAX, NOW_MS)
    assert schedule.is_due(NOW_MS + 2 * RETRY_AFTER_MS_MAX, NOW_MS)


@given(per_second=some.floats(0.01, 1000), waits=some.lists(some.floats(0, 3), min_size=1, max_size=60))
def test_no_more_go_than_the_rate_allows(per_second: float, waits: list[float]) -> None:
    limit, now, sent = RateLimit(per_second), 100.0, 0
    for wait in waits:
        now += wait
        while limit.wait_seconds(now) == 0 and sent < 10_000:
            limit.take(now)
            sent += 1
    assert sent <= max(per_second, 1) + (now - 100.0) * per_second + 1e-6 * len(waits) + 1e-3


def test_whoever_waits_as_long_as_told_may_go() -> None:
    limit = RateLimit(3)
    now = 0.0
    for _ in range(30):
        now += limit.wait_seconds(now)
        assert limit.wait_seconds(now) == 0
        limit.take(now)
