"""What the works of this family are given, and how they end a server in the middle."""

from benchmark import family
from benchmark.log.options import Options
from benchmark.servers import KAFKA, RunningServer, add_properties
from benchmark.tools import Tools

# A killed Kafka waits at its start until the session of its former self has run out, 9 s by default.
SHORT_SESSION: dict[str, object] = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 300}

Stage = family.Stage[Options, Tools]
LogWork = family.StagedWork[Options, Tools]


def crash(server: RunningServer) -> None:
    """Kill it, and let the next start show what there is to be recovered and nothing else."""
    server.kill()
    if server.product.name == KAFKA:
        add_properties(server.directory, SHORT_SESSION)
