"""One browser and one server with data for all tests of the console."""

from collections.abc import Iterator

import pytest

from tests.console.data import Traffic, fill, fill_rooms
from tests.console.driver import BrowserThread, Console
from tests.console.secured import SecuredServer
from tests.support.bridge_process import BridgeProcess
from tests.support.server import KwireProcess

# Webhooks of tests go to loopback, and a failed delivery becomes a dead letter soon.
WEBHOOK_SETTINGS = {"kwire.webhooks.allow.private": "true", "kwire.webhooks.retry.schedule.ms": "10,10"}


@pytest.fixture(scope="session")
def browser() -> Iterator[BrowserThread]:
    thread = BrowserThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def console_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireProcess]:
    server = KwireProcess(tmp_path_factory.mktemp("console"), settings=WEBHOOK_SETTINGS)
    server.restart()
    traffic = None
    try:
        fill(server)
        traffic = Traffic(server)
        yield server
    finally:
        if traffic is not None:
            traffic.close()
        server.kill()


@pytest.fixture
def console(browser: BrowserThread, console_server: KwireProcess) -> Iterator[Console]:
    """A page for one test. Errors in the browser's console fail the test."""
    with browser.console(console_server.http_url) as opened:
        yield opened


@pytest.fixture(scope="session")
def secured_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    server = SecuredServer(tmp_path_factory.mktemp("secured"))
    try:
        server.start()
        yield server
    finally:
        server.process.kill()


@pytest.fixture
def secured(browser: BrowserThread, secured_server: SecuredServer) -> Iterator[Console]:
    """A page of the server on which everybody has to log in."""
    with browser.console(secured_server.process.http_url) as opened:
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
    with browser.console(console_bridge.http_url) as opened:
        yield opened
