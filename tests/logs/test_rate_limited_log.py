"""Rate-limited warnings: all of them while they are few, only their number when they are many."""

import logging

import pytest

from kwire.logs.rate_limited_log import PER_ROUND_MAX, RateLimitedLog


def test_warnings_beyond_the_bound_are_counted_not_written(caplog: pytest.LogCaptureFixture) -> None:
    limited = RateLimitedLog(logging.getLogger("kwire.test"))
    for number in range(PER_ROUND_MAX + 5):
        limited.warning("bad bytes from %s", number)
    assert len(caplog.records) == PER_ROUND_MAX
    limited.end_round()
    assert caplog.records[-1].getMessage() == "5 more warnings like these within a second"
    limited.end_round()
    limited.warning("again")
    assert len(caplog.records) == PER_ROUND_MAX + 2
