"""The broker under test: one kwire process for the whole run, or the running broker named by KWIRE_TEST_BOOTSTRAP."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import Topics
from tests.support.engines import CLIENT_ENGINES, process_of
from tests.support.group_under_test import SESSION_TIMEOUT_MS
from tests.support.java import JavaTools
from tests.support.needs import leave_out
from tests.support.server import Broker, KwireProcess, started_processes
from tests.support.tool_server import ToolServer

# Tests of their own, which the files here inherit.
pytest.register_assert_rewrite("tests.support.transaction_tests")

EXTERNAL_BOOTSTRAP = os.environ.get("KWIRE_TEST_BOOTSTRAP")
# In a consumer group the broker decides when a silent member is out, by default after 45 seconds. Here it is as soon as
# for members of classic groups in these tests. A broker named by KWIRE_TEST_BOOTSTRAP must be started with these
# settings and with TEST_SETTINGS of tests/support/server.py.
SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
}
# Fixtures that start or handle a kwire process; tests that ask for one cannot run against somebody else's broker.
PROCESS_FIXTURES = {"kwire", "killable", "start_kwire", "served"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if EXTERNAL_BOOTSTRAP is None:
        return
    here = Path(__file__).parent
    reason = "KWIRE_TEST_BOOTSTRAP names a broker, and these need a kwire process"
    needs_process = [
        item
        for item in items
        if here in item.path.parents and PROCESS_FIXTURES & set(getattr(item, "fixturenames", ()))
    ]
    leave_out(config, items, dict.fromkeys(needs_process, reason))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for process in started_processes():
            report.sections.append((f"kwire in {process.directory}", process.output_tail()))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if EXTERNAL_BOOTSTRAP is not None:
        yield Broker(EXTERNAL_BOOTSTRAP, None)
        return
    process = KwireProcess(tmp_path_factory.mktemp("kwire"))
    process.start()
    try:
        process.ready()
        yield Broker(process.bootstrap, process)
        assert process.is_running, "the shared server died during the tests"
        assert process.stop() == 0
    finally:
        process.kill()


@pytest.fixture(scope="module", params=CLIENT_ENGINES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    """A server, or a bridge over one or over an Apache Kafka."""
    process = process_of(request.param, request, tmp_path_factory.mktemp("served"))
    process.start()
    process.ready()
    yield process
    process.kill()


@pytest.fixture(scope="session")
def short_sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose consumer groups soon notice that a member is dead."""
    if EXTERNAL_BOOTSTRAP is not None:
        yield Broker(EXTERNAL_BOOTSTRAP, None)
        return
    process = KwireProcess(tmp_path_factory.mktemp("short-sessions"), settings=SHORT_SESSIONS)
    process.start()
    try:
        process.ready()
        yield Broker(process.bootstrap, process)
        assert process.stop() == 0
    finally:
        process.kill()


@pytest.fixture(scope="session")
def kwire(broker: Broker) -> KwireProcess:
    """The shared server as a process."""
    assert broker.process is not None
    return broker.process


@pytest.fixture(scope="session")
def killable_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    """The process behind `killable`; it is not running before the first test that asks for it."""
    process = KwireProcess(tmp_path_factory.mktemp("killable"))
    try:
        yield process
        if process.is_running:
            assert process.stop() == 0
    finally:
        process.kill()


@pytest.fixture
def killable(killable_process: KwireProcess) -> KwireProcess:
    """A running server shared by tests that stop or kill it; each of them uses names of its own."""
    if not killable_process.is_running:
        killable_process.restart()
    return killable_process


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
def topics(broker: Broker) -> Iterator[Topics]:
    maker = Topics(broker.bootstrap)
    yield maker
    maker.close()


@pytest.fixture(scope="session")
def java() -> Iterator[JavaTools]:
    """Kafka's tools, all in one JVM; tests that use many calls carry `xdist_group("kafka-tools")` to share it."""
    server = ToolServer()
    yield JavaTools(server)
    server.close()
