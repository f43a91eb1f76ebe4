"""Reports to systemd, received on a real datagram socket."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire.server.service_reports import ServiceReports
from tests.support.node import in_loop
from tests.support.server import KwireProcess

WAIT_S = 30.0


class NotifySocket:
    """The socket of a service reports."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.settimeout(WAIT_S)

    def receive(self) -> dict[str, str]:
        """The fields of the next message."""
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().splitlines())

    def waiting(self) -> list[dict[str, str]]:
        """The messages that have arrived."""
        self._socket.setblocking(False)
        found = []
        try:
            while True:
                found.append(self.receive())
        except BlockingIOError:
            return found
        finally:
            self._socket.settimeout(WAIT_S)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[NotifySocket]:
    made = NotifySocket(str(tmp_path / "notify"))
    yield made
    made.close()


@in_loop
async def test_without_a_service_manager_nothing_is_sent() -> None:
    reports = ServiceReports({})
    reports.ready("Serving")
    reports.stopping()
    reports.close()


@pytest.mark.parametrize("is_abstract", [False, True], ids=["path", "abstract"])
def test_ready_and_stopping_are_reported(tmp_path: Path, is_abstract: bool) -> None:
    notified = NotifySocket(f"@kwire-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify"))

    @in_loop
    async def run() -> None:
        reports = ServiceReports({"NOTIFY_SOCKET": notified.address})
        reports.ready("Serving everybody")
        reports.stopping()
        reports.close()

    run()
    first, last = notified.waiting()
    assert first == {"READY": "1", "STATUS": "Serving everybody", "MAINPID": str(os.getpid())}
    assert last["STOPPING"] == "1"
    notified.close()


@in_loop
async def test_watchdog_messages_stop_while_the_event_loop_stalls(tmp_path: Path) -> None:
    notified = NotifySocket(str(tmp_path / "notify"))
    reports = ServiceReports({"NOTIFY_SOCKET": notified.address, "WATCHDOG_USEC": "60000"})
    reports.ready("Serving")
    await asyncio.sleep(0.5)
    # Every 20 ms; a busy machine delays them.
    assert len([one for one in notified.waiting() if one == {"WATCHDOG": "1"}]) >= 5
    time.sleep(0.2)  # the stall
    assert notified.waiting() == []
    await asyncio.sleep(0.1)
    assert {"WATCHDOG": "1"} in notified.waiting()
    reports.close()
    notified.close()


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}],
)
def test_no_watchdog_messages_unless_this_process_is_watched(
    notified: NotifySocket, environment: dict[str, str]
) -> None:
    @in_loop
    async def run() -> None:
        reports = ServiceReports({"NOTIFY_SOCKET": notified.address, **environment})
        reports.ready("Serving")
        await asyncio.sleep(0.02)
        reports.close()

    run()
    assert [set(one) for one in notified.waiting()] == [{"READY", "STATUS", "MAINPID"}]


def sent(sender: socket.socket, address: str) -> bool:
    try:
        return bool(sender.sendto(b"A=1", address))
    except BlockingIOError:
        return False


@in_loop
async def test_a_full_socket_does_not_stop_the_server_and_gets_the_message_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kwire.server.service_reports.RETRY_SECONDS", 0.01)
    notified = NotifySocket(str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        while sent(other, notified.address):
            pass
        reports = ServiceReports({"NOTIFY_SOCKET": notified.address})
        reports.ready("Serving")
        assert all(one == {"A": "1"} for one in notified.waiting())
        async with asyncio.timeout(WAIT_S):
            while not any("READY" in one for one in notified.waiting()):
                await asyncio.sleep(0.01)
        reports.close()
    notified.close()


@in_loop
async def test_a_service_manager_that_is_gone_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reports = ServiceReports({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    reports.ready("Serving")
    reports.close()
    assert "the service manager cannot be reached at NOTIFY_SOCKET=" in caplog.text


def test_a_server_reports_to_the_service_manager_that_started_it(tmp_path: Path, notified: NotifySocket) -> None:
    process = KwireProcess(tmp_path / "server", env={"NOTIFY_SOCKET": notified.address, "WATCHDOG_USEC": "300000"})
    process.start()
    try:
        ready = notified.receive()
        assert ready["READY"] == "1"
        assert ready["MAINPID"] == str(process.pid)
        process.ready()
        assert process.bootstrap in ready["STATUS"]
        assert [notified.receive() for _ in range(3)] == [{"WATCHDOG": "1"}] * 3
        # A process that does not run sends nothing: systemd kills it after WatchdogSec.
        os.kill(process.pid, signal.SIGSTOP)
        notified.waiting()
        time.sleep(0.3)
        assert notified.waiting() == []
        os.kill(process.pid, signal.SIGCONT)
        assert notified.receive() == {"WATCHDOG": "1"}
        assert process.stop() == 0
        assert any(one.get("STOPPING") == "1" for one in notified.waiting())
    finally:
        process.kill()
