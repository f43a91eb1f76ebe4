"""Reports to systemd that the server is ready, works and stops (the protocol of sd_notify: datagrams to a Unix socket).

The watchdog messages are sent by the event loop. If the loop stalls, they stop, and systemd restarts the server.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger("kwire.server")

# systemd recommends two messages per watchdog interval; with three, one may be late.
MESSAGES_PER_WATCHDOG_INTERVAL = 3
# A message that systemd does not accept because its socket is full is sent again after this time, at most this often.
RETRY_SECONDS = 0.5
RETRIES_MAX = 60


class ServiceReports:
    """Reports to the service manager that started this process. Without one, all methods do nothing."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._watchdog_seconds = _watchdog_seconds(environment)
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None

    def ready(self, status: str) -> None:
        """Report that the server accepts connections, and begin to send watchdog messages. `status` is one line."""
        if not self._address:
            return
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._send(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")
        if self._watchdog_seconds is not None:
            self._watch()

    def stopping(self) -> None:
        """Report that the server stops. Watchdog messages continue, because a stop may take long."""
        self._send("STOPPING=1\nSTATUS=Stopping: answering accepted requests and closing logs")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _watch(self) -> None:
        assert self._watchdog_seconds is not None
        self._send("WATCHDOG=1", retries=0)
        seconds = self._watchdog_seconds / MESSAGES_PER_WATCHDOG_INTERVAL
        self._timer = asyncio.get_running_loop().call_later(seconds, self._watch)

    def _send(self, message: str, retries: int = RETRIES_MAX) -> None:
        if self._socket is None:
            return
        # A name that begins with @ is in Linux's abstract namespace.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            self._socket.sendto(message.encode(), address)
        except BlockingIOError:
            if retries:
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._send, message, retries - 1)
        except OSError as error:
            log.warning("the service manager cannot be reached at NOTIFY_SOCKET=%s: %s", self._address, error)


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """Return the interval in which systemd expects a message; None if it expects none from this process."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    microseconds = environment.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1_000_000 if microseconds.isdecimal() and int(microseconds) else None
