"""The servers under test: how each is prepared, started, timed and stopped. Everything stays on loopback."""

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmark.processes import ERROR_TAIL_CHARACTERS, STOP_SECONDS, ChildFailed, kill, run, start_in_background, stop

REPOSITORY = Path(__file__).resolve().parents[2]
APACHE_KAFKA = REPOSITORY / "compat" / "apache_kafka"
PROGRAM_IN_CHECKOUT = Path(".venv") / "bin" / "kwire"
KWIRE_PROGRAM = REPOSITORY / PROGRAM_IN_CHECKOUT
KAFKA, KWIRE, BASELINE = "kafka", "kwire", "baseline"  # The names in samples and options.
LOOPBACK = "127.0.0.1"
READY = b"ready "

FETCH_TIMEOUT_SECONDS = 1200
FORMAT_TIMEOUT_SECONDS = 60
START_TIMEOUT_SECONDS = 60
POLL_SECONDS = 0.001


@dataclass(frozen=True)
class Launch:
    """The command of a prepared server, and its ports."""

    argv: list[str]
    kafka_port: int
    http_port: int | None
    prints_ready: bool


class Product(ABC):
    """A kind of server, with the settings that differ from its defaults."""

    name: str
    title: str
    # Headers with which /metrics is read.
    metrics_headers: Mapping[str, str] = {}

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = settings

    @abstractmethod
    def prepare(self, directory: Path) -> Launch:
        """Prepare `directory` for the server. This is not included in the start-up time."""


class ApacheKafka(Product):
    name = KAFKA
    title = "Apache Kafka"

    def prepare(self, directory: Path) -> Launch:
        kafka_port, controller_port = free_ports(2)
        argv = [str(APACHE_KAFKA / "format"), str(directory), str(kafka_port), str(controller_port)]
        run("format", argv, FORMAT_TIMEOUT_SECONDS)
        add_properties(directory, self._settings)
        return Launch([str(APACHE_KAFKA / "serve"), str(directory)], kafka_port, None, prints_ready=False)


def add_properties(directory: Path, settings: Mapping[str, object]) -> None:
    """Add settings for the next start of Kafka. They override earlier values in the file."""
    with (directory / "server.properties").open("a") as properties:
        properties.writelines(f"{name}={value}\n" for name, value in settings.items())


class Kwire(Product):
    name = KWIRE
    title = "kwire"
    program = KWIRE_PROGRAM

    def prepare(self, directory: Path) -> Launch:
        kafka_port, http_port = free_ports(2)
        argv = [str(self.program), "serve", "--kafka", f"{LOOPBACK}:{kafka_port}", "--http", f"{LOOPBACK}:{http_port}"]
        argv += ["--data-dir", str(directory / "data")]
        for name, value in self._settings.items():
            argv += ["--set", f"{name}={value}"]
        return Launch(argv, kafka_port, http_port, prints_ready=True)


class Baseline(Kwire):
    """The kwire of another checkout, to compare two commits in one run."""

    name = BASELINE
    title = "baseline"

    def __init__(self, settings: Mapping[str, object], checkout: Path) -> None:
        super().__init__(settings)
        self.program = checkout / PROGRAM_IN_CHECKOUT


@dataclass(frozen=True)
class StartUp:
    """Seconds from the start of the process to the open port and to the ready line, which only kwire prints."""

    port_seconds: float
    ready_seconds: float | None


class RunningServer:
    """A started server with its own directory. It can be stopped and started again in this directory."""

    def __init__(self, product: Product, directory: Path, start_timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        directory.mkdir(parents=True)
        self.product = product
        self.directory = directory
        self._start_timeout_seconds = start_timeout_seconds
        self._log_path = directory / "server.log"
        self._launch = product.prepare(directory)
        port, http_port = self._launch.kafka_port, self._launch.http_port
        self.address = (LOOPBACK, port)
        self.bootstrap = f"{LOOPBACK}:{port}"
        self.http_port = http_port
        self.metrics_url = f"http://{LOOPBACK}:{http_port}/metrics" if http_port else None
        self.start()

    def start(self) -> None:
        self.started = time.perf_counter()
        self._process = start_in_background(self._launch.argv, self._log_path)
        try:
            self.start_up = self._await_start(self._launch, self.started)
        except BaseException:
            stop(self._process)
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def check_alive(self) -> None:
        if self._process.poll() is not None:
            tail = self._log_path.read_text(errors="replace")[-ERROR_TAIL_CHARACTERS:]
            raise ServerDied(f"{self.product.title} ended with exit code {self._process.returncode}\n{tail}")

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> bool:
        """Stop the server. Return whether it ended in time. Otherwise it was killed."""
        return stop(self._process, timeout_seconds)

    def kill(self) -> None:
        """Kill the server (SIGKILL), to simulate a crash."""
        kill(self._process)

    def _await_start(self, launch: Launch, started: float) -> StartUp:
        port_seconds: float | None = None
        ready_seconds: float | None = None
        while time.perf_counter() - started < self._start_timeout_seconds:
            self.check_alive()
            if port_seconds is None and accepts(launch.kafka_port):
                port_seconds = time.perf_counter() - started
            if ready_seconds is None and launch.prints_ready and self._has_printed_ready():
                ready_seconds = time.perf_counter() - started
            if port_seconds is not None and (ready_seconds is not None or not launch.prints_ready):
                return StartUp(port_seconds, ready_seconds)
            time.sleep(POLL_SECONDS)
        waited = f"not started after {self._start_timeout_seconds:.0f} s"
        raise ChildFailed(f"{self.product.title}: {waited}, see {self._log_path}")

    def _has_printed_ready(self) -> bool:
        lines = self._log_path.read_bytes().splitlines()
        return any(line.startswith(READY) for line in lines)


class ServerDied(Exception):
    """A server under test has ended, so further measurements would be meaningless."""


def free_ports(count: int) -> list[int]:
    """Return free ports. All are bound at the same time, so that they differ, and then released."""
    listeners = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports = [int(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
        return True
    return False


def fetch_apache_kafka() -> Path:
    """Return the directory of Kafka's jars. The first call downloads them."""
    return Path(run("fetch", [str(APACHE_KAFKA / "fetch")], FETCH_TIMEOUT_SECONDS).strip())
