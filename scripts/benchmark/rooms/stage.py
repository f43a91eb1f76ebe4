"""Starts the servers of this family with one of two promises, and runs the load program on them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmark import family
from benchmark.go_programs import run_load
from benchmark.rooms.nats import NATS
from benchmark.rooms.options import Options
from benchmark.rooms.programs import Programs
from benchmark.servers import KWIRE, RunningServer
from benchmark.works import Outcome

LOAD_SECONDS_MAX = 1200.0  # A hundred thousand rooms take minutes on a slow disk.
BOTH = (NATS, KWIRE)

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


@contextmanager
def servers(stage: Stage, names: Sequence[str], promise: Promise = PAGE_CACHE) -> Iterator[list[RunningServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(stage.server(name, promise.settings[name])) for name in names]


def load(stage: Stage, server: RunningServer, work: str, **options: object) -> Outcome:
    """Run the load program against a server."""
    name = server.product.name
    port = server.http_port if name == KWIRE else server.address[1]
    return run_load(stage.tools.load, work, LOAD_SECONDS_MAX, target=name, port=port, **options)
