"""The first and the last steps of every run: create its directory, print the table, write all samples as JSON."""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmark import machine, report
from benchmark.report import Row
from benchmark.samples import Sample
from benchmark.servers import KWIRE, KWIRE_PROGRAM


def check_kwire(servers: Sequence[str]) -> None:
    if KWIRE in servers and not KWIRE_PROGRAM.exists():
        sys.exit(f"{KWIRE_PROGRAM} does not exist: start with scripts/bench, or measure only the other server")


def make_directory(base: Path | None, disk_bytes: int, keep: bool, stack: ExitStack) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="kwire-bench-", dir=base))
    if keep:
        say(f"data and logs stay in {directory}")
    else:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
    free = shutil.disk_usage(directory).free
    if free < disk_bytes:
        sys.exit(
            f"{directory}: {free / 1e9:.1f} GB free, {disk_bytes / 1e9:.1f} GB needed: use --dir or reduce the sizes"
        )
    return directory


def publish(
    rounds: int,
    facts: dict[str, object],
    given: dict[str, object],
    samples: Sequence[Sample],
    rows: Sequence[Row],
    json_path: Path,
    beside: tuple[str, str] = ("Apache Kafka", "Kafka"),
) -> None:
    print(f"{machine.summary(facts)}; medians of {rounds} round{'s' if rounds > 1 else ''}\n")
    print(report.table(rows, beside))
    for note in report.notes(samples):
        print(f"\n{note}", flush=True)
    json_path.write_text(report.document(facts, given, samples, rows))
    say(f"every sample: {json_path}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
