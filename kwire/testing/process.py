"""The process of a test server: started, watched and ended, with its output in files."""

import os
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

HOST = "127.0.0.1"
STOP_TIMEOUT_S = 60.0
OUTPUT_TAIL_BYTES = 8 * 1024
# Without stored bytecode, each start compiles the whole server.
NOT_INHERITED = ("PYTHONDONTWRITEBYTECODE",)


class ServerFailed(AssertionError):
    """The server did not start, stop or answer as it must. The text ends with what it has logged."""


class ServerProcess:
    """A server that a test starts and ends, perhaps several times, with the same ports and the same data directory.

    A subclass starts the process with `_spawn` and finds out when it is ready. `directory` is for all its files.
    """

    def __init__(self, directory: Path, kafka_port: int | None, http_port: int | None) -> None:
        self.directory = directory
        self.kafka_port = kafka_port
        self.http_port = http_port
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def http_url(self) -> str:
        """The address for HTTP clients, `http://host:port`."""
        return f"http://{HOST}:{self.http_port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailed("the server was not started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def output_tail(self) -> str:
        """Return the end of what the server has written."""
        raise NotImplementedError

    def _check_is_stopped(self) -> None:
        """Raise ServerFailed if the server runs: it cannot be started twice."""
        if self.is_running:
            raise ServerFailed("the server is already running")

    def _spawn(
        self,
        command: Sequence[str],
        *,
        stdout: IO[bytes] | int,
        stderr: IO[bytes] | int,
        added: Mapping[str, str] | None = None,
        left_out: Collection[str] = NOT_INHERITED,
        **more: Any,
    ) -> "subprocess.Popen[bytes]":
        """Start the process. It inherits the environment, without the variables `left_out` and with those `added`."""
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**environment, **(added or {})},
            **more,
        )
        return self._process

    def _send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self._process is not None:
            self._process.send_signal(number)

    def _wait_for_end(self, timeout_s: float) -> int:
        """Wait for the end of the process, and return its exit code."""
        if self._process is None:
            raise ServerFailed("the server was not started")
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"the server did not end within {timeout_s} s\n{self.output_tail()}") from None


def tail_of(path: Path) -> str:
    """Return the last lines of a file, or nothing if it does not exist."""
    return path.read_bytes()[-OUTPUT_TAIL_BYTES:].decode(errors="replace") if path.exists() else ""
