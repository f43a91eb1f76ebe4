"""Logs that a test leaves open are closed behind it.

A thousand open descriptors are too many for those who still use `select`, and Spark's bridge to Python is one of them:
it would wait for ever in the tests of the pipeline, which run in the same process.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from storage.log import Log
from tests.support.simulated_disk import SimulatedFiles


@pytest.fixture(autouse=True)
def logs_do_not_outlive_their_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[Log] = []
    init = Log.__init__

    def noted(self: Log, *arguments: Any, **more: Any) -> None:
        init(self, *arguments, **more)
        if not isinstance(self._files, SimulatedFiles):  # these have no descriptors, and may be down
            made.append(self)

    monkeypatch.setattr(Log, "__init__", noted)
    yield
    for log in made:
        log.close(is_clean=False)
