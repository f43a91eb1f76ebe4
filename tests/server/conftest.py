"""A quiet node whose services the connections under test use, and a loop budget that a busy machine does not spend."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.server import loop_budget
from kwire.server.kafka import connection
from tests.support.node import QuietNode

AMPLE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def ample_loop_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is deferred because the machine is busy. Tests of the loop budget set one of their own."""
    monkeypatch.setattr(loop_budget, "BUDGET_SECONDS", AMPLE_SECONDS)
    monkeypatch.setattr(connection, "BUDGET_SECONDS", AMPLE_SECONDS)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(
        tmp_path,
        "kwire.connection.inflight.max=3",
        "socket.request.max.bytes=1000000",
        "queued.max.request.bytes=1000000",
    ) as made:
        yield made
