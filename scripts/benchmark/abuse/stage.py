"""What the works of this family are given: a kwire of its own for each, with a slow disk where the attack needs it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmark import family
from benchmark.abuse.attack import Attack
from benchmark.abuse.options import Options
from benchmark.servers import Kwire, Launch, RunningServer

BEFORE = "before"  # How the same server is called in samples before it is attacked.

Stage = family.Stage[Options, None]
AttackWork = family.StagedWork[Options, None]


class SlowSyncKwire(Kwire):
    """A kwire whose every sync takes a second more."""

    def prepare(self, directory: Path) -> Launch:
        launch = super().prepare(directory)
        return replace(launch, argv=[sys.executable, "-m", "benchmark.abuse.slow_sync_server", *launch.argv[1:]])


@contextmanager
def server_for(stage: Stage, attack: Attack) -> Iterator[RunningServer]:
    product = SlowSyncKwire if attack.has_slow_sync else Kwire
    with stage.folder(attack.name) as directory:
        server = RunningServer(product(attack.settings), directory / "server")
        try:
            yield server
        finally:
            server.stop()
