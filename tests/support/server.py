"""A real kwire process, started, watched, stopped and killed by a test.

The process is the installed `kwire` command beside the running Python. Its two streams go to files in its directory, so
that a failing test can show them; the first line starting with `ready ` tells the addresses it listens on.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kwire.testing.ports import unused_port
from kwire.testing.process import HOST as HOST
from kwire.testing.process import NOT_INHERITED, ServerFailed, ServerProcess, tail_of

# Bounds are generous: a busy machine is slow, and only a failing test waits for them.
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0
WAIT_TIMEOUT_S = 40.0
POLL_INTERVAL_S = 0.02
# Stands for a port that the test chooses; 0 is one that the server chooses.
ANY_PORT = -1
# Settings of every test server unless the test overrides them: the first member of a group does not wait three seconds
# for others, members may ask for sessions shorter than six seconds, those of consumer groups send a heartbeat, and so
# learn what changed, more often than every five seconds, and abandoned transactions are looked for more often than
# every ten.
TEST_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}

Value = TypeVar("Value")

_processes: "weakref.WeakSet[KwireProcess]" = weakref.WeakSet()


@dataclass(frozen=True)
class Broker:
    """Where clients connect, and the process behind it if it is one of ours."""

    bootstrap: str
    process: "KwireProcess | None" = None

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)


def wait_until(condition: Callable[[], Value], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> Value:
    """Ask `condition` again and again until its answer is true, and return that answer."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}; last answer {answer!r}")
        time.sleep(POLL_INTERVAL_S)


def kwire_command() -> Path:
    """The command under test; KWIRE_TEST_COMMAND puts another program with the same contract in its place."""
    override = os.environ.get("KWIRE_TEST_COMMAND")
    return Path(override) if override else Path(sys.executable).with_name("kwire")


def started_processes() -> list["KwireProcess"]:
    """Every process object alive in this test run, for reports of failed tests."""
    return sorted(_processes, key=lambda process: str(process.directory))


class KwireProcess(ServerProcess):
    """The server that is installed, as a user starts it, and its data directory.

    Ports stay the same over restarts, so that clients find the server again after a kill. A port of 0 is chosen by the
    server at its first start. A port of None, or names_data_dir=False, leaves the flag out: the value then comes from a
    configuration file.
    """

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        kafka_port: int | None = ANY_PORT,
        http_port: int | None = ANY_PORT,
        data_dir: Path | None = None,
        names_data_dir: bool = True,
        arguments: Sequence[str] = (),
    ) -> None:
        super().__init__(
            directory,
            unused_port() if kafka_port == ANY_PORT else kafka_port,
            unused_port() if http_port == ANY_PORT else http_port,
        )
        self.data_dir = data_dir if data_dir is not None else directory / "data"
        self.settings = {**TEST_SETTINGS, **(settings or {})}
        # A server without an address for HTTP takes the default port, which another test or a program may use.
        assert http_port is not None or "kwire.http.listener" in self.settings or "--config" in arguments
        self.env = dict(env or {})
        self.arguments = list(arguments)
        self.names_data_dir = names_data_dir
        self.ready_line = ""
        self.stdout_path = directory / "stdout.log"
        self.stderr_path = directory / "stderr.log"
        self._reader: threading.Thread | None = None
        self._is_ready = threading.Event()
        self._started_at = 0.0
        self._ready_after_s = 0.0
        _processes.add(self)

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.kafka_port}"

    @property
    def broker(self) -> Broker:
        return Broker(self.bootstrap, self)

    @property
    def kafka_address(self) -> tuple[str, int]:
        assert self.kafka_port
        return HOST, self.kafka_port

    def command(self) -> list[str]:
        command = [str(kwire_command()), "serve"]
        if self.kafka_port is not None:
            command += ["--kafka", f"{HOST}:{self.kafka_port}"]
        if self.http_port is not None:
            command += ["--http", f"{HOST}:{self.http_port}"]
        if self.names_data_dir:
            command += ["--data-dir", str(self.data_dir)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return command + self.arguments

    def start(self) -> None:
        """Start the process and return at once; `ready` waits for it."""
        self._check_is_stopped()
        self._is_ready.clear()
        self.ready_line = ""
        left_out = (*NOT_INHERITED, *(name for name in os.environ if name.startswith("KAFKA_")))
        with self.stderr_path.open("ab") as stderr:
            self._started_at = time.monotonic()
            process = self._spawn(
                self.command(), stdout=subprocess.PIPE, stderr=stderr, added=self.env, left_out=left_out
            )
        self._reader = threading.Thread(target=self._read_stdout, args=(process,), daemon=True)
        self._reader.start()

    def _read_stdout(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with self.stdout_path.open("ab") as copy, process.stdout:
            for line in process.stdout:
                copy.write(line)
                copy.flush()
                if line.startswith(b"ready ") and not self._is_ready.is_set():
                    self._ready_after_s = time.monotonic() - self._started_at
                    self.ready_line = line.decode().rstrip("\n")
                    self._is_ready.set()

    def ready(self, timeout_s: float = READY_TIMEOUT_S) -> float:
        """Wait for the ready line, take the ports from it, and return the seconds it took to appear."""
        deadline = time.monotonic() + timeout_s
        while not self._is_ready.wait(POLL_INTERVAL_S):
            if not self.is_running:
                raise ServerFailed(
                    f"the server ended with {self.exit_code()} before it was ready\n{self.output_tail()}"
                )
            if time.monotonic() >= deadline:
                raise ServerFailed(f"no ready line within {timeout_s} s\n{self.output_tail()}")
        addresses = dict(part.split("=", 1) for part in self.ready_line.split()[1:])
        if "kafka" in addresses:
            self.kafka_port = int(addresses["kafka"].rpartition(":")[2])
        if "http" in addresses:
            self.http_port = int(addresses["http"].rpartition(":")[2])
        return self._ready_after_s

    def exit_code(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for the end of the process."""
        code = self._wait_for_end(timeout_s)
        if self._reader is not None:
            self._reader.join(timeout_s)
        return code

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ask for a clean stop and return the exit code."""
        self._send_signal(signal.SIGTERM)
        return self.exit_code(timeout_s)

    def kill(self) -> None:
        """End the process as a crash does: at once, wherever it stands."""
        if self._process is not None:
            self._send_signal(signal.SIGKILL)
            self.exit_code()

    def restart(self, timeout_s: float = READY_TIMEOUT_S) -> float:
        """Start again on the same ports and data, and return the seconds until ready."""
        self.start()
        return self.ready(timeout_s)

    def anonymous_memory_bytes(self) -> int:
        """Memory that is not file pages: what a flood of requests could make grow."""
        return anonymous_memory_bytes(self.pid)

    def output_tail(self) -> str:
        paths = (self.stdout_path, self.stderr_path)
        return "\n".join(f"--- {path}\n{tail_of(path)}" for path in paths if path.exists())


def anonymous_memory_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} reports no RssAnon")
