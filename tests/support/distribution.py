"""A pytest plugin that decides which tests share a worker process of pytest-xdist, and which work begins first.

All tests of a file run in one worker, because they share fixtures. Tests marked `xdist_group` run in one worker across
files: those that share something expensive, such as the Java process of Spark.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadGroupScheduling

# Work begins in this order, so that no long test is left for the end, when the other workers have nothing to do.
LONGEST_FIRST = ("pipeline", "end_to_end")
# The group of the tests that share the cluster of Apache Kafka. A test of two groups runs with this one.
EXPENSIVE = "apache-kafka"
# A worker with fewer tests before it gets the next unit of work.
PENDING_MIN = 3


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
        """Schedules marked groups as wholes, as xdist does, and other tests by file instead of one by one.

        It also survives the crash of a worker. xdist 3.8 runs the test that crashed again, sends the new worker empty
        units of work, and then waits for ever for an answer.
        """

        def _split_scope(self, nodeid: str) -> str:
            scope: str = super()._split_scope(nodeid)
            if scope != nodeid and EXPENSIVE in scope.split("_"):
                # xdist joins the names of several groups.
                return EXPENSIVE
            return nodeid.partition("::")[0] if scope == nodeid else scope

        def remove_node(self, node: Any) -> str | None:
            """Take back what a worker did not finish; return the test that it crashed in, which is not run again."""
            if self.collection is None:
                # The distribution begins when there are as many collections as workers. This one no longer counts,
                # because the replacement cannot be sent work before it has collected the tests itself.
                self.registered_collections.pop(node, None)
            unfinished = {scope: unit for scope, unit in self.assigned_work.pop(node).items() if not all(unit.values())}
            if not unfinished:
                return None
            unit = next(iter(unfinished.values()))
            crashed: str = next(test for test, is_done in unit.items() if not is_done)
            unit[crashed] = True
            self.workqueue.update({scope: unit for scope, unit in unfinished.items() if not all(unit.values())})
            for other in self.assigned_work:
                self._reschedule(other)
            return crashed

        def _assign_work_unit(self, node: Any) -> None:
            """Send the worker the next unit of work; `remove_node` takes it back if the worker has crashed."""
            # A crash breaks the pipe to the worker before xdist reports the crash, and an error here ends the run.
            with suppress(OSError):
                super()._assign_work_unit(node)

        def _reschedule(self, node: Any) -> None:
            """Give the worker enough to do: it starts a test only if it knows the next one or that there is none."""
            if node.shutting_down or node not in self.registered_collections:
                return
            while self.workqueue and self._pending_of(self.assigned_work[node]) < PENDING_MIN:
                self._assign_work_unit(node)
            if not self.workqueue:
                node.shutdown()

    # The queue keeps the order of the items.
    config.option.loadscopereorder = False
    return GroupOrFile(config, log)
