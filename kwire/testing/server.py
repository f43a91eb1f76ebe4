"""A kwire server in a process of its own, for tests of programs that use Kafka."""

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from kwire.testing.control import Control, ControlClosed, ControlFailed
from kwire.testing.faults import Faults
from kwire.testing.ports import unused_port
from kwire.testing.process import HOST, STOP_TIMEOUT_S, ServerFailed, ServerProcess, tail_of

START_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 30.0
# What makes tests of consumers wait on a server with Kafka's defaults: the first rebalance of a group is delayed by
# three seconds, sessions last at least six, and consumers of the new protocol send a heartbeat every five.
DEFAULT_SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}

# The server listens on the loopback interface, so a proxy of the environment must not be asked.
_open_url = build_opener(ProxyHandler({})).open


class KwireServer(ServerProcess):
    """A server with a data directory of its own: `with KwireServer() as server:`.

    It keeps its ports and its data when it is restarted. `settings` are broker settings, by Kafka's names.
    """

    def __init__(self, directory: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        """`directory` holds the data directory and the log; by default a temporary one, deleted by `close`."""
        self._temporary = tempfile.TemporaryDirectory(prefix="kwire-") if directory is None else None
        found = Path(self._temporary.name) if self._temporary is not None else Path(directory or "")
        super().__init__(found, unused_port(), unused_port())
        self.data_dir = self.directory / "data"
        self.log_path = self.directory / "server.log"
        self.settings = {**DEFAULT_SETTINGS, **(settings or {})}
        self.faults = Faults(self._control_call)
        # The seconds from the start of the process until it accepted connections, at the last start.
        self.start_seconds = 0.0
        self._control: Control | None = None

    @property
    def bootstrap_server(self) -> str:
        """The address for Kafka clients, `host:port`."""
        return f"{HOST}:{self.kafka_port}"

    def start(self) -> None:
        """Start the process, and wait until it accepts connections."""
        self._check_is_stopped()
        began = time.monotonic()
        own, childs = socket.socketpair()
        self._control = Control(own)
        options = {
            "control": childs.fileno(),
            "kafka": self.bootstrap_server,
            "http": f"{HOST}:{self.http_port}",
            "data_dir": str(self.data_dir),
            "settings": [f"{name}={value}" for name, value in self.settings.items()],
        }
        # -P: a package `storage` of the program under test is not imported instead of kwire's.
        command = [sys.executable, "-P", "-m", "kwire.testing.serve", json.dumps(options)]
        with childs, self.log_path.open("ab") as log:
            # In a session of its own: Ctrl-C ends the tests, and the tests end the server.
            self._spawn(command, stdout=log, stderr=log, pass_fds=[childs.fileno()], start_new_session=True)
        try:
            self._control.wait_for_start(START_TIMEOUT_S)
        except ControlClosed as error:
            self.kill()
            raise ServerFailed(f"{error}\n{self.log_tail()}") from None
        self.start_seconds = time.monotonic() - began

    def stop(self) -> None:
        """Stop the server cleanly, as SIGTERM does, and wait for its end."""
        code = self._end(signal.SIGTERM)
        if code:
            raise ServerFailed(f"the server ended with exit code {code}\n{self.log_tail()}")

    def kill(self) -> None:
        """Kill the server as a crash does (SIGKILL). Records that it has acknowledged are not lost."""
        self._end(signal.SIGKILL)

    def restart(self, *, kill: bool = False) -> None:
        """Stop the server cleanly, or kill it, and start it again with the same ports and data. Faults are cleared."""
        if self.is_running:
            if kill:
                self.kill()
            else:
                self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): its connections stay open, and nothing is answered until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic. `configs` are topic settings, by Kafka's names."""
        body = {"num_partitions": partitions, "configs": dict(configs or {})}
        self._request("POST", f"/topics/{quote(name, safe='')}", body)

    def delete_topic(self, name: str) -> None:
        self._request("DELETE", f"/topics/{quote(name, safe='')}")

    def end_offsets(self, topic: str) -> list[int]:
        """Return the end offset of each partition: the number of records of a topic from which none were deleted."""
        stats = self._request("GET", f"/topics/{quote(topic, safe='')}/stats")
        partitions = sorted(stats["partitions"], key=lambda one: int(one["partition_id"]))
        return [int(one["max_offset"]) + 1 for one in partitions]

    def log_tail(self) -> str:
        """Return the last lines that the server has logged."""
        text = tail_of(self.log_path)
        return f"the server has logged:\n{text}" if text else "the server has logged nothing"

    def output_tail(self) -> str:
        return self.log_tail()

    def close(self) -> None:
        """Kill the server if it runs, and delete its temporary directory."""
        self.kill()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end of the process. Return its exit code."""
        if self._process is None:
            return 0
        self._send_signal(number)
        if number is not signal.SIGKILL:
            self._send_signal(signal.SIGCONT)  # it may be paused
        try:
            return self._wait_for_end(STOP_TIMEOUT_S)
        except ServerFailed:
            self._send_signal(signal.SIGKILL)
            self._wait_for_end(STOP_TIMEOUT_S)
            raise
        finally:
            self._process = None
            if self._control is not None:
                self._control.close()
                self._control = None

    def _control_call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        if self._control is None:
            raise ServerFailed("the server is not running")
        try:
            return self._control.call(name, arguments, CALL_TIMEOUT_S)
        except ControlFailed as error:
            raise ValueError(str(error)) from None
        except ControlClosed as error:
            raise ServerFailed(f"{error}\n{self.log_tail()}") from None

    def _request(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        request = Request(self.http_url + path, data, headers, method=method)
        try:
            with _open_url(request, timeout=CALL_TIMEOUT_S) as answer:
                content = answer.read()
        except HTTPError as error:
            with error:
                raise ServerFailed(_message_of(error.read())) from None
        return json.loads(content) if content else None


def _message_of(body: bytes) -> str:
    """Return the text of an error response."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        return str(json.loads(body)["error"]["message"])
    return body.decode(errors="replace")
