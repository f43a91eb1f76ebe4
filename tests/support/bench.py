"""Runs a family of `scripts/bench` on a small scale, and reads its results."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BENCH_SECONDS_MAX = 400  # The first run builds the load program.

Figures = dict[str, dict[str, float]]


def bench(
    family: str,
    directory: Path,
    *options: str,
    servers: Sequence[str] = ("--kwire-only",),
    has_seconds: bool = True,
    printed: list[str] | None = None,
) -> Figures:
    """The figures of each work, by its name. `has_seconds`: the family has works that run for a time.

    The lines that it prints are added to `printed`.
    """
    path = directory / "results.json"
    seconds = ("--seconds", "0.2") if has_seconds else ()
    short = (*servers, "--quick", *seconds, "--json", str(path), "--dir", str(directory))
    done = subprocess.run(
        [sys.executable, "-m", "benchmark", family, *short, *options],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'scripts'}:{ROOT}"},
        check=True,
        timeout=BENCH_SECONDS_MAX,
        capture_output=True,
        text=True,
    )
    if printed is not None:
        printed += done.stdout.splitlines()
    samples: list[dict[str, Any]] = json.loads(path.read_text())["samples"]
    return {sample["work"]: sample["figures"] for sample in samples if sample["round"] > 0}
