"""Budgets of failed logins: per address, shared by both ports."""

import pytest

from kwire.access.hosts import network_of
from kwire.access.login_limits import (
    BUDGETS_MAX,
    FAILURES_MAX,
    FAILURES_REFILL_SECONDS,
    LoginLimits,
    TooManyFailedLogins,
)
from tests.support.clock import ManualClock

HOST = "192.0.2.7"


def test_an_address_may_fail_a_number_of_times_and_later_again() -> None:
    clock = ManualClock()
    limits = LoginLimits(clock)
    for number in range(FAILURES_MAX):
        limits.end(limits.begin(HOST, "bob", f"guess {number}"), is_success=False)
    with pytest.raises(TooManyFailedLogins):
        limits.begin(HOST, "bob", "the right one")
    limits.begin("192.0.2.8", "bob", "from elsewhere")
    clock.advance(round(1000 * FAILURES_REFILL_SECONDS / FAILURES_MAX))
    limits.begin(HOST, "bob", "one more")
    with pytest.raises(TooManyFailedLogins):
        limits.begin(HOST, "bob", "two more")


def test_attempts_at_the_same_time_are_counted_before_they_fail() -> None:
    limits = LoginLimits(ManualClock())
    begun = [limits.begin(HOST, "bob", f"guess {number}") for number in range(FAILURES_MAX)]
    with pytest.raises(TooManyFailedLogins):
        limits.begin(HOST, "bob", "one more")
    # The same credentials at the same time count once: a client that opens many connections.
    again = [limits.begin(HOST, "bob", "guess 0") for _ in range(100)]
    for attempt in [*begun, *again]:
        limits.end(attempt, is_success=True)
    limits.begin(HOST, "bob", "one more")


def test_a_user_who_has_logged_in_is_not_locked_out_by_others_behind_the_same_address() -> None:
    limits = LoginLimits(ManualClock())
    limits.end(limits.begin(HOST, "bob", "right"), is_success=True)
    for number in range(FAILURES_MAX):
        limits.end(limits.begin(HOST, "eve", f"guess {number}"), is_success=False)
    with pytest.raises(TooManyFailedLogins):
        limits.begin(HOST, "eve", "one more")
    limits.end(limits.begin(HOST, "bob", "right"), is_success=True)
    for number in range(FAILURES_MAX):
        limits.end(limits.begin(HOST, "bob", f"guess {number}"), is_success=False)
    with pytest.raises(TooManyFailedLogins):
        limits.begin(HOST, "bob", "right")


def test_the_budgets_are_bounded_and_a_network_has_one() -> None:
    limits = LoginLimits(ManualClock())
    for number in range(BUDGETS_MAX + 100):
        limits.end(limits.begin(f"host-{number}", "bob", "x"), is_success=False)
    assert len(limits._budgets) == BUDGETS_MAX
    assert network_of("2001:db8:1:2:3:4:5:6") == network_of("2001:db8:1:2::1")
    assert network_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert network_of("fe80::1%eth0") == network_of("fe80::2")


def test_successes_leave_nothing_behind_but_the_user() -> None:
    limits = LoginLimits(ManualClock())
    for _ in range(1000):
        limits.end(limits.begin(HOST, "bob", "right"), is_success=True)
    assert not limits._budgets
    assert len(limits._known) == 1


def test_without_a_password_every_attempt_counts() -> None:
    limits = LoginLimits(ManualClock())
    begun = [limits.begin(HOST, "bob") for _ in range(FAILURES_MAX)]
    with pytest.raises(TooManyFailedLogins):
        limits.begin(HOST, "bob")
    limits.end(begun.pop(), is_success=True)
    limits.begin(HOST, "bob")


def test_admitted_attempts_and_early_failures_never_make_the_budget_negative() -> None:
    clock = ManualClock()
    limits = LoginLimits(clock)
    for _ in range(10 * FAILURES_MAX):
        limits.cancel(limits.begin(HOST, "bob", is_admitted=True))
        limits.fail(HOST)
    with pytest.raises(TooManyFailedLogins):
        limits.begin(HOST, "bob")
    clock.advance(round(1000 * FAILURES_REFILL_SECONDS / FAILURES_MAX))
    limits.begin(HOST, "bob")
