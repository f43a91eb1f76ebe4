"""Where a work is played: servers with settings of its own, each in a directory that goes with it."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from benchmark.log.options import Options
from benchmark.samples import Sample
from benchmark.servers import (
    KAFKA,
    KWIRE,
    START_TIMEOUT_SECONDS,
    ApacheKafka,
    Kwire,
    Product,
    RunningServer,
    add_properties,
)
from benchmark.tools import Tools

# A killed Kafka waits at its start until the session of its former self has run out, 9 s by default.
SHORT_SESSION: dict[str, object] = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 300}
PRODUCTS: dict[str, Callable[[Mapping[str, object]], Product]] = {KAFKA: ApacheKafka, KWIRE: Kwire}


@dataclass
class Stage:
    options: Options
    tools: Tools
    directory: Path
    _numbers: Iterator[int] = field(default_factory=count)

    @contextmanager
    def server(
        self, name: str, settings: Mapping[str, object], start_timeout_seconds: float = START_TIMEOUT_SECONDS
    ) -> Iterator[RunningServer]:
        with self.folder(name) as directory:
            server = RunningServer(PRODUCTS[name](settings), directory / "server", start_timeout_seconds)
            try:
                yield server
            finally:
                server.stop()

    @contextmanager
    def folder(self, label: str) -> Iterator[Path]:
        directory = self.directory / f"{label}-{next(self._numbers)}"
        directory.mkdir()
        try:
            yield directory
        finally:
            if not self.options.keep:
                shutil.rmtree(directory, ignore_errors=True)


def crash(server: RunningServer) -> None:
    """Kill it, and let the next start show what there is to be recovered and nothing else."""
    server.kill()
    if server.product.name == KAFKA:
        add_properties(server.directory, SHORT_SESSION)


@dataclass(frozen=True)
class LogWork:
    """`run`, for some servers in one round, gives each sample as soon as it is there: a failure takes none with it.

    Where the servers take turns it is called once for all of them, otherwise once for each.
    """

    name: str
    estimate_seconds: float
    run: Callable[[Stage, int, Sequence[str]], Iterator[Sample]]
    takes_turns: bool = False
    servers: tuple[str, ...] = (KAFKA, KWIRE)
