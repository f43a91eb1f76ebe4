"""Starts the server of an attack: kwire, with slow syncs if the attack needs them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmark import family
from benchmark.abuse.attack import Attack
from benchmark.abuse.options import Options
from benchmark.servers import Kwire, Launch, RunningServer

BEFORE = "before"  # The name of the server in samples before the attack.

Stage = family.Stage[Options, None]
AttackWork = family.StagedWork[Options, None]


class SlowSyncKwire(Kwire):
    """kwire with syncs that take one second longer."""

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
