"""The pytest plugin: fixtures with a real kwire server, for people who test programs that use Kafka.

pytest loads this module in every run of an environment in which kwire is installed. So it imports nothing of kwire
until a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kwire.testing import KwireServer

    StartKwire = Callable[..., KwireServer]

MARKER = "kwire"
LOG_REPORTER = "kwire-log-reporter"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}(**settings): broker settings of the kwire_server of this test")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("kwire_settings", "broker settings of all kwire servers of the tests, NAME=VALUE", type="linelist")


@pytest.fixture
def kwire_server(request: pytest.FixtureRequest, start_kwire: StartKwire) -> KwireServer:
    """A server for one test, with an empty data directory."""
    settings: dict[str, str] = {}
    for mark in reversed(list(request.node.iter_markers(MARKER))):
        for given in mark.args:
            settings.update(given)
        settings.update({name.replace("_", "."): str(value) for name, value in mark.kwargs.items()})
    return start_kwire(settings)


@pytest.fixture
def start_kwire(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartKwire]:
    """A function that starts a server: `start_kwire({"num.partitions": "6"})`. They end with the test."""
    servers: list[KwireServer] = []

    def start(settings: Mapping[str, str] | None = None) -> KwireServer:
        server = _started(request.config, tmp_path_factory, settings or {})
        servers.append(server)
        _show_log_of_failures(request, server)
        return server

    yield start
    for server in servers:
        _end(server)


@pytest.fixture(scope="session")
def kwire_session_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KwireServer]:
    """The process behind `kwire_shared_server`."""
    server = _started(request.config, tmp_path_factory, {})
    yield server
    _end(server)


@pytest.fixture
def kwire_shared_server(request: pytest.FixtureRequest, kwire_session_server: KwireServer) -> Iterator[KwireServer]:
    """One server for all tests of the run. A test's faults end with it, and a server that it has stopped is started."""
    _show_log_of_failures(request, kwire_session_server)
    yield kwire_session_server
    if kwire_session_server.is_running:
        kwire_session_server.resume()
        kwire_session_server.faults.clear()
    else:
        kwire_session_server.start()


def _started(
    config: pytest.Config, tmp_path_factory: pytest.TempPathFactory, settings: Mapping[str, str]
) -> KwireServer:
    from kwire.testing import KwireServer

    common = dict(line.split("=", 1) for line in config.getini("kwire_settings"))
    server = KwireServer(tmp_path_factory.mktemp("kwire"), {**common, **settings})
    server.start()
    return server


def _end(server: KwireServer) -> None:
    import shutil

    server.close()
    # pytest keeps the temporary directories of the last runs, and logs of partitions are preallocated.
    shutil.rmtree(server.data_dir, ignore_errors=True)


def _show_log_of_failures(request: pytest.FixtureRequest, server: KwireServer) -> None:
    """Add the server's log to the report of this test, if it fails."""
    plugins = request.config.pluginmanager
    reporter = plugins.get_plugin(LOG_REPORTER)
    if reporter is None:
        reporter = LogReporter()
        plugins.register(reporter, LOG_REPORTER)
    reporter.servers.setdefault(request.node.nodeid, []).append(server)


class LogReporter:
    """Adds the logs of a test's servers to its report if it fails. Registered when the first server is started."""

    def __init__(self) -> None:
        self.servers: dict[str, list[KwireServer]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown":
            self.servers.pop(item.nodeid, None)
        elif report.failed:
            for server in self.servers.get(item.nodeid, ()):
                report.sections.append((f"log of the kwire server {server.bootstrap_server}", server.log_tail()))
        return report
