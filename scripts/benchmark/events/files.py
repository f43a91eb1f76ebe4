"""Event files: `kwire event export` of all stored events, and files that the server writes for new events."""

import resource
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmark.events.options import FILES
from benchmark.events.stage import EventWork, Stage, kwire, load
from benchmark.events.topics import ORDER, make_event_topics
from benchmark.processes import ChildFailed, run
from benchmark.samples import Sample, observe
from benchmark.servers import KWIRE, KWIRE_PROGRAM, LOOPBACK, RunningServer
from benchmark.works import Outcome

EXPORT, STEADY = f"{FILES} export", f"{FILES} in step"
TOPIC = "orders"
FILL_BATCH_EVENTS = 1000
STEADY_BATCH_EVENTS = 10
EXPORT_SECONDS_MAX = 1200.0


def run_files(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    sizes = stage.options.sizes
    with kwire(stage) as server, stage.folder("export") as directory:
        make_event_topics(server, [TOPIC], ORDER)
        load(stage, server, "publish", topics=TOPIC, batch=FILL_BATCH_EVENTS, events=sizes.exported_events)
        export = partial(_export, server, directory, sizes.exported_events)
        yield observe(server, round_number, EXPORT, export)
    with stage.folder("live") as directory, kwire(stage, {"kwire.events.files.dir": directory}) as server:
        make_event_topics(server, [TOPIC], ORDER)
        steady = partial(
            load,
            stage,
            server,
            "files",
            topics=TOPIC,
            directory=directory,
            batch=STEADY_BATCH_EVENTS,
            rate=sizes.steady_per_s,
            seconds=2 * sizes.seconds,
        )
        yield observe(server, round_number, STEADY, steady)


def _export(server: RunningServer, directory: Path, events: int) -> Outcome:
    url = f"http://{LOOPBACK}:{server.http_port}"
    before, began = _cpu_of_children(), time.perf_counter()
    argv = [
        str(KWIRE_PROGRAM),
        "event",
        "export",
        "--quiet",
        "--http",
        url,
        "--to",
        str(directory),
        TOPIC,
    ]
    run("kwire event export", argv, EXPORT_SECONDS_MAX)
    seconds = time.perf_counter() - began
    files = sum(1 for _ in (directory / "data" / TOPIC).rglob("*.json"))
    if files != events:
        raise ChildFailed(f"kwire event export: {files} files of {events} events")
    busy_share = (_cpu_of_children() - before) / seconds
    figures = {"files_per_s": files / seconds, "export_s": seconds, "generator_busy_share": busy_share}
    return Outcome(figures, requests=files)


def _cpu_of_children() -> float:
    """Return the CPU time of ended child processes. This is the export, because the server still runs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


WORK = EventWork(FILES, 90, run_files, servers=(KWIRE,))
