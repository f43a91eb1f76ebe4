"""One real server for all tests of the pipeline, and one Spark session for each module."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clients import Topics
from tests.support.server import KwireProcess, started_processes
from tests.support.spark import own_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    with own_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
