"""`scripts/bench events` works: each of its works, on a small scale, brings the figures that the owner asked for.

How good they are depends on the machine, so nothing is said about it here; docs/benchmarks.md tells what was measured.
"""

from functools import partial
from pathlib import Path

import pytest

from tests.support.bench import bench as bench_family

EXPORTED = 1_100

pytestmark = [pytest.mark.full("checks the benchmark, not the server"), pytest.mark.needs_go]

bench = partial(bench_family, "events")


def test_validated_events_per_second_are_measured_by_one_and_in_batches(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "publish")
    for batch in ("1 x1", "1 x8", "100 x4", "1000 x4", "100 x4, 3 topics", "1000 x4, 3 topics"):
        assert found[f"publish {batch}"].keys() >= {"events_per_s", "p50_us", "p99_us", "cpu_us_per_request", "stalls"}
    assert found["publish 1000 x4, no schema"]["events_per_s"] > 0
    assert found["publish 1000 x4, log.sync=os"]["events_per_s"] > 0


def test_deliveries_per_second_and_their_latency_are_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "webhooks,subscribe")
    for work in ("webhooks ordered", "webhooks parallel", "subscribe stored", "subscribe live"):
        assert found[work].keys() >= {"deliveries_per_s", "generator_busy_share", "cpu_us_per_request"}
    assert found["webhooks latency"]["p50_us"] > 0
    live = found["subscribe live"]
    assert live["deliveries_per_s"] == pytest.approx(3 * live["events_per_s"])


def test_files_are_measured_by_an_export_and_in_step_with_a_steady_load(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "files", "--exported", str(EXPORTED))
    export = found["files export"]
    # Fewer files than events, or more, would have failed.
    assert export["files_per_s"] == pytest.approx(EXPORTED / export["export_s"])
    assert found["files in step"].keys() >= {"p50_us", "p99_us", "max_us", "stalls"}


@pytest.mark.needs_java
@pytest.mark.needs_mvn
def test_what_schemas_cost_a_kafka_producer_is_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "produce")
    for work in ("produce event topic", "produce event topic with schema"):
        assert found[work]["of_plain"] == found[work]["records_per_s"] / found["produce plain, synced"]["records_per_s"]
