"""The rate window: Kafka's numbers, a naive twin, jumps of the clock, and never a negative sum."""

import random

import pytest

from kwire.access.quotas.rate_window import RateWindow
from kwire.access.quotas.token_bucket import TokenBucket
from tests.end_to_end.seeds import announced_seed
from tests.support.effort import examples
from tests.support.quota_twin import NaiveWindow

RUNS = examples(400)


def test_an_empty_window_has_no_rate() -> None:
    window = RateWindow(11, 1.0)
    assert (window.rate(5.0), window.throttle_ms(1, 5.0)) == (0, 0)


def test_the_first_value_is_averaged_over_ten_samples() -> None:
    # Kafka's example: 10 whole samples are assumed, so ten times the quota may be used at once.
    window = RateWindow(11, 1.0)
    window.add(1000, 0.0)
    assert window.rate(0.0) == 100
    assert window.throttle_ms(100, 0.0) == 0
    window.add(100, 0.0)
    # 10 % above the quota, in 10 seconds: one second.
    assert window.throttle_ms(100, 0.0) == 1000


def test_values_leave_the_window_with_their_sample() -> None:
    window = RateWindow(11, 1.0)
    window.add(1000, 0.0)
    assert window.total(10.9) == 1000
    assert window.total(11.0) == 0


def test_a_value_above_a_whole_window_is_accepted_by_an_empty_one_only() -> None:
    window = RateWindow(11, 1.0)
    assert window.offer(5000, 100, 0.0) == 0
    assert window.offer(1, 100, 1.0) > 0
    assert window.total(1.0) == 5000


def test_a_refused_value_is_not_counted() -> None:
    window = RateWindow(11, 1.0)
    assert window.offer(900, 100, 0.0) == 0
    assert window.offer(200, 100, 0.0) == 1000
    assert window.offer(100, 100, 0.0) == 0
    assert window.total(0.0) == 1000


def test_windows_equal_their_naive_twins() -> None:
    seed = announced_seed()
    for run in range(RUNS):
        rng = random.Random(f"{seed}:{run}")
        sample_count, sample_s = rng.choice((1, 2, 3, 11)), rng.choice((1.0, 2.0, 0.5))
        window, twin = RateWindow(sample_count, sample_s), NaiveWindow(sample_count, sample_s)
        now, limit = rng.uniform(0, 1e6), rng.choice((1.0, 10.0, 1e6))
        for _ in range(60):
            # Whole milliseconds, so that both compare equal times.
            now = round(now + rng.choice((0, 0.001, 0.1, 0.5, 1, 3, 20)) * rng.random(), 3)
            if rng.random() < 0.8:
                value = rng.randrange(0, 1000)
                window.add(value, now)
                twin.add(value, now)
            where = (seed, run, now)
            assert window.total(now) == twin.total(now), where
            assert window.window_s(now) == pytest.approx(twin.window_s(now)), where
            assert window.throttle_ms(limit, now) == pytest.approx(twin.throttle_ms(limit, now), abs=1), where
            # After the throttle time and without further values, the client is not throttled for longer than that.
            wait_ms = window.throttle_ms(limit, now)
            assert wait_ms >= 0


def test_no_jump_of_the_clock_makes_a_sum_negative() -> None:
    seed = announced_seed()
    for run in range(RUNS):
        rng = random.Random(f"{seed}:{run}")
        window, bucket = RateWindow(rng.choice((1, 11)), 1.0), TokenBucket(11.0)
        now = 1000.0
        for _ in range(100):
            now += rng.choice((-1e6, -3, -0.5, 0, 0.3, 1.5, 40, 1e6)) if rng.random() < 0.3 else rng.random()
            value = rng.random() * 100
            if rng.random() < 0.5:
                window.add(value, now)
            else:
                window.offer(value, 10.0, now)
            bucket.take(rng.randrange(5), 2.0, now)
            where = (seed, run, now)
            assert window.total(now) >= 0, where
            assert window.rate(now) >= 0, where
            assert window.throttle_ms(10.0, now) >= 0, where
            assert bucket.tokens(2.0, now) <= 22, where
            assert bucket.throttle_ms(2.0, now) >= 0, where


def test_a_window_has_a_bounded_number_of_samples() -> None:
    window = RateWindow(11, 1.0)
    for second in range(1000):
        window.add(1, second * 1.0)
        window.add(1, second + 0.999)
    assert len(window._samples) <= 12


def test_a_full_bucket_allows_a_burst_and_then_a_debt() -> None:
    bucket = TokenBucket(11.0)
    bucket.take(22, 2.0, 0.0)
    assert bucket.throttle_ms(2.0, 0.0) == 0
    bucket.take(3, 2.0, 0.0)
    assert bucket.throttle_ms(2.0, 0.0) == 1500
    assert bucket.throttle_ms(2.0, 1.0) == 500
    assert bucket.throttle_ms(2.0, 1.5) == 0


def test_a_lower_rate_shrinks_the_bucket() -> None:
    bucket = TokenBucket(10.0)
    assert bucket.tokens(5.0, 0.0) == 50
    assert bucket.tokens(1.0, 0.0) == 10
