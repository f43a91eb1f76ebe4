"""`python -m benchmark`: checks the requirements, starts the servers, runs the schedule and prints the table.

`python -m benchmark FAMILY` runs another family of works: `log`, `groups`, `rooms`, `events`, `pipeline`, `abuse`,
`access`, `cli`, `clients` or `bridge`.
Each work of these families starts its own servers.
"""

import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmark import (
    abuse,
    access,
    bridge,
    cli,
    events,
    groups,
    kafka_clients,
    log,
    machine,
    options,
    pipeline,
    report,
    rooms,
)
from benchmark.abuse.run import run_attacks
from benchmark.access.run import run_access_works
from benchmark.bridge.run import run_bridge_works
from benchmark.cli.run import run_cli_works
from benchmark.events.run import run_event_works
from benchmark.groups.run import run_group_works
from benchmark.house import check_kwire, make_directory, publish, say
from benchmark.log.run import run_log_works
from benchmark.measures import FIXED_WORKS, MEASURES, STALL_MEASURES, without_relative_bars
from benchmark.pipeline.run import run_pipeline_works
from benchmark.processes import ChildFailed
from benchmark.rooms.run import run_room_works
from benchmark.samples import Sample, anonymous_mb
from benchmark.schedule import Schedule, execute
from benchmark.servers import (
    BASELINE,
    KAFKA,
    KWIRE,
    ApacheKafka,
    Baseline,
    Kwire,
    Product,
    RunningServer,
    ServerDied,
    fetch_apache_kafka,
)
from benchmark.tools import Tools

# Both servers have the same durability: an acknowledged record is in the page cache. This is Kafka's default.
KWIRE_SETTINGS = {"kwire.log.sync": "os"}
SETTLE_SECONDS = 3.0
FAMILIES = {
    log.FAMILY: run_log_works,
    groups.FAMILY: run_group_works,
    rooms.FAMILY: run_room_works,
    events.FAMILY: run_event_works,
    pipeline.FAMILY: run_pipeline_works,
    abuse.FAMILY: run_attacks,
    access.FAMILY: run_access_works,
    cli.FAMILY: run_cli_works,
    kafka_clients.FAMILY: kafka_clients.run_client_works,
    bridge.FAMILY: run_bridge_works,
}
TERMINATED = 128 + signal.SIGTERM


def main() -> None:
    # `sys.exit` raises an exception, so every server is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    arguments = sys.argv[1:]
    family = FAMILIES.get(arguments[0]) if arguments else None
    samples = family(arguments[1:]) if family else run_works(options.parse(arguments))
    sys.exit(1 if any(sample.error for sample in samples) else 0)


def run_works(given: options.Options) -> list[Sample]:
    check_kwire(given.servers)
    samples: list[Sample] = []
    with ExitStack() as stack:
        directory = make_directory(given.base_directory, given.disk_bytes, given.keep, stack)
        say("looking for Apache Kafka's jars (the first run fetches them)")
        tools = Tools(fetch_apache_kafka())
        beside = machine.kafka_facts(tools.libs) if given.baseline is None else machine.baseline_facts(given.baseline)
        facts = machine.facts(directory, beside)
        try:
            measure(given, tools, directory, samples, stack)
        except (ServerDied, ChildFailed, KeyboardInterrupt) as error:
            reason = str(error) or "interrupted"
            samples.append(Sample("bench", given.rounds, "run", error=reason))
            say(reason)
    if given.baseline is None:
        rows, titles = report.rows(samples, MEASURES, STALL_MEASURES, fixed=FIXED_WORKS), ("Apache Kafka", "Kafka")
    else:
        measures = without_relative_bars(MEASURES)
        rows, titles = report.rows(samples, measures, STALL_MEASURES, beside=BASELINE), (BASELINE, BASELINE)
    publish(given.rounds, facts, asdict(given), samples, rows, given.json_path, titles)
    return samples


def measure(given: options.Options, tools: Tools, directory: Path, samples: list[Sample], stack: ExitStack) -> None:
    products: dict[str, Product] = {KAFKA: ApacheKafka({}), KWIRE: Kwire(KWIRE_SETTINGS)}
    if given.baseline is not None:
        products[BASELINE] = Baseline(KWIRE_SETTINGS, given.baseline)
    servers = []
    for name in given.servers:
        say(f"starting {products[name].title}")
        server = RunningServer(products[name], directory / name)
        stack.callback(server.stop)
        servers.append(server)
    time.sleep(SETTLE_SECONDS)  # Idle memory is measured when the start is complete.
    idle_mb = {server.product.name: anonymous_mb(server) for server in servers}
    steps = Schedule(given, servers, idle_mb, tools, directory).steps()
    execute(steps, given.rounds, samples)


if __name__ == "__main__":
    main()
