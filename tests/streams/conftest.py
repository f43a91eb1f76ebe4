"""A quiet node for every test that wants one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import QuietNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path) as made:
        yield made
