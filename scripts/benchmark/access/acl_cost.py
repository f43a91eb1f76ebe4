"""The work `acls`: produce and small requests with logins and ACLs, beside the same server without them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from benchmark import options
from benchmark.access.acls import acls_for, add_acls
from benchmark.access.client_config import sasl_config, write_config
from benchmark.access.measures import MANY, PRODUCE, REQUESTS
from benchmark.access.options import ACLS, FEW_ACLS, MANY_ACLS
from benchmark.access.servers import ADMIN, CLIENT, GuardedKwire, OpenKwire
from benchmark.access.stage import AccessWork, Contender, Stage, running, take_turns
from benchmark.samples import Sample
from benchmark.servers import KWIRE

# As in the main benchmark: an acknowledged record is in the page cache.
SETTINGS: dict[str, object] = {"kwire.log.sync": "os"}
TOPICS = "bench-"  # The names of all topics of the works begin with this.
ESTIMATE_SECONDS = 110.0  # For one turn of all servers.


def _run(stage: Stage, round_number: int, _names: Sequence[str]) -> Iterator[Sample]:
    with ExitStack() as stack:
        folder = stack.enter_context(stage.folder("clients"))
        config = write_config(folder / "client.properties", sasl_config(CLIENT))
        opened = stack.enter_context(running(stage, OpenKwire(SETTINGS)))
        contenders = [Contender(opened, None, _works(""))]
        for count, end in ((FEW_ACLS, ""), (MANY_ACLS, MANY)):
            server = stack.enter_context(running(stage, GuardedKwire(SETTINGS)))
            add_acls(server.address, ADMIN, acls_for(CLIENT, TOPICS, count))
            contenders.append(Contender(server, config, _works(end)))
        yield from take_turns(stage, round_number, contenders)


def _works(end: str) -> dict[str, str]:
    return {options.PRODUCE: PRODUCE + end, options.SMALL_REQUESTS: REQUESTS + end}


WORK = AccessWork(ACLS, ESTIMATE_SECONDS, _run, takes_turns=True, servers=(KWIRE,))
