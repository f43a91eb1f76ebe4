"""Builds Go programs (the load programs of the benchmark, and others) once, in the user's cache directory.

Also runs load programs, and converts their output to an Outcome.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmark.histogram import Latencies
from benchmark.processes import ChildFailed, run
from benchmark.works import Outcome

BUILD_TIMEOUT_SECONDS = 900
DIGEST_CHARACTERS = 12


def build_load(family: str, sources: Path) -> Path:
    """Return the load program of a family. Build it if one of its sources has changed."""
    files = sorted(path for path in sources.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()
    home = cache() / f"{family}-load-{digest[:DIGEST_CHARACTERS]}"
    return built(home, "load", lambda into: ["go", "build", "-C", str(sources), "-o", str(into / "load"), "."])


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kwire"


def built(home: Path, name: str, argv_for: Callable[[Path], list[str]]) -> Path:
    """Return the program. Build it if it is missing. The directory is created by a rename, so it is always complete."""
    if not (home / name).exists():
        if shutil.which("go") is None:
            raise ChildFailed("Go is missing; install Go 1.21 or newer, then run this again")
        partial = home.with_name(f"{home.name}.partial-{os.getpid()}")
        partial.mkdir(parents=True)
        try:
            run(f"building {name}", argv_for(partial), BUILD_TIMEOUT_SECONDS)
            if not home.exists():
                partial.rename(home)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return home / name


def run_load(program: Path, work: str, timeout_seconds: float, **options: object) -> Outcome:
    """Run a load program. An option with the value `True` is passed as a flag without a value."""
    argv = [str(program), work]
    for option, value in options.items():
        argv.append("--" + option.replace("_", "-"))
        if value is not True:
            argv.append(str(value))
    return outcome_of(run(f"load {work}", argv, timeout_seconds))


def outcome_of(printed: str) -> Outcome:
    found = json.loads(printed)
    seconds = found["seconds"]
    latencies = Latencies.of(found["samples_ns"] or ())
    figures = latencies.figures() | {
        "events_per_s": found["events"] / seconds,
        "generator_busy_share": found["own_cpu_seconds"] / seconds,
        "load_seconds": seconds,
    }
    if found["deliveries"]:
        figures["deliveries_per_s"] = found["deliveries"] / seconds
    histograms = {"latency": latencies.encode()} if found["samples_ns"] else {}
    return Outcome(figures, requests=found["deliveries"] or found["events"], histograms=histograms)
