"""`scripts/bench pipeline` works: each of its works, on a small scale, brings the figures that the owner asked for.

How good they are depends on the machine, so nothing is said about it here; docs/benchmarks.md tells what was measured.
"""

from functools import partial
from pathlib import Path

import pytest

from tests.support.bench import bench as bench_family
from tests.support.spark import fetch_jars

pytestmark = [
    pytest.mark.full("checks the benchmark, not the server"),
    pytest.mark.needs_spark,
    pytest.mark.needs_java,
    pytest.mark.needs_mvn,
    # Spark starts anew for each figure.
    pytest.mark.timeout(500),
]

bench = partial(bench_family, "pipeline")


@pytest.fixture(autouse=True)
def jars(tmp_path: Path) -> None:
    fetch_jars(tmp_path)


def test_rows_and_bytes_per_second_of_a_batch_read_are_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "read", "--gb", "0.01")["read"]
    assert found["rows"] == int(0.01e9 / 1024)
    assert found["bytes"] == found["rows"] * 1024
    assert found["rows_per_s"] == pytest.approx(found["rows"] / found["read_s"])
    assert found.keys() >= {"mb_per_s", "server_cpu_s_per_gb", "spark_cores"}


def test_rows_per_second_to_the_lake_and_its_lag_are_measured(tmp_path: Path) -> None:
    # Long enough for another commit on a busy machine.
    found = bench(tmp_path, "--only", "lake,lag", "--rows", "2000", "--events", "500", "--seconds", "12")
    for work, rows in (("lake text", 2000), ("lake text, parquet", 2000), ("lake events", 500)):
        assert found[work]["rows"] == rows
        assert found[work].keys() >= {"rows_per_s", "cpu_us_per_request", "table_bytes_per_row"}
    lag = found["lag"]
    assert 0 < lag["p50_ms"] <= lag["p99_ms"] <= lag["max_ms"]
    assert lag["rows"] > 0
