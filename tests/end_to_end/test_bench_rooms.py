"""`scripts/bench rooms` works: each of its works, on a small scale, brings the figures that the owner asked for.

How good they are depends on the machine, so nothing is said about it here; docs/benchmarks.md tells what was measured.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUBSCRIBERS = 120
ROOMS = 1_001
BENCH_SECONDS_MAX = 400  # The first run builds the load program.

pytestmark = pytest.mark.needs_go

Figures = dict[str, dict[str, float]]


def bench(directory: Path, *options: str) -> Figures:
    """The figures of each work, by its name."""
    path = directory / "results.json"
    short = ("--kwire-only", "--quick", "--seconds", "0.2", "--json", str(path), "--dir", str(directory))
    subprocess.run(
        [sys.executable, "-m", "benchmark", "rooms", *short, *options],
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")},
        check=True,
        timeout=BENCH_SECONDS_MAX,
        capture_output=True,
    )
    samples: list[dict[str, Any]] = json.loads(path.read_text())["samples"]
    return {sample["work"]: sample["figures"] for sample in samples if sample["round"] > 0}


@pytest.mark.proves("S0-49", "S0-52")
def test_the_time_to_the_last_of_many_subscribers_is_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "broadcast,deliveries", "--subscribers", "1", str(SUBSCRIBERS))
    for work in (f"broadcast {SUBSCRIBERS}", "broadcast 1"):
        assert found[work].keys() >= {"p50_us", "p99_us", "deliveries_per_s", "cpu_us_per_request"}
    deliveries = found[f"deliveries {SUBSCRIBERS}"]
    assert deliveries["deliveries_per_s"] == pytest.approx(SUBSCRIBERS * deliveries["events_per_s"])


@pytest.mark.proves("S0-50")
def test_events_per_second_are_measured_at_every_door(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "publish")
    doors = {f"publish {way}" for way in ("pipelined", "one by one", "post batch", "post lines", "post")}
    assert doors <= found.keys()
    assert all(found[door]["events_per_s"] > 0 for door in doors)
    assert found["publish pipelined, synced"]["events_per_s"] > 0


@pytest.mark.proves("S0-51")
def test_the_memory_of_a_thousand_rooms_is_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "many-rooms", "--rooms", str(ROOMS))
    rooms = found[f"many-rooms {ROOMS}"]
    assert rooms["memory_mb"] > rooms["empty_mb"] > 0


def test_commits_and_rebalances_of_groups_over_http_are_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "rest-groups")
    assert found["rest-groups commits, os"]["p50_us"] > 0
    assert found["rest-groups rebalances, group"]["p50_ms"] > 0
