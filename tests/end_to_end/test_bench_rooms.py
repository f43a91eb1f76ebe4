"""`scripts/bench rooms` works: each of its works, on a small scale, brings the figures that the owner asked for.

How good they are depends on the machine, so nothing is said about it here; docs/benchmarks.md tells what was measured.
"""

from functools import partial
from pathlib import Path

import pytest

from tests.support.bench import bench as bench_family

SUBSCRIBERS = 120
ROOMS = 1_001

pytestmark = [pytest.mark.full("checks the benchmark, not the server"), pytest.mark.needs_go]

bench = partial(bench_family, "rooms")


def test_the_time_to_the_last_of_many_subscribers_is_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "broadcast,deliveries", "--subscribers", "1", str(SUBSCRIBERS))
    for work in (f"broadcast {SUBSCRIBERS}", "broadcast 1"):
        assert found[work].keys() >= {"p50_us", "p99_us", "deliveries_per_s", "cpu_us_per_request"}
    deliveries = found[f"deliveries {SUBSCRIBERS}"]
    assert deliveries["deliveries_per_s"] == pytest.approx(SUBSCRIBERS * deliveries["events_per_s"])


@pytest.mark.needs_java
def test_a_bridge_is_measured_beside_the_server_and_a_stock_client(tmp_path: Path) -> None:
    options = ("--bridge", "--only", "broadcast", "--subscribers", "100")
    printed: list[str] = []
    found = bench(tmp_path, *options, printed=printed)
    assert found["broadcast 100"]["p50_us"] > 0
    assert found["produce by a stock client"]["p50_us"] > 0
    (verdict,) = [line for line in printed if line.startswith("delivery to 100 subscribers through the bridge, p50: ")]
    assert verdict.endswith((": holds", ": does not hold"))


def test_events_per_second_are_measured_at_every_door(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "publish")
    doors = {f"publish {way}" for way in ("pipelined", "one by one", "post batch", "post lines", "post")}
    assert doors <= found.keys()
    assert all(found[door]["events_per_s"] > 0 for door in doors)
    assert found["publish pipelined, synced"]["events_per_s"] > 0


def test_the_memory_of_a_thousand_rooms_is_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "many-rooms", "--rooms", str(ROOMS))
    rooms = found[f"many-rooms {ROOMS}"]
    assert rooms["memory_mb"] > rooms["empty_mb"] > 0


def test_commits_and_rebalances_of_groups_over_http_are_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "rest-groups")
    assert found["rest-groups commits, os"]["p50_us"] > 0
    assert found["rest-groups rebalances, group"]["p50_ms"] > 0
