"""Users in a metadata store of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.users import UserStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UserStore]:
    made = UserStore(tmp_path / "journal")
    yield made
    made.close()
