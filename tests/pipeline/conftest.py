"""One real server for all tests of the pipeline, and the group of those that share the Java process of Spark."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import Topics
from tests.support.server import KwireProcess, started_processes

SPARK_GROUP = pytest.mark.xdist_group("spark")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that share Spark into one worker process, unless they name a group themselves.

    First, because pytest-xdist reads the groups in its own hook of this name.
    """
    for item in items:
        if "shared_spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(SPARK_GROUP)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for process in started_processes():
            report.sections.append((f"kwire in {process.directory}", process.output_tail()))


@pytest.fixture(scope="session")
def kwire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    process = KwireProcess(tmp_path_factory.mktemp("kwire"))
    process.start()
    try:
        process.ready()
        yield process
        assert process.is_running, "the shared server died during the tests"
        assert process.stop() == 0
    finally:
        process.kill()


@pytest.fixture
def start_kwire(tmp_path: Path) -> Iterator[Callable[..., KwireProcess]]:
    """Start servers of this test's own; each is ready when the call returns and gone when the test ends."""
    started: list[KwireProcess] = []

    def start(**options: Any) -> KwireProcess:
        process = KwireProcess(tmp_path / f"kwire-{len(started)}", **options)
        started.append(process)
        process.start()
        process.ready()
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="session")
def topics(kwire: KwireProcess) -> Iterator[Topics]:
    maker = Topics(kwire.bootstrap)
    yield maker
    maker.close()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
