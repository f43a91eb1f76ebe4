"""One browser and one server with data for all tests of the console."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.data import Traffic, fill, fill_rooms
from tests.console.driver import BrowserThread, Console
from tests.console.secured import SecuredServer
from tests.support.apache_cluster import ApacheCluster
from tests.support.bridge_process import BridgeProcess
from tests.support.engines import CLIENT_ENGINES, EMBEDDED, OVER_APACHE, OVER_KWIRE, delete_all_topics, is_served
from tests.support.server import KwireProcess

# Webhooks of tests go to loopback, and a failed delivery becomes a dead letter soon.
WEBHOOK_SETTINGS = {"kwire.webhooks.allow.private": "true", "kwire.webhooks.retry.schedule.ms": "10,10"}

# The fixtures of servers, and the names of what they hold.
KINDS = {"secured_server": "secured", "console_server": "open"}


@pytest.fixture(scope="session")
def browser() -> Iterator[BrowserThread]:
    thread = BrowserThread()
    yield thread
    thread.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each engine, over bridges with a higher effort. Quick ones are in test_bridge."""
    kind = next((kind for fixture, kind in KINDS.items() if fixture in metafunc.fixturenames), None)
    if kind is None:
        return
    engines: list[Any] = [EMBEDDED]
    mark = metafunc.definition.get_closest_marker("only_server")
    if mark is None or is_served(mark.kwargs.get("path", "")):
        engines = CLIENT_ENGINES
    metafunc.parametrize("cluster", [_param(kind, one) for one in engines], indirect=True)


def _param(kind: str, engine: Any) -> Any:
    """A parameter of `cluster`. The data of both kinds of servers have the same names, so each has an empty cluster."""
    name, marks = (engine, ()) if isinstance(engine, str) else (engine.values[0], engine.marks)
    return pytest.param(("" if name == EMBEDDED else kind, name), marks=marks, id=name)


@pytest.fixture(scope="package")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    """The address of the empty cluster behind a bridge; None for a server."""
    _, engine = getattr(request, "param", ("", EMBEDDED))
    if engine == OVER_KWIRE:
        upstream = KwireProcess(tmp_path_factory.mktemp("upstream"))
        upstream.restart()
        yield upstream.bootstrap
        upstream.kill()
    elif engine == OVER_APACHE:
        kafka: ApacheCluster = request.getfixturevalue("apache_kafka")
        asyncio.run(delete_all_topics(kafka.bootstrap))
        yield kafka.bootstrap
        asyncio.run(delete_all_topics(kafka.bootstrap))
    else:
        yield None


@pytest.fixture(scope="package")
def console_server(tmp_path_factory: pytest.TempPathFactory, cluster: str | None) -> Iterator[KwireProcess]:
    """A server or a bridge without logins, with data."""
    directory = tmp_path_factory.mktemp("console")
    server = (
        KwireProcess(directory, settings=WEBHOOK_SETTINGS)
        if cluster is None
        else BridgeProcess(directory, cluster, settings=WEBHOOK_SETTINGS)
    )
    traffic = None
    try:
        server.restart()
        fill(server)
        traffic = Traffic(server)
        yield server
    finally:
        if traffic is not None:
            traffic.close()
        server.kill()


def screenshots_of(server: KwireProcess) -> str:
    """The beginning of the names of screenshots: a bridge has its own."""
    return "bridge-" if isinstance(server, BridgeProcess) else ""


@pytest.fixture
def console(browser: BrowserThread, console_server: KwireProcess) -> Iterator[Console]:
    """A page for one test. Errors in the browser's console fail the test."""
    with browser.console(console_server.http_url, screenshots_of(console_server)) as opened:
        yield opened


@pytest.fixture(scope="package")
def secured_server(tmp_path_factory: pytest.TempPathFactory, cluster: str | None) -> Iterator[SecuredServer]:
    server = SecuredServer(tmp_path_factory.mktemp("secured"), cluster)
    try:
        server.start()
        yield server
    finally:
        server.process.kill()


@pytest.fixture
def secured(browser: BrowserThread, secured_server: SecuredServer) -> Iterator[Console]:
    """A page of the server on which everybody has to log in."""
    with browser.console(secured_server.process.http_url, screenshots_of(secured_server.process)) as opened:
        yield opened


@pytest.fixture(scope="session")
def console_bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """A bridge with data, over a server of its own."""
    upstream = KwireProcess(tmp_path_factory.mktemp("upstream"))
    upstream.restart()
    bridge = BridgeProcess(tmp_path_factory.mktemp("bridge"), upstream.bootstrap)
    try:
        bridge.restart()
        fill_rooms(bridge)
        yield bridge
    finally:
        bridge.kill()
        upstream.kill()


@pytest.fixture
def bridge_console(browser: BrowserThread, console_bridge: BridgeProcess) -> Iterator[Console]:
    """A page of the bridge for one test."""
    with browser.console(console_bridge.http_url, screenshots_of(console_bridge)) as opened:
        yield opened
