"""The types of this family's works, and the function that crashes a server."""

from benchmark import family
from benchmark.log.options import Options
from benchmark.servers import KAFKA, RunningServer, add_properties
from benchmark.tools import Tools

# After a kill, Kafka waits at its start until the session of its previous process has expired, by default 9 s.
SHORT_SESSION: dict[str, object] = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 300}

Stage = family.Stage[Options, Tools]
LogWork = family.StagedWork[Options, Tools]


def crash(server: RunningServer) -> None:
    """Kill the server. Shorten Kafka's session timeout, so that the next start mainly measures the recovery."""
    server.kill()
    if server.product.name == KAFKA:
        add_properties(server.directory, SHORT_SESSION)
