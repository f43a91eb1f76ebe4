"""`scripts/bench cli` works: both programs bring the figures that the bars are about, on a small scale.

How good they are depends on the machine, so nothing is said about it here; docs/benchmarks.md tells what was measured.
"""

from pathlib import Path

import pytest

from tests.support.bench import bench

pytestmark = [pytest.mark.full("checks the benchmark, not the server"), pytest.mark.needs_kcat]


def test_the_command_line_is_measured_beside_kcat(tmp_path: Path) -> None:
    found = bench("cli", tmp_path, servers=(), has_seconds=False)
    for work in ("cli-produce", "cli-consume"):
        assert found[work].keys() >= {"records_per_s", "seconds", "client_cpu_s"}
    assert found["cli-start-up"]["help_ms"] > 0
