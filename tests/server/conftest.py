"""Fixtures of the tests of sockets."""

import pytest

from kwire.server import loop_budget
from kwire.server.kafka import connection

AMPLE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def ample_loop_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is deferred because the machine is busy. Tests of the loop budget set one of their own."""
    monkeypatch.setattr(loop_budget, "BUDGET_SECONDS", AMPLE_SECONDS)
    monkeypatch.setattr(connection, "BUDGET_SECONDS", AMPLE_SECONDS)
