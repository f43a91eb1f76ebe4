"""What is built with Go: the NATS server that kwire is measured beside, and the program that loads both.

Both are built once, into the user's cache directory. The server is a Go module of a fixed version; the versions of
what the load program is made of are in its go.mod.
"""

from dataclasses import dataclass
from pathlib import Path

from benchmark.go_programs import build_load, built, cache
from benchmark.machine import output_of

NATS_MODULE = "github.com/nats-io/nats-server/v2"
NATS_VERSION = "v2.15.2"
LOAD_SOURCES = Path(__file__).parent / "load"


@dataclass(frozen=True)
class Programs:
    """What the works are given."""

    load: Path

    def facts(self) -> dict[str, object]:
        return {"beside": f"nats-server {NATS_VERSION}", "runtime": output_of(["go", "version"])}


def build_programs() -> Programs:
    return Programs(build_load("rooms", LOAD_SOURCES))


def build_nats_server() -> Path:
    """The first call takes a minute or two and needs the network."""
    home = cache() / f"nats-server-{NATS_VERSION}"
    install = ["go", "install", f"{NATS_MODULE}@{NATS_VERSION}"]
    return built(home, "nats-server", lambda into: ["env", f"GOBIN={into}", *install])
