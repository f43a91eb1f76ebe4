"""Builds the Go programs: the NATS server that kwire is compared with, and the load program.

Both are built once, in the user's cache directory. The server is a Go module with a fixed version. The go.mod of the
load program has the versions of its dependencies.
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
    """The programs that the works use."""

    load: Path

    def facts(self) -> dict[str, object]:
        return {"beside": f"nats-server {NATS_VERSION}", "runtime": output_of(["go", "version"])}


def build_programs() -> Programs:
    return Programs(build_load("rooms", LOAD_SOURCES))


def build_nats_server() -> Path:
    """Return the NATS server. The first call builds it, which takes one or two minutes and needs the network."""
    home = cache() / f"nats-server-{NATS_VERSION}"
    install = ["go", "install", f"{NATS_MODULE}@{NATS_VERSION}"]
    return built(home, "nats-server", lambda into: ["env", f"GOBIN={into}", *install])
