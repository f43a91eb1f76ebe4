"""Counts and slots in a metadata store of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.keys import KeyStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[KeyStore]:
    made = KeyStore(tmp_path / "journal")
    yield made
    made.close()
