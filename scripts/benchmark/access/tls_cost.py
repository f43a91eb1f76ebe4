"""The work `tls`: produce and consume over TLS, on kwire and on Apache Kafka, with the same certificate."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from benchmark import options
from benchmark.access.acl_cost import SETTINGS
from benchmark.access.client_config import tls_config, write_config
from benchmark.access.measures import CONSUME_TLS, PRODUCE_TLS
from benchmark.access.options import TLS
from benchmark.access.servers import Certificates, ListeningKwire, TlsKafka
from benchmark.access.stage import AccessWork, Contender, Stage, running, take_turns
from benchmark.samples import Sample
from benchmark.servers import KWIRE, Product

WORKS = {options.PRODUCE: PRODUCE_TLS, options.CONSUME: CONSUME_TLS}
ESTIMATE_SECONDS = 80.0  # For one turn of both servers.


def _run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    with ExitStack() as stack:
        folder = stack.enter_context(stage.folder("clients"))
        certificates = Certificates.make(folder / "tls")
        config = write_config(folder / "client.properties", tls_config(certificates.ca))
        contenders = [
            Contender(stack.enter_context(running(stage, _product(name, certificates))), config, WORKS)
            for name in names
        ]
        yield from take_turns(stage, round_number, contenders)


def _product(name: str, certificates: Certificates) -> Product:
    if name == KWIRE:
        return ListeningKwire({**certificates.settings, **SETTINGS}, ("SSL",))
    return TlsKafka(certificates.settings)


WORK = AccessWork(TLS, ESTIMATE_SECONDS, _run, takes_turns=True)
