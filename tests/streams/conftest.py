"""A quiet node for every test that wants one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import QuietNode
from tests.support.remote_worlds import apache_kafka

__all__ = ["apache_kafka", "node"]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    with QuietNode(tmp_path) as made:
        yield made
