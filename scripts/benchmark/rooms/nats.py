"""Starts a NATS server with JetStream, on loopback and in its own directory."""

from collections.abc import Mapping
from pathlib import Path

from benchmark.family import Beside
from benchmark.rooms.programs import Programs, build_nats_server, build_programs
from benchmark.servers import LOOPBACK, Launch, Product, free_ports

NATS = "nats"  # The name in samples and options.
CONFIG = """\
listen: "{address}"
jetstream {{
  store_dir: "{directory}"
{settings}}}
"""


class NatsServer(Product):
    """A NATS server. Its settings are settings of JetStream."""

    name = NATS
    title = "NATS"

    def __init__(self, settings: Mapping[str, object]) -> None:
        super().__init__(settings)
        self._program = build_nats_server()

    def prepare(self, directory: Path) -> Launch:
        (port,) = free_ports(1)
        settings = "".join(f"  {name}: {value}\n" for name, value in self._settings.items())
        config = CONFIG.format(address=f"{LOOPBACK}:{port}", directory=directory / "data", settings=settings)
        path = directory / "nats.conf"
        path.write_text(config)
        return Launch([str(self._program), "--config", str(path)], port, None, prints_ready=False)


NATS_SERVER = Beside(
    name=NATS,
    titles=("NATS JetStream", "NATS"),
    product=NatsServer,
    needed="the load program (the first run builds it)",
    tools=build_programs,
    facts=Programs.facts,
)
