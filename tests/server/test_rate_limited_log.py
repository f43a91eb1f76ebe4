"""Complaints: all of them while they are few, a number when they are many."""

import logging

import pytest

from kwire.server.complaints import PER_ROUND_MAX, Complaints


def test_warnings_beyond_the_bound_are_counted_not_written(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints(logging.getLogger("kwire.test"))
    for number in range(PER_ROUND_MAX + 5):
        complaints.add("bad bytes from %s", number)
    assert len(caplog.records) == PER_ROUND_MAX
    complaints.end_round()
    assert caplog.records[-1].getMessage() == "5 more warnings like these within a second"
    complaints.end_round()
    complaints.add("again")
    assert len(caplog.records) == PER_ROUND_MAX + 2
