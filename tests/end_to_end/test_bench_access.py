"""`scripts/bench access` works: logins, ACLs, TLS and API keys on a small scale bring the figures of its table.

How good they are depends on the machine, so nothing is said about it here; docs/benchmarks.md tells what was measured.
"""

from functools import partial
from pathlib import Path

import pytest

from tests.support.bench import bench as bench_family

pytestmark = [pytest.mark.full("checks the benchmark, not the server"), pytest.mark.needs_java]

bench = partial(bench_family, "access")


def test_logins_and_acls_are_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "acls")
    for end in ("", "-many"):
        assert found[f"produce-acls{end}"].keys() >= {"mb_per_s", "cpu_s_per_gb"}
        assert found[f"small-requests-acls{end}"]["requests_per_s"] > 0


def test_tls_is_measured_on_both_servers(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "tls", servers=())
    assert found["produce-tls"]["mb_per_s"] > 0
    assert found["consume-tls"]["cpu_s_per_gb"] > 0


def test_the_cost_of_api_keys_is_measured(tmp_path: Path) -> None:
    found = bench(tmp_path, "--only", "keys,key-publish", "--keys", "200", "--seconds", "0.5")
    assert found["keys"].keys() >= {"ready_ms", "memory_mb", "key_bytes"}
    assert found["keys"]["login_us"] > 0
    assert found["key-publish"]["events_per_s"] > 0
