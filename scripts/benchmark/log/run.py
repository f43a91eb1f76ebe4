"""A run of this family: its works one after another, and the table of what they found."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict

from benchmark import machine, report
from benchmark.house import check_kwire, make_directory, publish, say
from benchmark.log import compaction, durable, many_topics, recovery, sync_round, upkeep
from benchmark.log.measures import measures
from benchmark.log.options import FULL, Options, parse
from benchmark.log.stage import LogWork, Stage
from benchmark.processes import ChildFailed
from benchmark.progress import Progress
from benchmark.samples import Sample
from benchmark.servers import ServerDied, fetch_apache_kafka
from benchmark.tools import Tools
from benchmark.wire import WireError

WORKS = (sync_round.WORK, durable.WORK, upkeep.WORK, compaction.WORK, many_topics.WORK, recovery.WORK)
QUICK_SHARE = 0.2


def run_log_works(arguments: Sequence[str]) -> list[Sample]:
    given = parse(arguments)
    check_kwire(given.servers)
    samples: list[Sample] = []
    with ExitStack() as stack:
        directory = make_directory(given.base_directory, given.disk_bytes, given.keep, stack)
        say("looking for Apache Kafka's jars (the first run fetches them)")
        tools = Tools(fetch_apache_kafka())
        facts = machine.facts(tools.libs, directory)
        try:
            _execute(Stage(given, tools, directory), samples)
        except KeyboardInterrupt:
            samples.append(Sample("bench", given.rounds, "run", error="interrupted"))
    publish(given.rounds, facts, asdict(given), samples, report.rows(samples, measures(given)), given.json_path)
    return samples


def _execute(stage: Stage, samples: list[Sample]) -> None:
    given = stage.options
    works = [work for work in WORKS if work.name in given.works]
    share = _share(given)
    steps = [
        (work, number, names)
        for number in range(1, given.rounds + 1)
        for work in works
        for names in _turns(work, given.servers, number)
    ]
    progress = Progress(len(steps), sum(work.estimate_seconds for work in works) * given.rounds * share)
    with closing(progress):
        for work, number, names in steps:
            title = f"{work.name} · {' and '.join(names)} · round {number}/{given.rounds}"
            part = len(names) / len(set(given.servers) & set(work.servers))
            with progress.step(title, work.estimate_seconds * share * part):
                error = _attempt(work, stage, number, names, samples)
            if error:
                progress.note(f"{title} failed: {error}")


def _turns(work: LogWork, servers: Sequence[str], round_number: int) -> list[list[str]]:
    """Who goes first changes with the round."""
    names = [name for name in servers if name in work.servers]
    if round_number % 2:
        names.reverse()
    return [names] if work.takes_turns else [[name] for name in names]


def _share(given: Options) -> float:
    return 1.0 if given.sizes.request_seconds == FULL.request_seconds else QUICK_SHARE


def _attempt(work: LogWork, stage: Stage, round_number: int, names: Sequence[str], samples: list[Sample]) -> str | None:
    """Every work has servers of its own, so the failure of one says nothing about the next."""
    try:
        for sample in work.run(stage, round_number, names):
            samples.append(sample)
    except (ChildFailed, ServerDied, WireError, OSError) as error:
        reason = str(error) or type(error).__name__
        samples.append(Sample(" and ".join(names), round_number, work.name, error=reason))
        return reason
    return None
