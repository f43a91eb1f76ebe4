"""A run of this family: each attack on a server of its own, and the table of what it did to the good client."""

import platform
from collections.abc import Sequence
from functools import partial

from benchmark.abuse.attacks import ATTACKS
from benchmark.abuse.measures import measures
from benchmark.abuse.options import parse
from benchmark.abuse.stage import BEFORE, AttackWork
from benchmark.abuse.work import run
from benchmark.family import Beside, run_family
from benchmark.samples import Sample
from benchmark.servers import KWIRE, Kwire

# The columns of other servers show kwire itself, before the attack.
QUIET = Beside(
    name=BEFORE,
    titles=("before the attack", "before"),
    product=Kwire,
    needed="nothing but kwire",
    tools=lambda: None,
    facts=lambda _: {"beside": "attacks one at a time", "runtime": platform.python_implementation()},
)
ESTIMATE_SECONDS = 60.0


def run_attacks(arguments: Sequence[str]) -> list[Sample]:
    given = parse(arguments)
    works = [AttackWork(attack.name, ESTIMATE_SECONDS, partial(run, attack), servers=(KWIRE,)) for attack in ATTACKS]
    return run_family(given, works, measures(given), QUIET)
