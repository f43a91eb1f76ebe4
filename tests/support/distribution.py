"""A pytest plugin that decides which tests share a worker process of pytest-xdist, and which work begins first.

All tests of a file run in one worker, because they share fixtures. Tests marked `xdist_group` run in one worker across
files: those that share something expensive, such as the Java process of Spark.
"""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadGroupScheduling

# Work begins in this order, so that no long test is left for the end, when the other workers have nothing to do.
LONGEST_FIRST = ("pipeline", "end_to_end")


def _place(item: pytest.Item) -> int:
    """Where the work that an item belongs to stands in the queue."""
    folders = item.path.parts
    for place, folder in enumerate(LONGEST_FIRST):
        if folder in folders:
            return place
    return len(LONGEST_FIRST)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the folders of long tests to the front; otherwise the (random) order stays."""
    items.sort(key=_place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadGroupScheduling | None":
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class GroupOrFile(LoadGroupScheduling):  # type: ignore[misc]  # xdist is published without types
        """Schedules marked groups as wholes, as xdist does, and other tests by file instead of one by one."""

        def _split_scope(self, nodeid: str) -> str:
            scope: str = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if scope == nodeid else scope

    # The queue keeps the order of the items.
    config.option.loadscopereorder = False
    return GroupOrFile(config, log)
