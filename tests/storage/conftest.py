"""Segments that a test leaves open are closed behind it.

A thousand open descriptors are too many for those who still use `select`, and Spark's bridge to Python is one of them:
it would wait for ever in the tests of the pipeline, which run in the same process.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from storage.segment.segment import LogSegment
from tests.support.simulated_disk import SimulatedFiles


@pytest.fixture(autouse=True)
def segments_do_not_outlive_their_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[LogSegment] = []
    init = LogSegment.__init__

    def noted(self: LogSegment, *arguments: Any, **more: Any) -> None:
        init(self, *arguments, **more)
        if not isinstance(self._files, SimulatedFiles):  # these have no descriptors, and may be down
            made.append(self)

    monkeypatch.setattr(LogSegment, "__init__", noted)
    yield
    for segment in made:
        segment.close()
