"""Where a work is played: servers with settings of its own, each in a directory that goes with it."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from benchmark.log.options import Options
from benchmark.samples import Sample
from benchmark.servers import KAFKA, KWIRE, START_TIMEOUT_SECONDS, ApacheKafka, Kwire, Product, RunningServer
from benchmark.tools import Tools

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

    def servers(self, round_number: int) -> list[str]:
        """Who goes first changes with the round."""
        names = list(self.options.servers)
        return names[::-1] if round_number % 2 else names


@dataclass(frozen=True)
class LogWork:
    """`run` gives each sample as soon as it is there, so that a failure takes no earlier ones with it."""

    name: str
    estimate_seconds: float
    run: Callable[[Stage, int], Iterator[Sample]]
