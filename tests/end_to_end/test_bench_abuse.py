"""`scripts/bench abuse` works: attacks on a small scale bring the figures that the bars are about.

How good they are depends on the machine, so nothing is said about it here; docs/benchmarks.md tells what was measured.
"""

from functools import partial
from pathlib import Path

import pytest

from tests.support.bench import bench as bench_family

pytestmark = [pytest.mark.full("checks the benchmark, not the server"), pytest.mark.timeout(300)]

bench = partial(bench_family, "abuse", servers=())
FIGURES = {"stall_ms", "growth_mib", "left_mib", "kafka_p99_ms", "http_p99_ms", "failed", "strikes"}


@pytest.mark.parametrize(
    "attack", ["blank-lines", "last-of-batch", "stalled-uploads", "unread-sockets", "ping-flood", "slow-sync-delete"]
)
def test_an_attack_is_measured(tmp_path: Path, attack: str) -> None:
    found = bench(tmp_path, "--only", attack)[attack]
    assert found.keys() >= FIGURES
    assert found["strikes"] >= 1
    assert found["stall_ms"] > 0
    assert 0 < found["kafka_p50_ms"] <= found["kafka_p99_ms"] <= found["kafka_max_ms"]


@pytest.mark.parametrize(
    "attack", ["idle-tls", "slow-sasl", "tls-hellos", "half-sent-logins", "guess-plain", "guess-scram", "guess-basic"]
)
def test_an_attack_without_a_login_is_measured_also_by_the_logins_of_others(tmp_path: Path, attack: str) -> None:
    found = bench(tmp_path, "--only", attack)[attack]
    assert found.keys() >= FIGURES
    assert found["strikes"] >= 1
    assert all(found[f"{login}_p99_ms"] > 0 for login in ("scram", "plain", "first"))


def test_larger_requests_are_measured_where_an_attack_aims_at_them(tmp_path: Path) -> None:
    assert bench(tmp_path, "--only", "half-sent-frames")["half-sent-frames"]["large_p99_ms"] > 0
