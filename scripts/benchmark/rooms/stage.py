"""Starts the servers of this family with one of two promises, and runs the load program on them.

With `--bridge`, a bridge over a cluster of its own is a third server. The cluster decides when its records are stored,
so the promise has no effect on it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmark import family
from benchmark.bridge.servers import BRIDGE, Bridge, three_nodes
from benchmark.bridge.stock_client import warm_up
from benchmark.go_programs import run_load
from benchmark.rooms.nats import NATS
from benchmark.rooms.options import Options
from benchmark.rooms.programs import Programs
from benchmark.servers import KWIRE, RunningServer
from benchmark.works import Outcome

LOAD_SECONDS_MAX = 1200.0  # A hundred thousand rooms take minutes on a slow disk.
BOTH = (NATS, KWIRE)
ALL = (*BOTH, BRIDGE)
WARM_UP_LOADS = 3.0  # The time for which a new cluster is warmed up, in loads.

Stage = family.Stage[Options, Programs]
RoomWork = family.StagedWork[Options, Programs]


@dataclass(frozen=True)
class Promise:
    """What an acknowledgement to a publisher guarantees, with the settings of each server for this."""

    title: str
    settings: Mapping[str, Mapping[str, object]]

    def of(self, work: str) -> str:
        return work if self is PAGE_CACHE else f"{work}, {self.title}"


# The default of both servers.
PAGE_CACHE = Promise("page cache", {NATS: {}, KWIRE: {"kwire.rooms.log.sync": "os"}})
SYNCED = Promise("synced", {NATS: {"sync_interval": "always"}, KWIRE: {"kwire.rooms.log.sync": "group"}})
PROMISES = (PAGE_CACHE, SYNCED)


def names_for(promise: Promise, names: Sequence[str]) -> list[str]:
    """Return the servers to which a promise applies. A cluster makes its own, which is compared with the default."""
    return [name for name in names if name in promise.settings or promise is PAGE_CACHE]


@contextmanager
def servers(stage: Stage, names: Sequence[str], promise: Promise = PAGE_CACHE) -> Iterator[list[RunningServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(_server(stage, name, promise)) for name in names]


@contextmanager
def _server(stage: Stage, name: str, promise: Promise) -> Iterator[RunningServer]:
    if name != BRIDGE:
        with stage.server(name, promise.settings[name]) as server:
            yield server
        return
    with stage.folder(name) as directory, three_nodes(directory / "cluster") as cluster:
        warm_up(cluster.bootstrap, WARM_UP_LOADS * stage.options.sizes.seconds)
        server = RunningServer(Bridge({}, cluster.bootstrap), directory / "server")
        try:
            yield server
        finally:
            server.stop()


def load(stage: Stage, server: RunningServer, work: str, **options: object) -> Outcome:
    """Run the load program against a server."""
    name = server.product.name
    target, port = (NATS, server.address[1]) if name == NATS else (KWIRE, server.http_port)
    return run_load(stage.tools.load, work, LOAD_SECONDS_MAX, target=target, port=port, **options)
