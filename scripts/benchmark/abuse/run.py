"""Runs each attack on its own server, and prints the table and a verdict for each attack."""

import platform
from collections.abc import Iterator, Sequence
from functools import partial

from benchmark import report
from benchmark.abuse.attacks import ATTACKS
from benchmark.abuse.measures import measures, measures_of
from benchmark.abuse.options import Options, parse
from benchmark.abuse.stage import BEFORE, AttackWork
from benchmark.abuse.work import run
from benchmark.family import Beside, run_family
from benchmark.samples import Sample
from benchmark.servers import KWIRE, Kwire

# Where other families show another server, this table shows kwire before the attack.
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
    samples = run_family(given, works, measures(given), QUIET)
    for line in verdicts(given, samples):
        print(line, flush=True)
    return samples


def verdicts(given: Options, samples: Sequence[Sample]) -> Iterator[str]:
    """Yield a line for each measured attack: whether all targets were met, and which were not."""
    yield ""
    for attack in ATTACKS:
        own = [sample for sample in samples if sample.work == attack.name]
        if not own:
            continue
        rows = report.rows(own, list(measures_of(attack, given)), beside=BEFORE)
        missed = [row.title.rpartition(": ")[2].removeprefix("- ") for row in rows if row.met is False]
        failed = [f"failed: {sample.error.splitlines()[0]}" for sample in own if sample.error]
        problems = [*failed, *missed]
        yield f"{attack.name}: {'does not hold: ' + '; '.join(problems) if problems else 'holds'}"
