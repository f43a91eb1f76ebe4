"""A quiet node whose services the connections under test use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import QuietNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(
        tmp_path,
        "kwire.connection.inflight.max=3",
        "socket.request.max.bytes=1000000",
        "queued.max.request.bytes=1000000",
    ) as made:
        yield made
