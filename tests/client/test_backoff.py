"""Waits grow, are bounded, and differ between clients."""

import random

from kwire.client.backoff import GOOD_AFTER_S, Backoff


def test_waits_double_up_to_the_bound_and_never_come_in_step() -> None:
    waits = [Backoff(0.1, 1.0, random.Random(seed)) for seed in range(20)]
    bounds = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    for bound in bounds:
        delays = [backoff.next_delay_s() for backoff in waits]
        assert all(bound / 2 <= delay <= bound for delay in delays)
        assert len(set(delays)) == len(delays)


def test_only_a_connection_that_lived_makes_the_next_wait_short() -> None:
    backoff = Backoff(0.1, 10.0, random.Random(1))
    for _ in range(6):
        backoff.next_delay_s()
    backoff.connection_ended(GOOD_AFTER_S / 2)
    assert backoff.next_delay_s() > 0.1
    backoff.connection_ended(GOOD_AFTER_S)
    assert backoff.next_delay_s() <= 0.1
