"""Starts the server of an attack: kwire, with slow syncs, or with logins, ACLs and TLS if the attack needs them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmark import family
from benchmark.abuse.attack import Attack
from benchmark.abuse.options import Options
from benchmark.access.servers import Certificates, GuardedKwire
from benchmark.servers import Kwire, Launch, RunningServer

BEFORE = "before"  # The name of the server in samples before the attack.

Stage = family.Stage[Options, None]
AttackWork = family.StagedWork[Options, None]


class SlowSyncKwire(Kwire):
    """kwire with syncs that take one second longer."""

    def prepare(self, directory: Path) -> Launch:
        launch = super().prepare(directory)
        return replace(launch, argv=[sys.executable, "-m", "benchmark.abuse.slow_sync_server", *launch.argv[1:]])


def _product(attack: Attack, directory: Path) -> Kwire:
    if attack.is_guarded:
        certificates = Certificates.make(directory / "tls")
        return GuardedKwire({**certificates.settings, **attack.settings}, ("SASL_PLAINTEXT", "SSL"))
    return SlowSyncKwire(attack.settings) if attack.has_slow_sync else Kwire(attack.settings)


def tls_port(server: RunningServer) -> int:
    """Return the port of the listener with TLS, or 0 if there is none."""
    return server.product.ports["SSL"] if isinstance(server.product, GuardedKwire) else 0


@contextmanager
def server_for(stage: Stage, attack: Attack) -> Iterator[RunningServer]:
    with stage.folder(attack.name) as directory:
        server = RunningServer(_product(attack, directory), directory / "server")
        try:
            yield server
        finally:
            server.stop()
