"""`python -m benchmark`: check what is needed, start the servers, run the schedule, print the table."""

import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmark import machine, options, report
from benchmark.processes import ChildFailed
from benchmark.samples import Sample, anonymous_mb
from benchmark.schedule import Schedule, execute
from benchmark.servers import KWIRE, ApacheKafka, Kwire, Product, RunningServer, ServerDied, fetch_apache_kafka
from benchmark.tools import Tools

PRODUCTS: dict[str, Product] = {"kafka": ApacheKafka(), "kwire": Kwire()}
SETTLE_SECONDS = 3.0
TERMINATED = 128 + signal.SIGTERM


def main() -> None:
    given = options.parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # An exception, so that every server is stopped.
    check_needs(given)
    samples: list[Sample] = []
    with ExitStack() as stack:
        directory = make_directory(given, stack)
        say("looking for Apache Kafka's jars (the first run fetches them)")
        tools = Tools(fetch_apache_kafka())
        facts = machine.facts(tools.libs, directory)
        try:
            measure(given, tools, directory, samples, stack)
        except (ServerDied, ChildFailed, KeyboardInterrupt) as error:
            reason = str(error) or "interrupted"
            samples.append(Sample("bench", given.rounds, "run", error=reason))
            say(reason)
    publish(given, facts, samples)
    sys.exit(1 if any(sample.error for sample in samples) else 0)


def check_needs(given: options.Options) -> None:
    if "kwire" in given.servers and not KWIRE.exists():
        sys.exit(f"{KWIRE} does not exist: start with scripts/bench, or measure only Kafka with --kafka-only")


def make_directory(given: options.Options, stack: ExitStack) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="kwire-bench-", dir=given.base_directory))
    if given.keep:
        say(f"data and logs stay in {directory}")
    else:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
    free = shutil.disk_usage(directory).free
    if free < given.disk_bytes:
        sys.exit(
            f"{directory}: {free / 1e9:.1f} GB free, {given.disk_bytes / 1e9:.1f} GB needed; see --dir and --cold-gb"
        )
    return directory


def measure(given: options.Options, tools: Tools, directory: Path, samples: list[Sample], stack: ExitStack) -> None:
    servers = []
    for name in given.servers:
        say(f"starting {PRODUCTS[name].title}")
        server = RunningServer(PRODUCTS[name], directory / name)
        stack.callback(server.stop)
        servers.append(server)
    time.sleep(SETTLE_SECONDS)  # Idle memory is what remains when the start is over.
    idle_mb = {server.product.name: anonymous_mb(server) for server in servers}
    steps = Schedule(given, servers, idle_mb, tools, directory).steps()
    execute(steps, given.rounds, samples)


def publish(given: options.Options, facts: dict[str, object], samples: list[Sample]) -> None:
    rows = report.rows(samples)
    print(f"{machine.summary(facts)}; medians of {given.rounds} round{'s' if given.rounds > 1 else ''}\n")
    print(report.table(rows))
    for note in report.notes(samples):
        print(f"\n{note}", flush=True)
    given.json_path.write_text(report.document(facts, given, samples, rows))
    say(f"every sample: {given.json_path}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
