"""The connection between a test and its server process: one line of JSON for each call, and one for its answer.

It is a pair of sockets that the server process inherits. When the test process ends, however it ends, the server
process finds its socket closed, and stops.
"""

import json
import socket
import threading
from collections.abc import Mapping
from typing import Any

# A longer answer is an error of this package: answers are counts and ports.
LINE_BYTES_MAX = 1024 * 1024


class ControlFailed(Exception):
    """A call was refused; the text says why."""


class ControlClosed(ConnectionError):
    """The server process has ended or does not answer."""


class Control:
    """The test's end of the connection. Several threads may use it."""

    def __init__(self, own: socket.socket) -> None:
        self._socket = own
        self._received = b""
        self._lock = threading.Lock()

    def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:
        """Send a call and return the result. Raises ControlFailed or ControlClosed."""
        with self._lock:
            try:
                self._socket.settimeout(timeout_s)
                self._socket.sendall(json.dumps({"call": name, "arguments": arguments}).encode() + b"\n")
                answer = self._receive()
            except OSError as error:
                raise ControlClosed(f"the server did not answer {name}: {error}") from error
        if "error" in answer:
            raise ControlFailed(answer["error"])
        return answer["result"]

    def wait_for_start(self, timeout_s: float) -> Any:
        """Return the first line, which the server sends when it is ready. Raises ControlClosed."""
        with self._lock:
            try:
                self._socket.settimeout(timeout_s)
                return self._receive()
            except TimeoutError as error:
                raise ControlClosed(f"the server was not ready within {timeout_s} s") from error
            except OSError as error:
                raise ControlClosed(f"the server has ended before it was ready: {error}") from error

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> Any:
        while b"\n" not in self._received:
            if len(self._received) > LINE_BYTES_MAX:
                raise ConnectionError("the line is too long")
            data = self._socket.recv(64 * 1024)
            if not data:
                raise ConnectionError("the connection is closed")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)
