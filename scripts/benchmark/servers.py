"""The two servers under test: how each is prepared, started, timed and stopped. Everything stays on loopback."""

import socket
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmark.processes import ERROR_TAIL_CHARACTERS, ChildFailed, run, start_in_background, stop

REPOSITORY = Path(__file__).resolve().parents[2]
APACHE_KAFKA = REPOSITORY / "compat" / "apache_kafka"
KWIRE = REPOSITORY / ".venv" / "bin" / "kwire"
LOOPBACK = "127.0.0.1"
READY = b"ready "

FETCH_TIMEOUT_SECONDS = 1200
FORMAT_TIMEOUT_SECONDS = 60
START_TIMEOUT_SECONDS = 60
POLL_SECONDS = 0.001


@dataclass(frozen=True)
class Launch:
    """A server that is prepared and only has to be executed."""

    argv: list[str]
    kafka_port: int
    http_port: int | None
    prints_ready: bool


class Product(ABC):
    name: str
    title: str

    @abstractmethod
    def prepare(self, directory: Path) -> Launch:
        """Do in `directory` what comes before the start and is not part of it."""


class ApacheKafka(Product):
    name = "kafka"
    title = "Apache Kafka"

    def prepare(self, directory: Path) -> Launch:
        kafka_port, controller_port = free_ports(2)
        argv = [str(APACHE_KAFKA / "format"), str(directory), str(kafka_port), str(controller_port)]
        run("format", argv, FORMAT_TIMEOUT_SECONDS)
        return Launch([str(APACHE_KAFKA / "serve"), str(directory)], kafka_port, None, prints_ready=False)


class Kwire(Product):
    name = "kwire"
    title = "kwire"

    def prepare(self, directory: Path) -> Launch:
        kafka_port, http_port = free_ports(2)
        argv = [str(KWIRE), "serve", "--kafka", f"{LOOPBACK}:{kafka_port}", "--http", f"{LOOPBACK}:{http_port}"]
        # Both make the same promise: an acknowledged record is in the page cache, which is Kafka's default.
        argv += ["--data-dir", str(directory / "data"), "--set", "kwire.log.sync=os"]
        return Launch(argv, kafka_port, http_port, prints_ready=True)


@dataclass(frozen=True)
class StartUp:
    """Seconds from the start of the process; only kwire says when it is ready."""

    port_seconds: float
    ready_seconds: float | None


class RunningServer:
    """A started server and the directory that is its own."""

    def __init__(self, product: Product, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.product = product
        self.directory = directory
        self._log_path = directory / "server.log"
        launch = product.prepare(directory)
        self.address = (LOOPBACK, launch.kafka_port)
        self.bootstrap = f"{LOOPBACK}:{launch.kafka_port}"
        self.metrics_url = f"http://{LOOPBACK}:{launch.http_port}/metrics" if launch.http_port else None
        started = time.perf_counter()
        self._process = start_in_background(launch.argv, self._log_path)
        try:
            self.start_up = self._await_start(launch, started)
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

    def stop(self) -> None:
        stop(self._process)

    def _await_start(self, launch: Launch, started: float) -> StartUp:
        port_seconds: float | None = None
        ready_seconds: float | None = None
        while time.perf_counter() - started < START_TIMEOUT_SECONDS:
            self.check_alive()
            if port_seconds is None and accepts(launch.kafka_port):
                port_seconds = time.perf_counter() - started
            if ready_seconds is None and launch.prints_ready and self._has_printed_ready():
                ready_seconds = time.perf_counter() - started
            if port_seconds is not None and (ready_seconds is not None or not launch.prints_ready):
                return StartUp(port_seconds, ready_seconds)
            time.sleep(POLL_SECONDS)
        raise ChildFailed(f"{self.product.title}: not started after {START_TIMEOUT_SECONDS} s, see {self._log_path}")

    def _has_printed_ready(self) -> bool:
        lines = self._log_path.read_bytes().splitlines()
        return any(line.startswith(READY) for line in lines)


class ServerDied(Exception):
    """A server under test is gone: whatever is measured after that would be nonsense."""


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; all are held until the last is known, so that they differ."""
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
    """The directory of Kafka's jars; the first call downloads them."""
    return Path(run("fetch", [str(APACHE_KAFKA / "fetch")], FETCH_TIMEOUT_SECONDS).strip())
