"""The function that runs the works of this family and prints the table."""

from collections.abc import Mapping, Sequence

from benchmark.cli.measures import MEASURES
from benchmark.cli.options import KCAT, parse
from benchmark.cli.programs import find_kcat, kcat_facts
from benchmark.cli.work import WORKS
from benchmark.family import Beside, run_family
from benchmark.samples import Sample
from benchmark.servers import Kwire, Product


def _no_server(settings: Mapping[str, object]) -> Product:
    """kcat is a client: both programs use a kwire server."""
    return Kwire(settings)


BESIDE = Beside(
    name=KCAT, titles=("kcat", "kcat"), product=_no_server, needed="kcat", tools=find_kcat, facts=kcat_facts
)


def run_cli_works(arguments: Sequence[str]) -> list[Sample]:
    return run_family(parse(arguments), WORKS, MEASURES, BESIDE)
